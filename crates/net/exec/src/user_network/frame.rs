//! What a frame from the program begins.

use ringway_wire::tcp::Flags;
use ringway_wire::{EtherType, Ethernet, Header, Protocol, Tcp, Udp, ipv4, ipv6};
use std::net::{IpAddr, SocketAddr};

/// What a frame is for the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The first segment of a connection.
    Syn,
    /// A datagram, or its first fragment.
    Datagram,
}

/// A frame to a socket of a host, by its headers alone: whether it is right, [`ringway_netstack::Stack::admits`] tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    pub kind: Kind,
    pub from: SocketAddr,
    pub to: SocketAddr,
}

impl Ends {
    /// `None`: the frame begins nothing, or its addresses are of no hosts.
    pub fn of(frame: &[u8]) -> Option<Ends> {
        let (ethernet, bytes) = Ethernet::split(frame)?;
        let (from, to, protocol, payload): (IpAddr, IpAddr, _, _) = match ethernet.ethertype {
            EtherType::IPV4 => {
                let packet =
                    ipv4::Packet::parse(bytes).filter(|packet| !packet.header.is_later_fragment())?;
                let (from, to) = (packet.header.source_addr(), packet.header.destination_addr());
                let are_hosts = ipv4::is_host(from) && ipv4::is_host(to);
                are_hosts.then_some((from.into(), to.into(), packet.header.protocol, packet.payload))?
            }
            EtherType::IPV6 => {
                let packet = ipv6::Packet::parse(bytes)?;
                let (from, to) = (packet.header.source_addr(), packet.header.destination_addr());
                let is_later = packet
                    .extensions()
                    .flatten()
                    .any(|extension| extension.fragment().is_some_and(|header| header.offset() != 0));
                let upper = packet.upper().filter(|_| !is_later)?;
                let are_hosts = ipv6::is_host(from) && ipv6::is_host(to);
                are_hosts.then_some((from.into(), to.into(), upper.protocol, upper.payload))?
            }
            _ => return None,
        };
        let (kind, ports) = match protocol {
            Protocol::TCP => {
                let tcp = Tcp::of(payload)?;
                let begins = tcp.flags.has(Flags::SYN)
                    && ![Flags::ACK, Flags::RST, Flags::FIN].into_iter().any(|flag| tcp.flags.has(flag));
                let ports = (tcp.source_port.get(), tcp.destination_port.get());
                begins.then_some((Kind::Syn, ports))?
            }
            Protocol::UDP => {
                let udp = Udp::of(payload)?;
                (Kind::Datagram, (udp.source_port.get(), udp.destination_port.get()))
            }
            _ => return None,
        };
        Some(Ends { kind, from: SocketAddr::new(from, ports.0), to: SocketAddr::new(to, ports.1) })
    }
}
