use super::super::Pool;
use crate::{Offload, Reason};
use core::net::{Ipv4Addr, Ipv6Addr};
use proptest::prelude::*;
use ringway_wire::{EtherType, Ethernet, Header, Ipv4, Ipv6, MacAddress, Protocol, Sum, Tcp, Udp};
use ringway_wire::{ipv4, ipv6, tcp, udp};
use std::vec::Vec;

/// A packet to complete.
#[derive(Clone, Debug)]
struct Shape {
    six: bool,
    udp: bool,
    /// Segment size; 0 for no segmentation.
    size: u16,
    payload: Vec<u8>,
}

fn shape() -> impl Strategy<Value = Shape> {
    let payload = prop::collection::vec(any::<u8>(), 0..5000);
    (any::<(bool, bool)>(), prop_oneof![Just(0), 40u16..3000], payload)
        .prop_map(|((six, udp), size, payload)| Shape { six, udp, size, payload })
}

const SOURCE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const DESTINATION: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

impl Shape {
    fn l4(&self) -> usize {
        14 + if self.six { 40 } else { 20 }
    }

    fn header(&self) -> usize {
        if self.udp { 8 } else { 20 }
    }

    fn protocol(&self) -> Protocol {
        if self.udp { Protocol::UDP } else { Protocol::TCP }
    }

    fn pseudo(&self, len: usize) -> Sum {
        let six = |end: Ipv4Addr| end.to_ipv6_mapped();
        match self.six {
            true => Sum::pseudo_v6(six(SOURCE), six(DESTINATION), self.protocol().0, len as u32),
            false => Sum::pseudo_v4(SOURCE, DESTINATION, self.protocol().0, len as u16),
        }
    }

    /// The frame as sent, and its metadata.
    fn frame(&self) -> (Vec<u8>, Offload) {
        let (l4, header) = (self.l4(), self.header());
        let behind = header + self.payload.len();
        let ethertype = if self.six { EtherType::IPV6 } else { EtherType::IPV4 };
        let mac = MacAddress([2; 6]);
        let ethernet = Ethernet { destination: mac, source: mac, ethertype };
        let mut frame = ethernet.bytes().to_vec();
        if self.six {
            let [source, destination]: [Ipv6Addr; 2] = [SOURCE, DESTINATION].map(|end| end.to_ipv6_mapped());
            let ip = Ipv6 {
                version_class_label: (6 << 28 | 7).into(),
                payload_length: (behind as u16).into(),
                next_header: self.protocol(),
                hop_limit: 9,
                source: source.to_bits().into(),
                destination: destination.to_bits().into(),
            };
            frame.extend_from_slice(ip.bytes());
        } else {
            let mut ip = Ipv4 {
                total_length: (20 + behind as u16).into(),
                identification: 65_535.into(),
                fragment: ipv4::DONT_FRAGMENT.into(),
                ttl: 9,
                protocol: self.protocol(),
                source: SOURCE.to_bits().into(),
                destination: DESTINATION.to_bits().into(),
                ..Ipv4::EMPTY
            };
            ip.fill_checksum(&[]);
            frame.extend_from_slice(ip.bytes());
        }
        frame.resize(l4 + header, 2);
        frame.extend_from_slice(&self.payload);
        let field = if self.udp {
            Udp::of_mut(&mut frame[l4..]).unwrap().length.set(behind as u16);
            udp::CHECKSUM_AT
        } else {
            let tcp = Tcp::of_mut(&mut frame[l4..]).unwrap();
            (tcp.data_offset, tcp.flags.0) = (0x50, 0x19);
            tcp::CHECKSUM_AT
        };
        frame[l4 + field..l4 + field + 2].copy_from_slice(&self.pseudo(behind).value().to_be_bytes());
        let gso_type = match (self.size, self.udp, self.six) {
            (0, _, _) => 0,
            (_, true, _) => 5,
            (_, false, true) => 4,
            (_, false, false) => 1,
        };
        (frame, Offload { gso_type, gso_size: self.size, ..Offload::checksum(l4 as u16, field as u16) })
    }

    /// Checks the headers after the network header; returns the payload.
    fn check<'a>(&self, network: &'a [u8]) -> &'a [u8] {
        let behind = if self.six {
            ipv6::Packet::parse(network).filter(|packet| packet.whole).unwrap().payload
        } else {
            let packet = ipv4::Packet::parse(network).unwrap();
            assert!(packet.whole && packet.header.is_checksum_valid(packet.options));
            packet.payload
        };
        let mut sum = self.pseudo(behind.len());
        sum.add(behind);
        assert!(sum.is_valid());
        if self.udp {
            let (udp, payload) = Udp::split(behind).unwrap();
            assert_eq!((udp.length.get() as usize, udp.checksum.get() != 0), (behind.len(), true));
            payload
        } else {
            Tcp::parse(behind).unwrap().2
        }
    }
}

proptest! {
    #[test]
    fn completed_packets_are_valid_for_any_start_of_the_data(
        shape in shape(),
        // Bytes removed before completion, and whether the network header's offset is set.
        taken in prop::sample::select(vec![0usize, 14, 34]),
        has_network_header: bool,
        shared: bool,
    ) {
        let (frame, offload) = shape.frame();
        let pool = Pool::new();
        let mut packet = pool.copy(&frame).unwrap();
        packet.set_offload(offload).unwrap();
        prop_assert_eq!((packet.offload(), pool.has_offloads()), (offload, true));
        let other = shared.then(|| packet.clone());
        let has_network_header = has_network_header || (taken == 34 && shape.size > 0);
        if has_network_header {
            packet.set_network_header(14, shape.l4() - 14);
        }
        packet.pull(taken);
        prop_assert!(packet.unpull(8));
        packet.pull(8);
        let mut payload = Vec::new();
        let mut count = 0;
        pool.complete(packet, |mut segment| {
            assert!(!segment.has_offload());
            assert_eq!(segment.network_header(), has_network_header.then_some(14 - taken as isize));
            assert!(segment.push(taken));
            assert_eq!(segment.data()[..14], frame[..14]);
            payload.extend_from_slice(shape.check(&segment.data()[14..]));
            count += 1;
        }).unwrap();
        let size = usize::from(shape.size);
        let segments = if size == 0 { 1 } else { shape.payload.len().div_ceil(size).max(1) };
        prop_assert_eq!((payload, count), (shape.payload.clone(), segments));
        if let Some(other) = other {
            prop_assert_eq!((other.data(), other.offload()), (&frame[..], offload));
        }
    }

    #[test]
    fn a_checksum_is_filled_before_its_header_is_removed(shape in shape(), behind in 1usize..8) {
        let (frame, offload) = shape.frame();
        let mut packet = Pool::new().copy(&frame).unwrap();
        packet.set_offload(offload).unwrap();
        packet.pull(shape.l4() + behind);
        prop_assert!(!packet.has_offload());
        prop_assert!(packet.push(shape.l4() + behind));
        prop_assert_eq!(shape.check(&packet.data()[14..]), &shape.payload[..]);
    }

    #[test]
    fn any_metadata_gives_packets_or_an_error(
        shape in shape(), raw: [u8; 10], valid_parts in 0u8..3, at: prop::sample::Index, to: u8,
        pulled in 0usize..80, cut in 0usize..80, network in prop::option::of(-40isize..100),
    ) {
        let (mut frame, offload) = shape.frame();
        let at = at.index(frame.len());
        frame[at] = to;
        let random = Offload::from_bytes(&raw);
        let offload = match valid_parts {
            0 => random,
            1 => Offload { gso_size: random.gso_size, gso_type: random.gso_type & 0x85, ..offload },
            _ => offload,
        };
        let pool = Pool::new();
        let mut packet = pool.copy(&frame).unwrap();
        let _ = packet.set_offload(offload);
        packet.pull(pulled);
        packet.take(cut);
        if let Some(at) = network {
            packet.set_network_header(at, 20);
        }
        let mut count = 0;
        let done = pool.complete(packet, |segment| {
            assert!(!segment.has_offload());
            count += 1;
        });
        prop_assert_eq!(done.is_ok(), count > 0);
    }
}

#[test]
fn tiny_segments_are_refused() {
    let mut shape = Shape { six: false, udp: false, size: 1, payload: vec![0; 257] };
    let pool = Pool::new();
    let complete = |shape: &Shape| {
        let (frame, offload) = shape.frame();
        let mut packet = pool.copy(&frame).unwrap();
        packet.set_offload(offload).unwrap();
        pool.complete(packet, |_| {})
    };
    assert_eq!(complete(&shape), Err(Reason::BadOffload));
    shape.payload.pop();
    assert_eq!(complete(&shape), Ok(()));
}
