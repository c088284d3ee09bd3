//! `TCPIPSend`: sends TCP packets that it is told to.
//!
//! Ports: no inputs, one push output. No arguments.
//!
//! Handlers: `send` (write): `SADDR SPORT DADDR DPORT SEQNO ACKNO BITS [COUNT [STOP]]`. BITS are the six
//! flags of TCP as a number; COUNT packets are sent, 1 by default; STOP says whether the driver stops then.
use super::template::segment_packet;
use core::net::Ipv4Addr;
use ringway_click::prelude::*;
use ringway_click_lang::config;
use ringway_wire::tcp::Flags;
use ringway_wire::{Ipv4, Tcp};

pub static CLASS: Class = Class::new("TCPIPSend", || Box::<TcpIpSend>::default())
    .ports("0/1")
    .processing("h")
    .metadata(Metadata::Ignores);

/// Maximum number of packets of a write. Attack: a handler call that starves the rest of the router.
const MOST: u32 = 1 << 16;

#[derive(Debug, Default)]
pub struct TcpIpSend {
    id: u16,
}

/// The packets to send.
struct SendRequest {
    addresses: [Ipv4Addr; 2],
    ports: [u16; 2],
    numbers: [u32; 2],
    flags: u8,
    count: u32,
    stop: bool,
}

impl SendRequest {
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

    fn packet(&self, id: u16, cx: &mut Context<'_>) -> Option<Packet> {
        let [source, destination] = self.addresses.map(Ipv4Addr::to_bits);
        let ip = Ipv4 {
            identification: id.into(),
            ttl: 255,
            source: source.into(),
            destination: destination.into(),
            ..Ipv4::EMPTY
        };
        let tcp = Tcp {
            source_port: self.ports[0].into(),
            destination_port: self.ports[1].into(),
            sequence_number: self.numbers[0].into(),
            acknowledgment_number: self.numbers[1].into(),
            flags: Flags(self.flags),
            window: 0x7fff.into(),
            ..Tcp::EMPTY
        };
        segment_packet(ip, tcp, &[], cx)
    }
}

impl TcpIpSend {
    /// Emits the requested packets.
    fn send(&mut self, value: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let expected = "expected 'SADDR SPORT DADDR DPORT SEQNO ACKNO BITS [COUNT [STOP]]'";
        let request = SendRequest::parse(value, cx).ok_or_else(|| HandlerError::failed(expected))?;
        if request.count > MOST {
            return Err(HandlerError::failed(alloc::format!("COUNT too large, bound {MOST}")));
        }
        for _ in 0..request.count {
            self.id = self.id.wrapping_add(1);
            let Some(packet) = request.packet(self.id, cx) else { break };
            cx.push(0, packet);
        }
        if request.stop {
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
