//! `TCPIPSend`: sends TCP packets that it is told to.
//!
//! Ports: no inputs, one push output. No arguments.
//!
//! Handlers: `send` (write): `SADDR SPORT DADDR DPORT SEQNO ACKNO BITS [COUNT [STOP]]`. BITS are the six
//! flags of TCP as a number; COUNT packets are sent, 1 by default; STOP says whether the driver stops then.
use super::super::packet::{fill_ip_checksum, put};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::Ipv4Addr;
use ringway_click::{Class, Context, Element, Handler, HandlerError, Metadata};
use ringway_click_lang::config;
use ringway_wire::checksum::Sum;

/// Facts.
pub static CLASS: Class = Class::new("TCPIPSend", || Box::<TcpIpSend>::default())
    .ports("0/1")
    .processing("h")
    .metadata(Metadata::Ignores);

/// Packets a write at most. Attack: a handler that keeps the router from everything else.
const MOST: u32 = 1 << 16;
const TCP: u8 = 6;

/// See the module.
#[derive(Debug, Default)]
pub struct TcpIpSend {
    id: u16,
}

/// What to send.
struct Wish {
    addresses: [Ipv4Addr; 2],
    ports: [u16; 2],
    numbers: [u32; 2],
    flags: u8,
    count: u32,
    stop: bool,
}

impl Wish {
    fn parse(text: &str, cx: &Context<'_>) -> Option<Self> {
        let words = config::split_words(text);
        let [a, b, c, d, e, f, g, rest @ ..] = words.as_slice() else { return None };
        if rest.len() > 2 {
            return None;
        }
        Some(Self {
            addresses: [cx.parse(a).ok()?, cx.parse(c).ok()?],
            ports: [cx.parse(b).ok()?, cx.parse(d).ok()?],
            numbers: [cx.parse(e).ok()?, cx.parse(f).ok()?],
            flags: cx.parse(g).ok().filter(|flags: &u8| *flags < 64)?,
            count: rest.first().map_or(Some(1), |count| cx.parse(count).ok())?,
            stop: rest.get(1).map_or(Some(false), |stop| cx.parse(stop).ok())?,
        })
    }

    fn packet(&self, id: u16) -> [u8; 40] {
        let mut packet = [0; 40];
        let (ip, tcp) = packet.split_at_mut(20);
        (ip[0], ip[3], ip[8], ip[9]) = (0x45, 40, 255, TCP);
        put(ip, 4, id.to_be_bytes());
        put(ip, 12, self.addresses[0].octets());
        put(ip, 16, self.addresses[1].octets());
        fill_ip_checksum(ip);
        put(tcp, 0, self.ports[0].to_be_bytes());
        put(tcp, 2, self.ports[1].to_be_bytes());
        put(tcp, 4, self.numbers[0].to_be_bytes());
        put(tcp, 8, self.numbers[1].to_be_bytes());
        (tcp[12], tcp[13]) = (5 << 4, self.flags);
        put(tcp, 14, [0x7f, 0xff]);
        let mut sum = Sum::pseudo_v4(self.addresses[0], self.addresses[1], TCP, 20);
        sum.add(tcp);
        put(tcp, 16, sum.finish().to_be_bytes());
        packet
    }
}

impl TcpIpSend {
    /// Emits the packets that are asked for.
    fn send(&mut self, value: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let expected = "expected 'SADDR SPORT DADDR DPORT SEQNO ACKNO BITS [COUNT [STOP]]'";
        let wish = Wish::parse(value, cx).ok_or_else(|| HandlerError::failed(expected))?;
        if wish.count > MOST {
            return Err(HandlerError::failed(alloc::format!("COUNT too large, bound {MOST}")));
        }
        for _ in 0..wish.count {
            self.id = self.id.wrapping_add(1);
            let Some(mut packet) = cx.packet(&wish.packet(self.id)) else { break };
            packet.set_network_header(0, 20);
            packet.notes_mut().set_dst_ip(wish.addresses[1].octets());
            cx.push(0, packet);
        }
        if wish.stop {
            cx.flush();
            cx.stop();
        }
        Ok(())
    }
}

impl Element for TcpIpSend {
    fn handlers(&self) -> Vec<Handler> {
        [Handler::write("send", Self::send)].into()
    }
}
