//! ICMP for both IP versions, and neighbour discovery.

use super::announce::ALL_NODES;
use super::input::{Arrival, answer};
use super::{Socket, Stack};
use crate::connection::{ConnectionError, MIN_MSS};
use crate::demux::Tuple;
use crate::net::ip::Packet;
use crate::net::neighbor::{Claim, Lookup, Rank};
use crate::net::{Network, pseudo};
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};
use ringway_wire::icmp::{LinkOption, Neighbor, v4, v6};
use ringway_wire::tcp::HEADER_LEN;
use ringway_wire::{Ethernet, Header, Icmp, MacAddress, Protocol, Sum, U16, U128, ipv6};

/// Codes of unreachable destinations, for IPv4 and IPv6.
pub(super) const HOST_UNREACHABLE: (u8, u8) = (1, 3);
pub(super) const PROTOCOL_UNREACHABLE: (u8, u8) = (2, 1);
pub(super) const PORT_UNREACHABLE: (u8, u8) = (3, 4);
/// Bytes of a packet that an IPv4 error quotes: within 576 bytes in all (RFC 1812, 4.3.2.3).
const QUOTED_V4: usize = 548;
/// Bytes of a packet that an IPv6 error quotes: within the minimum MTU (RFC 4443, 3.1).
const QUOTED_V6: usize = 1232;
/// Smallest MTU that is believed (Linux's `min_pmtu`). Attack: a forged message that says 68 makes every
/// segment tiny.
const MIN_PMTU: usize = 552;
const MIN_PMTU_V6: usize = 1280;
/// The hop limit of neighbour discovery, which proves that the sender is on the link (RFC 4861, 6.1.1).
const HOP_LIMIT: u8 = 255;

/// The solicited-node group of an IPv6 address (RFC 4291, 2.7.1).
pub(super) fn solicited(address: IpAddr) -> Option<Ipv6Addr> {
    match address {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => Some((0xff02 << 112 | 0x1_ff00_0000 | address.to_bits() & 0xff_ffff).into()),
    }
}

/// A message with its checksum.
fn message(header: Icmp, body: &[u8], sum: Sum) -> Vec<u8> {
    let mut bytes = [header.bytes(), body].concat();
    // The message is longer than a header.
    let _ = Icmp::fill_checksum(&mut bytes, sum);
    bytes
}

/// What an ICMP error says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    /// Nobody receives packets of this protocol or port.
    Refused,
    /// The network or the host can't be reached.
    Unreachable,
    Other,
}

impl Stack {
    pub(super) fn icmp_v4(&mut self, _interface: usize, packet: &Packet<'_>, group: bool) {
        let mut sum = Sum::new();
        sum.add(packet.payload);
        let Some((icmp, body)) = Icmp::split(packet.payload).filter(|_| sum.is_valid()) else {
            self.statistics.bad_checksum += 1;
            return;
        };
        match icmp.kind {
            // Attack: a request to a broadcast address is answered by every host (RFC 1122, 3.2.2.6).
            v4::ECHO if !group => {
                let header = Icmp { kind: v4::ECHO_REPLY, ..*icmp };
                let reply = message(header, body, Sum::new());
                // A reply without room is dropped and counted.
                let _ = self.send_packet(packet.destination, packet.source, Protocol::ICMP, &reply);
            }
            v4::UNREACHABLE => {
                let Some(quoted) = Packet::parse_quoted_v4(body) else {
                    self.statistics.icmp_in_errors += 1;
                    return;
                };
                let too_big = icmp.code == v4::NEEDS_FRAGMENTATION;
                let mtu = too_big.then(|| usize::from(icmp.sequence_number.get()).max(MIN_PMTU));
                let meaning = match icmp.code {
                    2 | 3 => Meaning::Refused,
                    0 | 1 => Meaning::Unreachable,
                    _ => Meaning::Other,
                };
                self.icmp_error(&quoted, mtu, meaning);
            }
            _ => {}
        }
    }

    pub(super) fn icmp_v6(&mut self, arrival: Arrival, packet: &Packet<'_>) {
        let Arrival { interface, group, fragmented, .. } = arrival;
        // Attack: fragments hide a message of neighbour discovery from the link's filters (RFC 6980, 5).
        let is_discovery = packet.ttl == HOP_LIMIT && !fragmented;
        let Some((icmp, body)) = Icmp::split(packet.payload) else {
            self.statistics.bad_header += 1;
            return;
        };
        match icmp.kind {
            v6::ECHO if !group => {
                let header = Icmp { kind: v6::ECHO_REPLY, ..*icmp };
                let (source, len) = (packet.destination, packet.payload.len());
                let sum = pseudo(source, packet.source, Protocol::ICMPV6, len);
                let reply = message(header, body, sum);
                let _ = self.send_packet(source, packet.source, Protocol::ICMPV6, &reply);
            }
            v6::ROUTER_ADVERTISEMENT if is_discovery && icmp.code == 0 => {
                self.router_advertised(interface, packet.source, icmp.sequence_number.get(), body);
            }
            v6::NEIGHBOR_SOLICITATION | v6::NEIGHBOR_ADVERTISEMENT if is_discovery => {
                self.neighbor_discovery(interface, packet);
            }
            v6::UNREACHABLE | v6::PACKET_TOO_BIG => {
                let Some(quoted) = Packet::parse_quoted_v6(body) else {
                    self.statistics.icmp_in_errors += 1;
                    return;
                };
                let too_big = icmp.kind == v6::PACKET_TOO_BIG;
                let mtu = too_big.then(|| (icmp.rest() as usize).max(MIN_PMTU_V6));
                let meaning = match icmp.code {
                    4 if !too_big => Meaning::Refused,
                    0 | 3 if !too_big => Meaning::Unreachable,
                    _ => Meaning::Other,
                };
                self.icmp_error(&quoted, mtu, meaning);
            }
            _ => {}
        }
    }

    /// RFC 4861, 7.1 and 7.2.
    fn neighbor_discovery(&mut self, interface: usize, packet: &Packet<'_>) {
        let parsed = Neighbor::split(packet.payload).filter(|(discovery, _)| discovery.icmp.code == 0);
        let Some((discovery, options)) = parsed else {
            self.statistics.bad_header += 1;
            return;
        };
        let target = IpAddr::V6(discovery.target.get().into());
        if self.claims_tentative(interface, target, packet.source, discovery.icmp.kind) {
            return;
        }
        let is_group = packet.destination.is_multicast();
        let is_valid = if discovery.icmp.kind == v6::NEIGHBOR_ADVERTISEMENT {
            self.advertised(interface, target, discovery.icmp.rest(), is_group, options)
        } else {
            self.solicited(interface, target, packet.source, is_group, options)
        };
        self.statistics.bad_header += u64::from(is_valid.is_none());
    }

    /// An advertisement. Only expected ones are stored; others may change what is known. `None`: it is invalid.
    fn advertised(
        &mut self,
        interface: usize,
        target: IpAddr,
        flags: u32,
        is_group: bool,
        options: &[u8],
    ) -> Option<()> {
        let solicited = flags & Neighbor::SOLICITED != 0;
        if target.is_multicast() || (solicited && is_group) {
            return None;
        }
        if let Some(mac) = LinkOption::find(LinkOption::TARGET, options)?
            && !self.interfaces[interface].has(target)
        {
            let overrides = flags & Neighbor::OVERRIDE != 0;
            self.learned(interface, target, Claim { mac, solicited, overrides, asks: false });
        }
        Some(())
    }

    /// A solicitation. The answer goes to the address that it names, so that it needs no entry of the cache. Attack: a
    /// source that is not on the link, of which there are any number. `None`: it is invalid.
    fn solicited(
        &mut self,
        interface: usize,
        target: IpAddr,
        source: IpAddr,
        is_group: bool,
        options: &[u8],
    ) -> Option<()> {
        let named = LinkOption::find(LinkOption::SOURCE, options)?;
        let is_probe = source.is_unspecified();
        if target.is_multicast()
            || (is_probe && (named.is_some() || !is_group))
            || named.is_some_and(|mac| !mac.is_unicast() || mac == self.interfaces[interface].mac)
        {
            return None;
        }
        if !self.interfaces[interface].has(target) {
            return Some(());
        }
        if is_probe {
            // Another host wants our address: it must not use it (RFC 4862, 5.4.3).
            self.advertise(interface, target, ALL_NODES.into(), None);
        } else if self.interfaces[interface].is_near(source) {
            if let Some(mac) = named {
                let claim = Claim { mac, solicited: false, overrides: true, asks: true };
                self.learned(interface, source, claim);
            }
            self.advertise(interface, target, source, named);
        } else if named.is_some() {
            self.advertise(interface, target, source, named);
        }
        Some(())
    }

    /// Says our link-layer address, to a host with a known one if there is a `mac`.
    pub(super) fn advertise(
        &mut self,
        interface: usize,
        target: IpAddr,
        to: IpAddr,
        mac: Option<MacAddress>,
    ) {
        let IpAddr::V6(address) = target else { return };
        let solicited = if to.is_multicast() { 0 } else { Neighbor::SOLICITED };
        let mut icmp = Icmp { kind: v6::NEIGHBOR_ADVERTISEMENT, ..Icmp::default() };
        icmp.set_rest(solicited | Neighbor::OVERRIDE);
        let option = self.link_option(interface, LinkOption::TARGET);
        let body = [U128::new(address.to_bits()).bytes(), &option].concat();
        self.send_discovery(interface, icmp, &body, (target, to), mac);
    }

    /// Asks for the link-layer address of a neighbour (RFC 4861, 7.2.2).
    pub(super) fn solicit(&mut self, interface: usize, target: Ipv6Addr) {
        let address = IpAddr::V6(target);
        let (Ok(source), Some(group)) = (self.source_for(address), solicited(address)) else { return };
        let icmp = Icmp { kind: v6::NEIGHBOR_SOLICITATION, ..Icmp::default() };
        let option = self.link_option(interface, LinkOption::SOURCE);
        let body = [U128::new(target.to_bits()).bytes(), &option].concat();
        self.send_discovery(interface, icmp, &body, (source, IpAddr::V6(group)), None);
    }

    /// An option with the interface's link-layer address.
    pub(super) fn link_option(&self, interface: usize, kind: u8) -> [u8; LinkOption::LEN] {
        let mut bytes = [0; LinkOption::LEN];
        let address = self.interfaces[interface].mac;
        bytes.copy_from_slice(LinkOption { kind, length: 1, address }.bytes());
        bytes
    }

    /// Sends a message of neighbour discovery, to a known link-layer address if there is a `mac`.
    pub(super) fn send_discovery(
        &mut self,
        interface: usize,
        icmp: Icmp,
        body: &[u8],
        (source, to): (IpAddr, IpAddr),
        mac: Option<MacAddress>,
    ) {
        let sum = pseudo(source, to, Protocol::ICMPV6, Icmp::LEN + body.len());
        let bytes = message(icmp, body, sum);
        let header = Network {
            source,
            destination: to,
            protocol: Protocol::ICMPV6,
            ttl: HOP_LIMIT,
            tos: 0,
            identification: 0,
            fragment: 0,
        };
        let found = match mac {
            Some(mac) => Lookup::Known(mac, false),
            None => self.neighbor(interface, to, Rank::Answer),
        };
        // An unknown neighbour that asked is asked itself first; without room the peer asks again.
        let _ = self.send_found(interface, (to, found), &header, &bytes);
    }

    /// The path carries less than a segment that we sent.
    pub(super) fn path_error(&mut self, quoted: &Packet<'_>, mtu: Option<usize>) {
        self.icmp_error(quoted, mtu, Meaning::Other);
    }

    /// An ICMP error about a packet that we sent, or that someone claims we did.
    fn icmp_error(&mut self, quoted: &Packet<'_>, mtu: Option<usize>, meaning: Meaning) {
        let Some([a, b, c, d, e, f, g, h]) = quoted.payload.first_chunk::<8>().copied() else { return };
        let local = SocketAddr::new(quoted.source, u16::from_be_bytes([a, b]));
        let remote = SocketAddr::new(quoted.destination, u16::from_be_bytes([c, d]));
        if quoted.protocol == Protocol::UDP {
            if let Some(index) = self.find_udp(local, false).filter(|_| meaning == Meaning::Refused)
                && let Some(Socket::Udp(udp)) = &mut self.slots[index as usize].socket
            {
                udp.refused = true;
                self.queue_event(index);
            }
            return;
        }
        let Some(index) = self.demux.find(&Tuple { local, remote }) else { return };
        if mtu.is_some() && self.divert(index, quoted, &[], mtu) {
            return;
        }
        let seq = u32::from_be_bytes([e, f, g, h]);
        let ip = Network::headers_len(local.ip()) - Ethernet::LEN;
        let known = self.with(index, |connection, cx| {
            // Attack: errors about segments that were never sent (RFC 5927, 4.1).
            if !connection.is_outstanding(seq) {
                return false;
            }
            if let Some(mtu) = mtu {
                connection.set_path_mss(cx.now, (mtu - ip - HEADER_LEN).max(MIN_MSS as usize) as u64);
                connection.resend_syn_without_data();
            } else if connection.is_opening() {
                // RFC 5461, 4.1: as most stacks, before there is something to lose.
                match meaning {
                    Meaning::Refused => connection.end_with(Some(ConnectionError::Refused)),
                    Meaning::Unreachable => connection.end_with(Some(ConnectionError::Unreachable)),
                    Meaning::Other => {}
                }
            } else if meaning == Meaning::Unreachable && connection.is_embryo() {
                // As in Linux: our SYN-ACKs don't arrive. The peer may try again.
                connection.end_with(None);
            }
            true
        });
        self.statistics.out_of_window_icmps += u64::from(known == Some(false));
    }

    /// Tells a sender that nobody receives its packet.
    pub(super) fn unreachable(&mut self, packet: &Packet<'_>, code: (u8, u8)) {
        // Errors are not sent about errors (RFC 1122, 3.2.2).
        if matches!(packet.protocol, Protocol::ICMP | Protocol::ICMPV6) || !self.permits_error() {
            return;
        }
        let source = packet.destination;
        let v4 = source.is_ipv4();
        let quoted = &packet.bytes[..packet.bytes.len().min(if v4 { QUOTED_V4 } else { QUOTED_V6 })];
        let (kind, code) = if v4 { (v4::UNREACHABLE, code.0) } else { (v6::UNREACHABLE, code.1) };
        let protocol = if v4 { Protocol::ICMP } else { Protocol::ICMPV6 };
        let len = Icmp::LEN + quoted.len();
        let sum = if v4 { Sum::new() } else { pseudo(source, packet.source, protocol, len) };
        let header = Icmp { kind, code, identifier: U16::ZERO, ..Icmp::default() };
        let bytes = message(header, quoted, sum);
        let to = answer(packet, source, protocol, self.settings.ip_default_ttl);
        let _ = self.send_packet(to.source, to.destination, protocol, &bytes);
    }
}

impl<'a> Packet<'a> {
    /// The packet that an ICMP error quotes, of which only the first bytes are there.
    fn parse_quoted_v4(bytes: &'a [u8]) -> Option<Packet<'a>> {
        let packet =
            ringway_wire::ipv4::Packet::parse(bytes).filter(|packet| !packet.header.is_later_fragment())?;
        Some(Packet {
            source: packet.header.source_addr().into(),
            destination: packet.header.destination_addr().into(),
            protocol: packet.header.protocol,
            tos: 0,
            ttl: 0,
            payload: packet.payload,
            fragment: None,
            bytes,
        })
    }

    fn parse_quoted_v6(bytes: &'a [u8]) -> Option<Packet<'a>> {
        let packet = ipv6::Packet::parse(bytes)?;
        let upper = packet.upper().filter(|upper| !upper.fragment)?;
        Some(Packet {
            source: packet.header.source_addr().into(),
            destination: packet.header.destination_addr().into(),
            protocol: upper.protocol,
            tos: 0,
            ttl: 0,
            payload: upper.payload,
            fragment: None,
            bytes,
        })
    }
}
