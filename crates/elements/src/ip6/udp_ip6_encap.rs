//! `UDPIP6Encap(SRC, SPORT, DST, DPORT)`: puts UDP and IPv6 headers before packets.
//!
//! Ports: one input, one output, push or pull. Packets that would be too long are dropped.
//!
//! Arguments:
//! - `SRC`, `SPORT`: source address and port.
//! - `DST`, `DPORT`: destination; DST may be `DST_ANNO` for the address that is noted.
//!
//! Handlers: `src`, `sport`, `dst`, `dport` (read, write).
use super::ip6_encap::destination;
use crate::ip::names::parse_port;
use crate::ip6::ip6_encap::destination_handler;
use crate::packet::put;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::net::Ipv6Addr;
use ringway_click::arg::{Args, MANDATORY_POSITIONAL, NameKind};
use ringway_click::{Annotations, Class, Context, Element, Failed, Handler, Metadata, Packet, PacketBurst};
use ringway_wire::checksum::Sum;
use ringway_wire::{ip::Protocol, ipv6};

const UDP: NameKind = NameKind::UdpPort;
/// Bytes of UDP's header.
const HEADER: usize = 8;

/// Facts.
pub static CLASS: Class = Class::new("UDPIP6Encap", || Box::<UdpIp6Encap>::default())
    .ports("1/1")
    .live()
    .metadata(Metadata::Resolve);

/// See the module.
#[derive(Debug)]
pub struct UdpIp6Encap {
    source: Ipv6Addr,
    /// None: the one that is noted.
    destination: Option<Ipv6Addr>,
    ports: [u16; 2],
}

impl Default for UdpIp6Encap {
    fn default() -> Self {
        Self { source: Ipv6Addr::UNSPECIFIED, destination: None, ports: [0; 2] }
    }
}

impl UdpIp6Encap {
    fn wrap(&self, packet: &mut Packet) -> Option<()> {
        let noted = Ipv6Addr::from(packet.notes().get::<16>(Annotations::DST_IP6));
        let length = u16::try_from(packet.len() + HEADER).ok()?;
        let header = ipv6::Repr {
            traffic_class: 0,
            flow_label: 0,
            payload_len: length,
            next_header: Protocol::UDP,
            hop_limit: 250,
            source: self.source,
            destination: self.destination.unwrap_or(noted),
        };
        if !packet.push(ipv6::HEADER_LEN + HEADER) {
            return None;
        }
        header.emit(packet.data_mut()).ok()?;
        let datagram = packet.data_mut().get_mut(ipv6::HEADER_LEN..)?;
        put(datagram, 0, self.ports[0].to_be_bytes());
        put(datagram, 2, self.ports[1].to_be_bytes());
        put(datagram, 4, length.to_be_bytes());
        put(datagram, 6, [0, 0]);
        let mut sum = Sum::pseudo_v6(header.source, header.destination, Protocol::UDP.0, length.into());
        sum.add(datagram);
        put(datagram, 6, sum.finish_nonzero().to_be_bytes());
        packet.notes_mut().set(Annotations::DST_IP6, header.destination.octets());
        packet.set_network_header(0, ipv6::HEADER_LEN);
        Some(())
    }
}

impl Element for UdpIp6Encap {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("SRC", &mut self.source);
        args.read_with("SPORT", MANDATORY_POSITIONAL, &mut self.ports[0], parse_port(UDP));
        args.read_with("DST", MANDATORY_POSITIONAL, &mut self.destination, destination);
        args.read_with("DPORT", MANDATORY_POSITIONAL, &mut self.ports[1], parse_port(UDP));
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| self.wrap(packet).is_some());
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::field("src", |e: &mut Self| &mut e.source),
            Handler::read("sport", |e: &Self| e.ports[0]).writes(|e: &mut Self, value, cx| {
                e.ports[0] = cx.parse_with(value, parse_port(UDP))?;
                Ok(())
            }),
            destination_handler(|e: &mut Self| &mut e.destination),
            Handler::read("dport", |e: &Self| e.ports[1]).writes(|e: &mut Self, value, cx| {
                e.ports[1] = cx.parse_with(value, parse_port(UDP))?;
                Ok(())
            }),
        ]
        .into()
    }
}
