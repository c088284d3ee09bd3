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
use crate::ip::names::{parse_port, port_handler};
use crate::ip6::ip6_encap::destination_handler;
use core::net::Ipv6Addr;
use ringway_click::arg::{MANDATORY_POSITIONAL, NameKind};
use ringway_click::prelude::*;
use ringway_wire::{Header, Ipv6, Protocol, U16, Udp};

pub static CLASS: Class = Class::new("UDPIP6Encap", || Box::<UdpIp6Encap>::default())
    .ports("1/1")
    .live()
    .metadata(Metadata::Resolve);

#[derive(Debug)]
pub struct UdpIp6Encap {
    source: Ipv6Addr,
    /// `None`: the destination annotation.
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
        let noted = packet.notes().get::<16>(Annotations::DST_IP6);
        let destination = self.destination.map_or(noted, |destination| destination.octets());
        let length = u16::try_from(packet.len() + Udp::LEN).ok()?;
        if !packet.push(Ipv6::LEN + Udp::LEN) {
            return None;
        }
        let (ip, datagram) = Ipv6::split_mut(packet.data_mut())?;
        *ip = Ipv6 {
            payload_length: length.into(),
            next_header: Protocol::UDP,
            hop_limit: 255,
            source: self.source.to_bits().into(),
            destination: destination.into(),
            ..Ipv6::EMPTY
        };
        let [source_port, destination_port] = self.ports.map(U16::new);
        let checksum = 0.into();
        *Udp::of_mut(datagram)? = Udp { source_port, destination_port, length: length.into(), checksum };
        Udp::fill_checksum(datagram, ip.pseudo_header(Protocol::UDP, length.into()))?;
        packet.notes_mut().set(Annotations::DST_IP6, destination);
        packet.set_network_header(0, Ipv6::LEN);
        Some(())
    }
}

impl Element for UdpIp6Encap {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("SRC", &mut self.source);
        args.read_with("SPORT", MANDATORY_POSITIONAL, &mut self.ports[0], parse_port(NameKind::UdpPort));
        args.read_with("DST", MANDATORY_POSITIONAL, &mut self.destination, destination);
        args.read_with("DPORT", MANDATORY_POSITIONAL, &mut self.ports[1], parse_port(NameKind::UdpPort));
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| self.wrap(packet).is_some());
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::field("src", |e: &mut Self| &mut e.source).argument(Some(0), "SRC"),
            port_handler("sport", |e: &mut Self| &mut e.ports[0]).argument(Some(1), "SPORT"),
            destination_handler(|e: &mut Self| &mut e.destination).argument(Some(2), "DST"),
            port_handler("dport", |e: &mut Self| &mut e.ports[1]).argument(Some(3), "DPORT"),
        ]
        .into()
    }
}
