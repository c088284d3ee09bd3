//! Received frames, layer by layer.

use super::{Interface, Socket, Stack};
use crate::connection::options::Options;
use crate::connection::payload::Payload;
use crate::connection::{Segment, State};
use crate::demux::Tuple;
use crate::net::ip::Packet;
use crate::net::neighbor::Claim;
use crate::net::{Network, pseudo};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use ringway_frame::Offload;
use ringway_mem::Span;
use ringway_wire::icmp::v6;
use ringway_wire::tcp::Flags;
use ringway_wire::{Arp, EtherType, Ethernet, Header, Protocol, Tcp, Udp, arp, bootp};

/// The CE codepoint (RFC 3168, 5).
const CE: u8 = 3;

/// How a packet arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub interface: usize,
    /// Whether the frame was sent to a group.
    pub group: bool,
    /// Whether the checksum needs no check.
    pub trusted: bool,
    /// Whether this stack sent the packet.
    pub looped: bool,
    /// Whether it came in fragments.
    pub fragmented: bool,
}

impl Stack {
    /// Receives one frame.
    pub fn receive(&mut self, now: u64, interface: usize, frame: &[u8], offload: Offload) {
        self.advance(now);
        self.input(interface, frame, offload, false);
    }

    /// Receives the frames to own addresses.
    pub(super) fn receive_looped(&mut self) {
        while let Some((interface, frame, offload)) = self.looped.pop_front() {
            self.input(interface, &frame, offload, true);
        }
    }

    fn input(&mut self, interface: usize, frame: &[u8], offload: Offload, looped: bool) {
        let Some(port) = self.interfaces.get(interface) else { return };
        self.statistics.frames_in += 1;
        let Some((ethernet, payload)) = Ethernet::split(frame) else {
            self.statistics.bad_header += 1;
            return;
        };
        if ethernet.destination != port.mac && !ethernet.destination.is_group() {
            self.statistics.not_for_us += 1;
            return;
        }
        if ethernet.source.is_group() {
            self.statistics.bad_source += 1;
            return;
        }
        let arrival = Arrival {
            interface,
            group: ethernet.destination.is_group(),
            // A checksum that is still to be filled was never wrong: the frame did not leave this machine.
            trusted: offload.needs_checksum() || offload.is_checked(),
            looped,
            fragmented: false,
        };
        let is_ip = matches!(ethernet.ethertype, EtherType::IPV4 | EtherType::IPV6);
        self.statistics.packets_in += u64::from(is_ip);
        match ethernet.ethertype {
            EtherType::ARP => self.arp(interface, payload),
            EtherType::IPV4 => match Packet::parse_v4(payload) {
                Some(packet) => self.packet(arrival, &packet),
                None => self.statistics.bad_header += 1,
            },
            EtherType::IPV6 => match Packet::parse_v6(payload) {
                Some(packet) => self.packet(arrival, &packet),
                None => self.statistics.bad_header += 1,
            },
            _ => self.statistics.unknown_protocol += 1,
        }
    }

    /// RFC 826.
    fn arp(&mut self, interface: usize, payload: &[u8]) {
        let Some(packet) = Arp::parse(payload) else {
            self.statistics.bad_header += 1;
            return;
        };
        let sender = IpAddr::V4(packet.sender_protocol.get().into());
        let target = IpAddr::V4(packet.target_protocol.get().into());
        let port = &self.interfaces[interface];
        let own = port.has(target);
        // Attack: a reply to the address of a group goes to all hosts. A probe has no address yet (RFC 5227, 2.1.1).
        // As in Linux, a host that has our address is not answered.
        let is_answerable = packet.sender_hardware.is_unicast() && packet.sender_hardware != port.mac;
        if !is_answerable || !(sender.is_unspecified() || self.is_host(interface, sender)) {
            self.statistics.bad_source += 1;
            return;
        }
        if port.is_near(sender) {
            let claim = Claim {
                mac: packet.sender_hardware,
                solicited: own && packet.operation.get() == arp::REPLY,
                overrides: true,
                asks: own && packet.operation.get() == arp::REQUEST,
            };
            self.learned(interface, sender, claim);
        }
        if own && packet.operation.get() == arp::REQUEST {
            let mac = self.interfaces[interface].mac;
            let reply = Arp {
                sender_hardware: mac,
                sender_protocol: packet.target_protocol,
                target_hardware: packet.sender_hardware,
                target_protocol: packet.sender_protocol,
                ..Arp::new(arp::REPLY)
            };
            self.enqueue_arp(interface, packet.sender_hardware, &reply);
        }
    }

    fn packet(&mut self, arrival: Arrival, packet: &Packet<'_>) {
        if !self.is_for_us(arrival, packet.destination) && !self.is_for_another(arrival, packet) {
            self.statistics.not_for_us += 1;
            return;
        }
        if !self.may_come_from(arrival, packet) {
            self.statistics.bad_source += 1;
            return;
        }
        let Some((key, offset, more)) = packet.fragment else {
            return self.upper(arrival, packet);
        };
        if let Some(whole) = self.reassembly.add(self.now, key, offset, more, packet.payload) {
            let whole = Packet { payload: &whole, fragment: None, ..packet.clone() };
            // The checksum covers the whole packet, so no device has verified it.
            self.upper(Arrival { trusted: false, fragmented: true, ..arrival }, &whole);
        }
    }

    /// Whether a packet may have its source.
    fn may_come_from(&self, arrival: Arrival, packet: &Packet<'_>) -> bool {
        let Arrival { interface, looped, .. } = arrival;
        match packet.source {
            source if looped => self.is_own(interface, source),
            // Who has no address yet asks all hosts, of an IPv4 network for one, of an IPv6 network whether it is free.
            IpAddr::V4(v4) if v4.octets()[0] == 0 => packet.destination == Ipv4Addr::BROADCAST,
            IpAddr::V6(v6) if v6.is_unspecified() => {
                let asks = packet.payload.first() == Some(&v6::NEIGHBOR_SOLICITATION);
                packet.protocol == Protocol::ICMPV6 && asks && packet.fragment.is_none()
            }
            source => self.is_host(interface, source),
        }
    }

    /// Whether an address, seen from an interface, is one of this host.
    pub(super) fn is_own(&self, interface: usize, address: IpAddr) -> bool {
        // Two links may have the same link-local address.
        let is_local = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let mut interfaces = self.interfaces.iter().enumerate();
        address.is_loopback()
            || interfaces.any(|(number, port)| (number == interface || !is_local) && port.has(address))
    }

    /// Whether an address, seen from an interface, can be that of another host (RFC 1122, 3.2.1.3; RFC 4291, 2.5.2,
    /// 2.5.3 and 2.7). As in Linux, it may be of class E, and not mapped from IPv4. Attack: what is sent to another
    /// one goes to all hosts of a network, or to ourselves.
    pub(super) fn is_host(&self, interface: usize, address: IpAddr) -> bool {
        let is_unicast = match address {
            IpAddr::V4(v4) => ringway_wire::ipv4::is_host(v4),
            IpAddr::V6(v6) => ringway_wire::ipv6::is_host(v6),
        };
        let is_directed = |port: &Interface| port.is_broadcast(address);
        is_unicast && !self.is_own(interface, address) && !self.interfaces.iter().any(is_directed)
    }

    /// Whether a destination is ours: one of the interface's addresses, or a group that it is in.
    pub(super) fn is_for_us(
        &self,
        Arrival { interface, group, looped, .. }: Arrival,
        destination: IpAddr,
    ) -> bool {
        let port = &self.interfaces[interface];
        if port.has(destination) || (looped && destination.is_loopback()) {
            return true;
        }
        match destination {
            IpAddr::V4(address) => {
                let directed = port.is_broadcast(destination);
                group && (address.is_broadcast() || directed || address.octets() == [224, 0, 0, 1])
            }
            IpAddr::V6(address) => {
                let all_nodes = address.to_bits() == 0xff02 << 112 | 1;
                let solicited =
                    port.addresses.iter().any(|cidr| super::icmp::solicited(cidr.address) == Some(address));
                group && (all_nodes || solicited || port.is_probing(address))
            }
        }
    }

    /// Whether our sockets serve a packet in place of the host that it is for.
    pub(super) fn is_for_another(&self, arrival: Arrival, packet: &Packet<'_>) -> bool {
        let has_sockets = matches!(packet.protocol, Protocol::TCP | Protocol::UDP);
        let serves = self.interfaces[arrival.interface].serves_all && has_sockets;
        serves && !arrival.group && !arrival.looped && self.is_host(arrival.interface, packet.destination)
    }

    /// Whether [`Stack::receive`] would give a TCP or UDP packet to a socket at its destination: link-layer address,
    /// source, destination and checksum are right. Of a fragment the checksum is unknown: it is one of UDP.
    #[must_use]
    pub fn admits(&self, interface: usize, frame: &[u8], offload: Offload) -> bool {
        let trusted = offload.needs_checksum() || offload.is_checked();
        self.packet_to_socket(interface, frame).is_some_and(|packet| {
            let is_udp = packet.protocol == Protocol::UDP;
            if packet.fragment.is_some() {
                return is_udp;
            }
            let unsummed = is_udp
                && packet.source.is_ipv4()
                && Udp::of(packet.payload).is_some_and(|udp| udp.checksum.get() == 0);
            let mut sum = pseudo(packet.source, packet.destination, packet.protocol, packet.payload.len());
            trusted || unsummed || {
                sum.add(packet.payload);
                sum.is_valid()
            }
        })
    }

    /// The packet in a frame if it is of TCP or UDP, is for a socket here, and may have its source.
    fn packet_to_socket<'a>(&self, interface: usize, frame: &'a [u8]) -> Option<Packet<'a>> {
        let port = self.interfaces.get(interface)?;
        let (ethernet, bytes) = Ethernet::split(frame)?;
        let packet = match ethernet.ethertype {
            EtherType::IPV4 => Packet::parse_v4(bytes)?,
            EtherType::IPV6 => Packet::parse_v6(bytes)?,
            _ => return None,
        };
        let arrival = Arrival { interface, group: false, trusted: false, looped: false, fragmented: false };
        let is_ours = self.is_for_us(arrival, packet.destination) || self.is_for_another(arrival, &packet);
        let is_right = ethernet.destination == port.mac
            && !ethernet.source.is_group()
            && matches!(packet.protocol, Protocol::TCP | Protocol::UDP)
            && is_ours
            && self.may_come_from(arrival, &packet);
        is_right.then_some(packet)
    }

    /// Answers a packet for another host, to which there is no way, as a router does: host or address unreachable. It
    /// is answered only if it could have been received.
    pub fn reject(&mut self, now: u64, interface: usize, frame: &[u8]) {
        self.advance(now);
        let packet = self.packet_to_socket(interface, frame);
        if let Some(packet) = packet.filter(|packet| packet.fragment.is_none()) {
            self.unreachable(&packet, super::icmp::HOST_UNREACHABLE);
        }
    }

    fn upper(&mut self, arrival: Arrival, packet: &Packet<'_>) {
        let Arrival { interface, group, trusted, .. } = arrival;
        let valid = |protocol: Protocol| {
            let mut sum = pseudo(packet.source, packet.destination, protocol, packet.payload.len());
            sum.add(packet.payload);
            sum.is_valid()
        };
        match packet.protocol {
            Protocol::TCP if group => self.statistics.not_for_us += 1,
            Protocol::TCP if trusted || valid(Protocol::TCP) => self.tcp(interface, packet, &[]),
            Protocol::UDP => {
                let unsummed = packet.source.is_ipv4()
                    && Udp::of(packet.payload).is_some_and(|udp| udp.checksum.get() == 0);
                if trusted || unsummed || valid(Protocol::UDP) {
                    self.udp(interface, packet, group);
                } else {
                    self.statistics.bad_checksum += 1;
                }
            }
            Protocol::ICMP if packet.source.is_ipv4() => self.icmp_v4(interface, packet, group),
            Protocol::ICMPV6 if packet.source.is_ipv6() && valid(Protocol::ICMPV6) => {
                self.icmp_v6(arrival, packet);
            }
            Protocol::TCP | Protocol::ICMPV6 => {
                self.statistics.bad_checksum += 1;
                self.statistics.bad_segments += u64::from(packet.protocol == Protocol::TCP);
            }
            _ => {
                self.statistics.unknown_protocol += 1;
                if !group {
                    self.unreachable(packet, super::icmp::PROTOCOL_UNREACHABLE);
                }
            }
        }
    }

    /// `rest`: the bytes of the packet after those of its payload.
    pub(super) fn tcp(&mut self, interface: usize, packet: &Packet<'_>, rest: &[Span<'_>]) {
        self.statistics.segments_in += 1;
        let Some((tuple, segment)) = parse_segment(packet, rest) else {
            self.statistics.bad_header += 1;
            return;
        };
        if let Some(index) = self.demux.find(&tuple) {
            if self.divert(index, packet, rest, None) {
                return;
            }
            if self.is_reused(index, &segment) {
                self.with(index, |connection, _| connection.end_with(None));
            } else {
                return self.segment(interface, index, tuple, &segment);
            }
        }
        if self.is_diverted_stray(interface, (packet, rest), &tuple, &segment) {
            return;
        }
        match self.find_listener(tuple.local) {
            Some(listener) => self.segment_for_listener(listener, tuple, &segment),
            None => {
                self.statistics.no_socket += 1;
                if let Some(reset) = segment.reset() {
                    self.send_reset(&tuple, reset);
                }
            }
        }
    }

    /// Whether a SYN begins a new connection of a socket in TIME-WAIT (RFC 9293, 3.6.1; RFC 6191).
    pub(super) fn is_reused(&self, index: u32, segment: &Segment<'_>) -> bool {
        let Some(Socket::Tcp(connection)) = &self.slots[index as usize].socket else { return false };
        connection.state == State::TimeWait
            && segment.flags.has(Flags::SYN)
            && !segment.flags.has(Flags::ACK)
            && !segment.flags.has(Flags::RST)
            && connection.is_newer(segment)
    }

    fn segment(&mut self, interface: usize, index: u32, tuple: Tuple, segment: &Segment<'_>) {
        if let Some(Socket::Tcp(connection)) = &self.slots[index as usize].socket
            && let (State::SynReceived, Some(parent)) = (connection.state, connection.listener)
            && segment.flags.has(Flags::ACK)
            && !segment.flags.has(Flags::RST)
            && self.listener_mut(parent).is_some_and(|listener| listener.is_full())
        {
            // The peer's SYN-ACK timer asks again once there may be room.
            self.statistics.listen_overflows += 1;
            return;
        }
        let answer = self.with(index, |connection, cx| {
            let before = connection.progress();
            let reset = connection.segment(cx, segment);
            (reset, connection.progress() > before)
        });
        let Some((reset, advanced)) = answer else { return };
        if segment.flags.has(Flags::SYN) {
            self.remember_fast_open(index);
        }
        if advanced && let Some(hop) = self.hop(tuple.remote.ip()) {
            self.interfaces[interface].neighbors.confirm(self.now, hop.next);
        }
        if let Some(reset) = reset {
            self.send_reset(&tuple, reset);
        }
    }

    fn udp(&mut self, interface: usize, packet: &Packet<'_>, group: bool) {
        let Some((udp, rest)) = Udp::split(packet.payload) else {
            self.statistics.bad_header += 1;
            return;
        };
        let Some(payload) =
            usize::from(udp.length.get()).checked_sub(Udp::LEN).and_then(|len| rest.get(..len))
        else {
            self.statistics.bad_header += 1;
            return;
        };
        if udp.destination_port.get() == bootp::CLIENT_PORT && self.dhcp(interface, payload) {
            return;
        }
        let local = SocketAddr::new(packet.destination, udp.destination_port.get());
        let from = SocketAddr::new(packet.source, udp.source_port.get());
        let Some(index) = self.find_udp(local, group) else {
            self.statistics.no_socket += 1;
            self.statistics.no_udp_socket += 1;
            if !group {
                self.unreachable(packet, super::icmp::PORT_UNREACHABLE);
            }
            return;
        };
        if let Some(Socket::Udp(socket)) = &mut self.slots[index as usize].socket {
            if socket.push(from, payload) {
                self.statistics.datagrams_in += 1;
                self.queue_event(index);
            } else {
                self.statistics.udp_dropped += 1;
            }
        }
    }

    pub(super) fn find_udp(&self, local: SocketAddr, group: bool) -> Option<u32> {
        let list = self.datagrams.get(&local.port())?;
        let of = |index: u32| match &self.slots[index as usize].socket {
            Some(Socket::Udp(udp)) => Some(udp.local.ip()),
            _ => None,
        };
        let exact = list.iter().copied().find(|&index| of(index) == Some(local.ip()));
        let any = |ip: IpAddr| ip.is_ipv4() == local.is_ipv4() && (ip.is_unspecified() || group);
        exact.or_else(|| list.iter().copied().find(|&index| of(index).is_some_and(any)))
    }
}

/// The segment in a packet of TCP, whose last bytes are in `rest`, and its addresses.
#[inline(always)]
pub(super) fn parse_segment<'a>(packet: &Packet<'a>, rest: &'a [Span<'a>]) -> Option<(Tuple, Segment<'a>)> {
    let (tcp, options, payload) = Tcp::parse(packet.payload)?;
    let tuple = Tuple {
        local: SocketAddr::new(packet.destination, tcp.destination_port.get()),
        remote: SocketAddr::new(packet.source, tcp.source_port.get()),
    };
    let segment = Segment {
        seq: tcp.sequence_number.get(),
        ack: tcp.acknowledgment_number.get(),
        flags: tcp.flags,
        window: tcp.window.get(),
        options: Options::parse(options),
        payload: Payload::new(payload, rest),
        ect: packet.tos & 3 != 0,
        ce: packet.tos & 3 == CE,
    };
    Some((tuple, segment))
}

/// The headers of a packet that is answered, exchanged.
pub(super) fn answer(packet: &Packet<'_>, source: IpAddr, protocol: Protocol, ttl: u8) -> Network {
    Network { source, destination: packet.source, protocol, ttl, tos: 0, identification: 0, fragment: 0 }
}
