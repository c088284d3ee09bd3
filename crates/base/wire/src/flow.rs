//! The flow of a frame, and its hash, for choosing queues and balancing load.
//!
//! All fragments of a packet belong to one flow, without ports, so that they reach the same destination.

use crate::{EtherType, Ethernet, Header, Protocol, U16, ipv4, ipv6, vlan};

/// One end of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint {
    /// The address: IPv6, or IPv4 in the first four bytes, or MAC in the first six.
    pub address: [u8; 16],
    /// The port; 0 if there is none.
    pub port: u16,
}

/// A flow: the two endpoints in a frame's headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Type of the addresses: IPv4, IPv6, or for MAC addresses the frame's EtherType.
    pub ethertype: EtherType,
    /// The upper-layer protocol of IP, otherwise 0.
    pub protocol: Protocol,
    /// The sender.
    pub source: Endpoint,
    /// The receiver.
    pub destination: Endpoint,
}

impl Flow {
    /// Parses the first bytes of a frame, at least 64 of them if the frame is that long. Truncated or invalid
    /// headers count as absent. `None` if the frame is shorter than an Ethernet header.
    #[inline]
    pub fn parse(head: &[u8]) -> Option<Flow> {
        let (frame, payload) = Ethernet::split(head)?;
        let flow = match vlan::untag(frame.ethertype, payload) {
            Some(inner) if inner.ethertype == EtherType::IPV4 => ipv4_flow(inner.payload),
            Some(inner) if inner.ethertype == EtherType::IPV6 => ipv6_flow(inner.payload),
            _ => None,
        };
        Some(flow.unwrap_or_else(|| {
            let mut flow = Flow { ethertype: frame.ethertype, ..Flow::default() };
            flow.source.address[..6].copy_from_slice(&frame.source.0);
            flow.destination.address[..6].copy_from_slice(&frame.destination.0);
            flow
        }))
    }

    /// The flow of an IP packet. `None`: it has no complete IP header.
    pub fn of_ip(packet: &[u8]) -> Option<Flow> {
        match packet.first()? >> 4 {
            4 => ipv4_flow(packet),
            6 => ipv6_flow(packet),
            _ => None,
        }
    }

    /// The flow in the opposite direction.
    #[inline]
    pub fn reversed(self) -> Flow {
        Flow { source: self.destination, destination: self.source, ..self }
    }

    /// A hash that is equal for both directions. Attack: a sender that knows `key` can direct all its flows
    /// to one queue, so `key` must be random.
    #[inline]
    pub fn symmetric_hash(&self, key: u64) -> u64 {
        let kind = u64::from(self.ethertype.get()) << 8 | u64::from(self.protocol.0);
        let (source, destination) = (endpoint_hash(&self.source, key), endpoint_hash(&self.destination, key));
        mix(source.wrapping_add(destination) ^ kind, source ^ destination ^ key ^ MIX[3])
    }
}

/// Fractions of the square roots of 2, 3, 5 and 7, as random bits.
const MIX: [u64; 4] =
    [0x6a09_e667_f3bc_c909, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b, 0xa54f_f53a_5f1d_36f1];

/// Folds both halves of a product. Every bit of either factor affects every bit of the result.
#[inline]
fn mix(a: u64, b: u64) -> u64 {
    let product = u128::from(a ^ MIX[0]) * u128::from(b ^ MIX[1]);
    product as u64 ^ (product >> 64) as u64
}

#[inline]
fn endpoint_hash(end: &Endpoint, key: u64) -> u64 {
    let [high, low] = [0, 8].map(|at| {
        let mut half = [0; 8];
        half.copy_from_slice(&end.address[at..at + 8]);
        u64::from_le_bytes(half)
    });
    mix(high ^ key, low ^ u64::from(end.port) ^ MIX[2])
}

#[inline]
fn ports(bytes: &[u8]) -> (u16, u16) {
    <[U16; 2]>::of(bytes).map_or((0, 0), |[source, destination]| (source.get(), destination.get()))
}

#[inline]
fn ipv4_flow(bytes: &[u8]) -> Option<Flow> {
    let packet = ipv4::Packet::parse(bytes)?;
    let (header, protocol) = (packet.header, packet.header.protocol);
    let (from, to) =
        if protocol.has_ports() && !header.is_fragment() { ports(packet.payload) } else { (0, 0) };
    let mut flow = Flow { ethertype: EtherType::IPV4, protocol, ..Flow::default() };
    flow.source.address[..4].copy_from_slice(&header.source.to_bytes());
    flow.destination.address[..4].copy_from_slice(&header.destination.to_bytes());
    (flow.source.port, flow.destination.port) = (from, to);
    Some(flow)
}

#[inline]
fn ipv6_flow(bytes: &[u8]) -> Option<Flow> {
    let packet = ipv6::Packet::parse(bytes)?;
    let (protocol, (from, to)) = match packet.upper() {
        Some(upper) if upper.fragment => (Protocol::FRAGMENT, (0, 0)),
        Some(upper) if upper.protocol.has_ports() => (upper.protocol, ports(upper.payload)),
        Some(upper) => (upper.protocol, (0, 0)),
        None => (packet.header.next_header, (0, 0)),
    };
    Some(Flow {
        ethertype: EtherType::IPV6,
        protocol,
        source: Endpoint { address: packet.header.source.to_bytes(), port: from },
        destination: Endpoint { address: packet.header.destination.to_bytes(), port: to },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn udp4(source: [u8; 4], destination: [u8; 4], from: u16, to: u16) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[12..14].copy_from_slice(&[8, 0]);
        bytes[14] = 0x45;
        bytes[17] = 46;
        bytes[23] = 17;
        bytes[26..30].copy_from_slice(&source);
        bytes[30..34].copy_from_slice(&destination);
        bytes[34..36].copy_from_slice(&from.to_be_bytes());
        bytes[36..38].copy_from_slice(&to.to_be_bytes());
        bytes
    }

    #[test]
    fn ipv4_with_and_without_ports() {
        let mut bytes = udp4([10, 0, 0, 1], [10, 0, 0, 2], 1000, 53);
        let flow = Flow::parse(&bytes).unwrap();
        assert_eq!((flow.ethertype, flow.protocol), (EtherType::IPV4, Protocol::UDP));
        assert_eq!((flow.source.port, flow.destination.port), (1000, 53));
        assert_eq!(flow.source.address[..5], [10, 0, 0, 1, 0]);
        let mut tagged = bytes[..12].to_vec();
        tagged.extend_from_slice(&[0x81, 0x00, 0x00, 0x05]);
        tagged.extend_from_slice(&bytes[12..]);
        assert_eq!(Flow::parse(&tagged), Some(flow));
        bytes[20] = 0x20;
        let first = Flow::parse(&bytes).unwrap();
        (bytes[20], bytes[21]) = (0, 9);
        assert_eq!((first.source.port, Flow::parse(&bytes).unwrap()), (0, first));
    }

    #[test]
    fn ipv6_within_64_bytes() {
        let mut bytes = vec![0; 64];
        bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
        (bytes[14], bytes[18], bytes[20], bytes[22], bytes[38]) = (0x60, 0x20, 6, 0xfe, 0xff);
        bytes[54..58].copy_from_slice(&[0, 1, 0, 2]);
        let flow = Flow::parse(&bytes).unwrap();
        assert_eq!((flow.protocol, flow.source.port, flow.destination.port), (Protocol::TCP, 1, 2));
        assert_eq!((flow.source.address[0], flow.destination.address[0]), (0xfe, 0xff));
        bytes[20] = 44;
        bytes[54..62].copy_from_slice(&[6, 0, 0, 1, 0, 0, 0, 0]);
        let fragment = Flow::parse(&bytes).unwrap();
        assert_eq!((fragment.protocol, fragment.source.port), (Protocol::FRAGMENT, 0));
    }

    #[test]
    fn other_frames_use_their_mac_addresses() {
        let mut bytes = vec![7; 14];
        bytes[12..].copy_from_slice(&[8, 6]);
        let flow = Flow::parse(&bytes).unwrap();
        assert_eq!(
            (flow.ethertype, flow.source.address[..7].to_vec()),
            (EtherType::ARP, vec![7, 7, 7, 7, 7, 7, 0])
        );
        assert_eq!(Flow::parse(&bytes[..13]), None);
    }

    /// Similar flows spread evenly: no bucket of 64 has twice its share of 64 K flows.
    #[test]
    fn similar_flows_spread_evenly() {
        let mut buckets = [[0u32; 64]; 2];
        for number in 0..65_536u32 {
            let [_, _, high, low] = number.to_be_bytes();
            let flow = Flow::parse(&udp4([10, 0, 0, high], [10, 0, 1, low], 1000, 53)).unwrap();
            let other = Flow::parse(&udp4([10, 0, 0, 1], [10, 0, 0, 2], number as u16, 53)).unwrap();
            for (bucket, hash) in
                buckets.iter_mut().zip([flow.symmetric_hash(1) >> 32, other.symmetric_hash(2)])
            {
                bucket[hash as usize % 64] += 1;
            }
        }
        for bucket in buckets {
            assert!(bucket.iter().all(|&count| (512..2048).contains(&count)), "{bucket:?}");
        }
    }

    proptest! {
        #[test]
        fn both_directions_have_the_same_hash(a: [u8; 4], b: [u8; 4], p: u16, q: u16, key: u64) {
            let there = Flow::parse(&udp4(a, b, p, q)).unwrap();
            let back = Flow::parse(&udp4(b, a, q, p)).unwrap();
            prop_assert_eq!(there.reversed(), back);
            prop_assert_eq!(there.symmetric_hash(key), back.symmetric_hash(key));
        }

        #[test]
        fn any_bytes_give_a_flow_or_none(
            mut bytes in prop::collection::vec(any::<u8>(), 0..128), kind in 0usize..4,
        ) {
            let kinds = [[8, 0], [0x86, 0xdd], [0x81, 0], [8, 6]];
            if let Some(field) = bytes.get_mut(12..14) {
                field.copy_from_slice(&kinds[kind]);
            }
            prop_assert_eq!(Flow::parse(&bytes).is_some(), bytes.len() >= 14);
        }
    }
}
