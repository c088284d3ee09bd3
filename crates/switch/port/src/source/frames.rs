//! Prebuilt frames.

use super::{Config, MEMORY, SHORTEST, SourceError};
use ringway_frame::LARGEST;
use ringway_wire::{EtherType, Ethernet, Header, Ipv4, Protocol, Udp, ipv4};
use std::net::Ipv4Addr;

/// Alignment of frames in bytes, so that no two share a cache line.
const ALIGN: usize = 64;
/// From TEST-NET-1 (RFC 5737) to TEST-NET-2: addresses reserved for documentation.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 1)];
/// First source port of the flows.
const FIRST_PORT: u16 = 1024;
/// The discard port (RFC 863).
const DISCARD: u16 = 9;

/// Consecutive frames.
#[derive(Debug)]
pub(super) struct Frames {
    bytes: Box<[u8]>,
    places: Box<[(u32, u32)]>,
}

impl Frames {
    pub(super) fn new(config: &Config) -> Result<Frames, SourceError> {
        if let Some(&size) = config.sizes.iter().find(|&size| !(SHORTEST..=LARGEST).contains(size)) {
            return Err(SourceError::Size(size));
        }
        if config.sizes.is_empty() {
            return Err(SourceError::NoSize);
        }
        if config.source.is_group() {
            return Err(SourceError::Group(config.source));
        }
        let memory = config.memory.max(1 << 20);
        let once: usize = config.sizes.iter().map(|&size| (size as usize).next_multiple_of(ALIGN)).sum();
        if memory > MEMORY || once > MEMORY {
            return Err(SourceError::Memory(memory.max(once)));
        }
        let rounds = memory.div_ceil(once);
        let mut bytes = vec![0; rounds * once + ALIGN].into_boxed_slice();
        let skipped = bytes.as_ptr().align_offset(ALIGN).min(ALIGN);
        let mut places = Vec::with_capacity(rounds * config.sizes.len());
        let mut at = skipped;
        for (number, &size) in (0..rounds).flat_map(|_| &config.sizes).enumerate() {
            let flow = (number % usize::from(config.flows.max(1))) as u16;
            write(&mut bytes[at..at + size as usize], config, flow);
            places.push((at as u32, size));
            at += (size as usize).next_multiple_of(ALIGN);
        }
        Ok(Frames { bytes, places: places.into_boxed_slice() })
    }

    /// Frame `number`.
    #[inline]
    pub(super) fn get(&self, number: usize) -> Option<&[u8]> {
        let &(at, len) = self.places.get(number)?;
        self.bytes.get(at as usize..)?.get(..len as usize)
    }

    /// The number of the frame `count` after frame `number`.
    #[inline]
    pub(super) fn after(&self, number: usize, count: usize) -> usize {
        let sum = number + count;
        if sum < self.places.len() { sum } else { sum % self.places.len().max(1) }
    }
}

/// Fills `frame` with headers and ascending bytes.
fn write(frame: &mut [u8], config: &Config, flow: u16) {
    let [source, destination] = ADDRESSES;
    let ethernet =
        Ethernet { destination: config.destination, source: config.source, ethertype: EtherType::IPV4 };
    // The longest frame has room for two tags, which these don't carry; IPv4 can't fill it.
    let network = u16::try_from(frame.len() - Ethernet::LEN).unwrap_or(u16::MAX);
    let datagram = network - Ipv4::LEN as u16;
    let mut ip = Ipv4 {
        total_length: network.into(),
        fragment: ipv4::DONT_FRAGMENT.into(),
        ttl: 64,
        protocol: Protocol::UDP,
        source: source.to_bits().into(),
        destination: destination.to_bits().into(),
        ..Ipv4::EMPTY
    };
    ip.fill_checksum(&[]);
    let mut udp = Udp {
        source_port: FIRST_PORT.wrapping_add(flow).into(),
        destination_port: DISCARD.into(),
        length: datagram.into(),
        checksum: 0.into(),
    };
    let (headers, payload) = frame.split_at_mut(Ethernet::LEN + Ipv4::LEN + Udp::LEN);
    let payload = &mut payload[..usize::from(datagram) - Udp::LEN];
    for (at, byte) in payload.iter_mut().enumerate() {
        *byte = (at + Udp::LEN) as u8;
    }
    let mut sum = ip.pseudo_header(datagram);
    sum.add(udp.bytes());
    sum.add(payload);
    udp.checksum = sum.finish_nonzero().into();
    headers.copy_from_slice(&[ethernet.bytes(), ip.bytes(), udp.bytes()].concat());
}
