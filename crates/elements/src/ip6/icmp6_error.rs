//! `ICMP6Error(SRC, TYPE, CODE)`: answers IPv6 packets with ICMPv6 errors (RFC 4443, 2.4).
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `SRC`: this host's address.
//! - `TYPE`, `CODE`: of the error. `packet too big` (2) tells an MTU of 1500; `parameter problem` (4) tells what the
//!   ICMP_PARAMPROB annotation says.
//!
//! Handlers: `drops` (read). Errors, groups and broadcasts are dropped without an answer.
use crate::packet::put;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use ringway_click::arg::Args;
use ringway_click::{
    Annotations, Class, Context, Element, Failed, HEADROOM, Handler, Metadata, Packet, PacketBurst,
    PacketType,
};
use ringway_wire::{ip::Protocol, ipv6};

/// Facts.
pub static CLASS: Class =
    Class::new("ICMP6Error", || Box::<Icmp6Error>::default()).ports("1/1").metadata(Metadata::Resolve);

/// Bytes of an answer at most: every link takes them (RFC 8200, 5).
const LARGEST: usize = 1280;

/// Makes errors.
#[derive(Debug)]
pub struct Icmp6Error {
    source: Ipv6Addr,
    kind: u8,
    code: u8,
    drops: u64,
}

impl Default for Icmp6Error {
    fn default() -> Self {
        Self { source: Ipv6Addr::UNSPECIFIED, kind: 0, code: 0, drops: 0 }
    }
}

impl Element for Icmp6Error {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("SRC", &mut self.source);
        args.read_mp("TYPE", &mut self.kind);
        args.read_mp("CODE", &mut self.code);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        burst.filter_map(|packet| {
            let answer = self.answer(&packet, cx);
            self.drops += u64::from(answer.is_none());
            answer
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read("drops", |e: &Self| e.drops)].into()
    }
}

impl Icmp6Error {
    fn answer(&self, packet: &Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let data = packet.network_data()?;
        let (header, _) = ipv6::Packet::new_prefix(data).ok()?;
        let group = matches!(packet.notes().packet_type, PacketType::Broadcast | PacketType::Multicast);
        let (source, destination) = (header.source(), header.destination());
        // Types below 128 are errors; unspecified and group sources name nobody.
        let error = header.upper().is_ok_and(|upper| {
            upper.protocol == Protocol::ICMPV6 && upper.payload.first().is_none_or(|kind| *kind < 128)
        });
        if group || error || destination.is_multicast() || source.is_multicast() || source.is_unspecified() {
            return None;
        }
        let quoted = data.len().min(LARGEST - ipv6::HEADER_LEN - 8);
        let length = 8 + quoted;
        let reply = ipv6::Repr {
            traffic_class: 0,
            flow_label: 0,
            payload_len: length as u16,
            next_header: Protocol::ICMPV6,
            hop_limit: 255,
            source: self.source,
            destination: source,
        };
        let mut made = cx.make_packet(HEADROOM, ipv6::HEADER_LEN + length, 0)?;
        let out = made.data_mut();
        reply.emit(out).ok()?;
        let message = out.get_mut(ipv6::HEADER_LEN..)?;
        message[..8].fill(0);
        (message[0], message[1]) = (self.kind, self.code);
        match self.kind {
            2 => put(message, 4, 1500u32.to_be_bytes()),
            4 => message[7] = packet.notes().u8(Annotations::ICMP_PARAMPROB),
            _ => {}
        }
        message[8..].copy_from_slice(&data[..quoted]);
        let mut sum = ringway_wire::checksum::Sum::pseudo_v6(self.source, source, 58, length as u32);
        sum.add(message);
        put(message, 2, sum.finish().to_be_bytes());
        made.set_network_header(0, ipv6::HEADER_LEN);
        made.notes_mut().set(Annotations::DST_IP6, source.octets());
        made.notes_mut().set_u8(Annotations::FIX_IP_SRC, 1);
        Some(made)
    }
}
