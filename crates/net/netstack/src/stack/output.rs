//! Frames that don't belong to a connection: answers, datagrams, requests for neighbours.

use super::{Interface, QUEUE, SocketError, Stack};
use crate::connection::Reset;
use crate::connection::options::{OPTIONS, Options};
use crate::demux::Tuple;
use crate::net::neighbor::{Lookup, Rank};
use crate::net::{Network, pseudo};
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use ringway_frame::Offload;
use ringway_wire::ipv4::{self, MORE_FRAGMENTS};
use ringway_wire::tcp::Flags;
use ringway_wire::{Arp, EtherType, Ethernet, Header, MacAddress, Protocol, Tcp, U16, U32, Udp, arp, ipv6};

/// The link-layer address of a group or broadcast address.
pub(super) fn group_mac(interface: &Interface, address: IpAddr) -> Option<MacAddress> {
    match address {
        IpAddr::V4(v4) if v4.is_multicast() => Some(ipv4::multicast_mac(v4)),
        IpAddr::V4(v4) => {
            (v4.is_broadcast() || interface.is_broadcast(address)).then_some(MacAddress::BROADCAST)
        }
        IpAddr::V6(v6) => v6.is_multicast().then(|| ipv6::multicast_mac(v6)),
    }
}

/// A UDP datagram, its checksum included; `None` if it is too long.
pub(super) fn datagram(local: SocketAddr, remote: SocketAddr, bytes: &[u8]) -> Option<Vec<u8>> {
    let len = Udp::LEN + bytes.len();
    if len > 65_535 - ipv4::HEADER_LEN {
        return None;
    }
    let header = Udp {
        source_port: U16::new(local.port()),
        destination_port: U16::new(remote.port()),
        length: U16::new(len as u16),
        ..Udp::default()
    };
    let mut packet = Vec::with_capacity(len);
    packet.extend_from_slice(header.bytes());
    packet.extend_from_slice(bytes);
    Udp::fill_checksum(&mut packet, pseudo(local.ip(), remote.ip(), Protocol::UDP, len))?;
    Some(packet)
}

impl Stack {
    /// Queues a frame. `false`: it is dropped.
    pub(super) fn enqueue(&mut self, interface: usize, frame: Vec<u8>) -> bool {
        if frame.starts_with(&self.interfaces[interface].mac.0) {
            return self.loop_back(interface, frame, Offload::default());
        }
        let queue = &mut self.interfaces[interface].queue;
        let room = queue.len() < QUEUE;
        if room {
            queue.push_back(frame);
        } else {
            self.statistics.queue_full += 1;
        }
        room
    }

    /// Keeps a frame to an own address. `false`: it is dropped.
    pub(super) fn loop_back(&mut self, interface: usize, frame: Vec<u8>, offload: Offload) -> bool {
        let room = self.looped.len() < QUEUE;
        if room {
            self.looped.push_back((interface, frame, offload));
        } else {
            self.statistics.queue_full += 1;
        }
        room
    }

    pub(super) fn enqueue_arp(&mut self, interface: usize, to: MacAddress, packet: &Arp) {
        self.statistics.arp_out += 1;
        let source = self.interfaces[interface].mac;
        let ethernet = Ethernet { destination: to, source, ethertype: EtherType::ARP };
        self.enqueue(interface, [ethernet.bytes(), packet.bytes()].concat());
    }

    /// Asks for a neighbour's link-layer address.
    pub(super) fn ask(&mut self, interface: usize, address: IpAddr) {
        match address {
            IpAddr::V4(target) => {
                let Ok(IpAddr::V4(source)) = self.source_for(address) else { return };
                let request = Arp {
                    sender_hardware: self.interfaces[interface].mac,
                    sender_protocol: U32::new(source.to_bits()),
                    target_protocol: U32::new(target.to_bits()),
                    ..Arp::new(arp::REQUEST)
                };
                self.enqueue_arp(interface, MacAddress::BROADCAST, &request);
            }
            IpAddr::V6(target) => self.solicit(interface, target),
        }
    }

    /// Sends an upper-layer packet, in fragments if it is longer than the interface's MTU.
    pub(super) fn send_packet(
        &mut self,
        source: IpAddr,
        destination: IpAddr,
        protocol: Protocol,
        payload: &[u8],
    ) -> Result<(), SocketError> {
        // RFC 1122, 3.2.1.3: a loopback address must not appear outside a host.
        let stays = !source.is_loopback() || destination.is_loopback();
        let Some(hop) = self.hop(destination).filter(|_| stays) else {
            self.statistics.no_route += 1;
            return Err(SocketError::Unreachable);
        };
        let port = &mut self.interfaces[hop.interface];
        port.identification = port.identification.wrapping_add(1);
        let header = Network {
            source,
            destination,
            protocol,
            ttl: self.settings.ip_default_ttl,
            tos: 0,
            identification: port.identification,
            fragment: 0,
        };
        let room = port.mtu - (Network::headers_len(source) - Ethernet::LEN);
        if payload.len() <= room {
            return self.send_frame(hop.interface, hop.next, &header, payload);
        }
        let size = if source.is_ipv4() { room & !7 } else { (room - ipv6::Fragment::LEN) & !7 };
        for (number, part) in payload.chunks(size).enumerate() {
            let (offset, more) = (number * size, (number + 1) * size < payload.len());
            if source.is_ipv4() {
                let flags = (offset / 8) as u16 | if more { MORE_FRAGMENTS } else { 0 };
                self.send_frame(hop.interface, hop.next, &Network { fragment: flags, ..header }, part)?;
            } else {
                let fragment = ipv6::Fragment {
                    next_header: protocol,
                    reserved: 0,
                    offset: U16::new(offset as u16 | u16::from(more)),
                    identification: U32::new(header.identification.into()),
                };
                let header = Network { protocol: Protocol::FRAGMENT, ..header };
                let packet = [fragment.bytes(), part].concat();
                self.send_frame(hop.interface, hop.next, &header, &packet)?;
            }
        }
        Ok(())
    }

    /// Sends one IP packet to a neighbour, once its link-layer address is known.
    pub(super) fn send_frame(
        &mut self,
        interface: usize,
        next: IpAddr,
        header: &Network,
        payload: &[u8],
    ) -> Result<(), SocketError> {
        let found = self.neighbor(interface, next, Rank::Answer);
        self.send_found(interface, (next, found), header, payload)
    }

    /// Sends a frame to a neighbour that was looked up.
    pub(super) fn send_found(
        &mut self,
        interface: usize,
        (next, found): (IpAddr, Lookup),
        header: &Network,
        payload: &[u8],
    ) -> Result<(), SocketError> {
        let to = if let Lookup::Known(mac, _) = found { mac } else { MacAddress::default() };
        let len = Network::headers_len(header.source);
        let mut frame = alloc::vec![0; len + payload.len()];
        header.write(self.interfaces[interface].mac, to, payload.len(), &mut frame);
        frame[len..].copy_from_slice(payload);
        let sent = match found {
            Lookup::Known(..) => self.enqueue(interface, frame),
            Lookup::Pending(_) => self.interfaces[interface].neighbors.wait(next, frame),
            Lookup::Full => false,
        };
        if sent { Ok(()) } else { Err(SocketError::WouldBlock) }
    }

    /// Permits so many ICMP errors and resets a second (Linux's `icmp_msgs_per_sec`). Attack: a scan, or
    /// spoofed packets, would make us flood others.
    pub(super) fn permits_error(&mut self) -> bool {
        const A_SECOND: u32 = 1000;
        let second = self.now / crate::settings::SECOND;
        if self.errors.0 != second {
            self.errors = (second, 0);
        }
        self.errors.1 += 1;
        let permitted = self.errors.1 <= A_SECOND;
        self.statistics.limited += u64::from(!permitted);
        permitted
    }

    pub(super) fn send_reset(&mut self, tuple: &Tuple, reset: Reset) {
        if !self.permits_error() {
            return;
        }
        let flags = if reset.ack.is_some() { Flags::RST.with(Flags::ACK) } else { Flags::RST };
        let tcp = Tcp {
            sequence_number: U32::new(reset.seq),
            acknowledgment_number: U32::new(reset.ack.unwrap_or(0)),
            flags,
            ..Tcp::EMPTY
        };
        let options = Options { timestamps: reset.timestamps, ..Options::default() };
        let sent = self.send_control(tuple, tcp, &options);
        self.statistics.resets_sent += u64::from(sent);
    }

    /// Sends a segment without bytes that is of no connection. Returns whether it could be.
    pub(super) fn send_control(&mut self, tuple: &Tuple, tcp: Tcp, chosen: &Options) -> bool {
        let (local, remote) = (tuple.local.ip(), tuple.remote.ip());
        let mut options = [0; OPTIONS];
        let len = chosen.emit(&mut options);
        let tcp = Tcp {
            source_port: U16::new(tuple.local.port()),
            destination_port: U16::new(tuple.remote.port()),
            data_offset: (((Tcp::LEN + len) / 4) << 4) as u8,
            ..tcp
        };
        let mut segment = [tcp.bytes(), &options[..len]].concat();
        let pseudo = pseudo(local, remote, Protocol::TCP, segment.len());
        Tcp::fill_checksum(&mut segment, pseudo).is_some()
            && self.send_packet(local, remote, Protocol::TCP, &segment).is_ok()
    }
}
