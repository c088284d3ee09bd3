//! Frames that lie ready to be sent.

use super::{Config, MEMORY, SHORTEST, SourceError};
use ringway_frame::LARGEST;
use ringway_wire::ethernet::EtherType;
use ringway_wire::ip::Protocol;
use ringway_wire::{Sum, ethernet, ipv4, udp};
use std::net::Ipv4Addr;

/// Frames lie this many bytes, or a multiple, apart: no two share a cache line.
const ALIGN: usize = 64;
/// From TEST-NET-1 (RFC 5737) to TEST-NET-2: addresses that nobody has.
const ADDRESSES: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(198, 51, 100, 1)];
/// First source port of the flows.
const FIRST_PORT: u16 = 1024;
/// The discard port (RFC 863).
const DISCARD: u16 = 9;

/// Frames, one behind the other.
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

    /// The number of the frame `count` behind frame `number`.
    #[inline]
    pub(super) fn after(&self, number: usize, count: usize) -> usize {
        let sum = number + count;
        if sum < self.places.len() { sum } else { sum % self.places.len().max(1) }
    }
}

/// Fills `frame`: headers, and bytes that count up behind them.
fn write(frame: &mut [u8], config: &Config, flow: u16) {
    let [source, destination] = ADDRESSES;
    let network = frame.len() - ethernet::HEADER_LEN;
    // The longest frame has room for two tags, which these don't carry; IPv4 can't fill it.
    let datagram = network.min(usize::from(u16::MAX)) - ipv4::HEADER_LEN;
    let (link, behind) = frame.split_at_mut(ethernet::HEADER_LEN);
    let (header, payload) = behind.split_at_mut(ipv4::HEADER_LEN);
    let payload = &mut payload[..datagram];
    for (at, byte) in payload.iter_mut().enumerate() {
        *byte = at as u8;
    }
    let ethernet =
        ethernet::Repr { destination: config.destination, source: config.source, ethertype: EtherType::IPV4 };
    let ip = ipv4::Repr {
        dscp: 0,
        ecn: 0,
        identification: 0,
        dont_fragment: true,
        more_fragments: false,
        fragment_offset: 0,
        ttl: 64,
        protocol: Protocol::UDP,
        source,
        destination,
        options: &[],
        payload_len: datagram as u16,
    };
    let udp = udp::Repr {
        source_port: FIRST_PORT.wrapping_add(flow),
        destination_port: DISCARD,
        payload_len: (datagram - udp::HEADER_LEN) as u16,
    };
    let pseudo = Sum::pseudo_v4(source, destination, Protocol::UDP.0, datagram as u16);
    let written = ethernet.emit(link).and_then(|()| ip.emit(header)).and_then(|()| udp.emit(payload, pseudo));
    debug_assert_eq!(written, Ok(()), "sizes were checked");
}
