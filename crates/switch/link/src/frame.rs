//! What a link carries.

use ringway_frame::packet::Packet;
use ringway_wire::flow::Flow;
use ringway_wire::{EtherType, Ethernet, Header, Ipv4, Ipv6, vlan};

/// A frame on a link.
pub trait Frame: Sized {
    /// Bytes on the wire, without preamble and frame check sequence.
    fn len(&self) -> usize;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the link layer's header, which the MTU does not include.
    fn link_header(&self) -> usize;

    /// A second frame of the same content; `None` without memory for it.
    fn duplicate(&mut self) -> Option<Self>;

    /// Inverts one bit; `bit` is less than eight times [`Frame::len`].
    fn invert(&mut self, bit: usize);

    /// Sets Congestion Experienced (RFC 3168, 5) if the transport is capable of ECN; returns whether it is.
    fn mark(&mut self) -> bool;

    /// A hash of its flow.
    fn flow(&self, key: u64) -> u64;
}

/// Offset of the IP header: the network header's if it is known, otherwise behind an Ethernet header and its tags.
fn ip_offset(packet: &Packet) -> Option<usize> {
    if let Some(at) = packet.network_header() {
        return usize::try_from(at).ok();
    }
    let (ethernet, payload) = Ethernet::split(packet.data())?;
    let inner = vlan::untag(ethernet.ethertype, payload)?;
    let is_ip = matches!(inner.ethertype, EtherType::IPV4 | EtherType::IPV6);
    is_ip.then(|| packet.len() - inner.payload.len())
}

/// Sets Congestion Experienced (RFC 3168, 5) in an IP packet if its transport is capable of ECN; returns whether it is.
pub fn mark_ip(packet: &mut [u8]) -> bool {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => match Ipv4::parse_mut(packet) {
            Some((header, ..)) if header.tos & 3 != 0 => {
                header.set_tos(header.tos | 3);
                true
            }
            _ => false,
        },
        Some(6) => match Ipv6::of_mut(packet) {
            Some(header) if header.traffic_class() & 3 != 0 => {
                header.set_traffic_class(header.traffic_class() | 3);
                true
            }
            _ => false,
        },
        _ => false,
    }
}

impl Frame for Packet {
    fn len(&self) -> usize {
        Packet::len(self)
    }

    fn link_header(&self) -> usize {
        ip_offset(self).unwrap_or(Ethernet::LEN)
    }

    fn duplicate(&mut self) -> Option<Packet> {
        Some(self.clone())
    }

    fn invert(&mut self, bit: usize) {
        if let Some(byte) = self.data_mut().get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
    }

    fn mark(&mut self) -> bool {
        let Some(at) = ip_offset(self) else { return false };
        self.data_mut().get_mut(at..).is_some_and(mark_ip)
    }

    fn flow(&self, key: u64) -> u64 {
        let bytes = ip_offset(self).and_then(|at| self.data().get(at..));
        bytes
            .and_then(Flow::of_ip)
            .or_else(|| Flow::parse(self.data()))
            .map_or(0, |flow| flow.symmetric_hash(key))
    }
}
