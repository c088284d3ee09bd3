//! `ICMP6Error(SRC, TYPE, CODE)`: answers IPv6 packets with ICMPv6 errors (RFC 4443, 2.4).
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `SRC`: this host's address.
//! - `TYPE`, `CODE`: type and code of the error. `packet too big` (2) contains an MTU of 1500; `parameter problem` (4)
//!   contains the ICMP_PARAMPROB annotation.
//!
//! Handlers: `drops` (read). Errors, multicasts and broadcasts are dropped without a reply.
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use ringway_click::arg::Args;
use ringway_click::{
    Annotations, Class, Context, Element, Failed, HEADROOM, Handler, Metadata, Packet, PacketBurst,
    PacketType,
};
use ringway_wire::{Header, Icmp, Ipv6, Protocol, icmp::v6, ipv6};

pub static CLASS: Class =
    Class::new("ICMP6Error", || Box::<Icmp6Error>::default()).ports("1/1").metadata(Metadata::Resolve);

/// Maximum length of an error message, which every link accepts (RFC 8200, 5).
const LARGEST: usize = 1280;

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
        let ip = ipv6::Packet::parse(data)?;
        let group = matches!(packet.notes().packet_type, PacketType::Broadcast | PacketType::Multicast);
        let (source, destination) = (ip.header.source_addr(), ip.header.destination_addr());
        // Types below 128 are errors; unspecified and multicast sources identify no single node.
        let error = ip.upper().is_some_and(|upper| {
            upper.protocol == Protocol::ICMPV6 && upper.payload.first().is_none_or(|kind| *kind < 128)
        });
        if group || error || destination.is_multicast() || source.is_multicast() || source.is_unspecified() {
            return None;
        }
        let quoted = data.len().min(LARGEST - Ipv6::LEN - Icmp::LEN);
        let length = Icmp::LEN + quoted;
        let mut made = cx.make_packet(HEADROOM, Ipv6::LEN + length, 0)?;
        let (reply, message) = Ipv6::split_mut(made.data_mut())?;
        *reply = Ipv6 {
            payload_length: (length as u16).into(),
            next_header: Protocol::ICMPV6,
            hop_limit: 255,
            source: self.source.to_bits().into(),
            destination: ip.header.source,
            ..Ipv6::EMPTY
        };
        let (icmp, behind) = Icmp::split_mut(message)?;
        *icmp = Icmp { kind: self.kind, code: self.code, ..Icmp::default() };
        icmp.set_rest(match self.kind {
            v6::PACKET_TOO_BIG => 1500,
            v6::PARAMETER_PROBLEM => packet.notes().u8(Annotations::ICMP_PARAMPROB).into(),
            _ => 0,
        });
        behind.copy_from_slice(&data[..quoted]);
        Icmp::fill_checksum(message, reply.pseudo_header(Protocol::ICMPV6, length as u32))?;
        made.set_network_header(0, Ipv6::LEN);
        made.notes_mut().set(Annotations::DST_IP6, source.octets());
        made.notes_mut().set_u8(Annotations::FIX_IP_SRC, 1);
        Some(made)
    }
}
