//! Reassembly of fragments (RFC 791, RFC 8200 4.5).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::net::IpAddr;

/// Holes and pieces of one packet. Attack: a fragment for each eight bytes.
const PIECES: usize = 64;
/// Incomplete packets. Attack: small first fragments would cost more than the bytes that are counted.
const PACKETS: usize = 256;

/// What fragments of the same packet have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub source: IpAddr,
    pub destination: IpAddr,
    pub identification: u32,
    pub protocol: u8,
}

#[derive(Debug)]
struct Pending {
    bytes: Vec<u8>,
    /// Received ranges: start and end.
    pieces: BTreeMap<usize, usize>,
    total: Option<usize>,
    until: u64,
}

/// Incomplete packets.
#[derive(Debug)]
pub(crate) struct Reassembly {
    pending: BTreeMap<Key, Pending>,
    held: usize,
    /// Most bytes held, and how long (`ipfrag_high_thresh`, `ipfrag_time`).
    most: usize,
    time: u64,
}

impl Reassembly {
    pub(crate) fn new(most: usize, time: u64) -> Reassembly {
        Reassembly { pending: BTreeMap::new(), held: 0, most, time }
    }

    /// Adds a fragment; returns the packet's payload once it is complete.
    pub(crate) fn add(
        &mut self,
        now: u64,
        key: Key,
        offset: usize,
        more: bool,
        payload: &[u8],
    ) -> Option<Vec<u8>> {
        let end = offset + payload.len();
        if payload.is_empty()
            || end > self.most.min(65_535)
            || (more && !payload.len().is_multiple_of(8))
            || self.has(&key, offset, payload)
        {
            return None;
        }
        // Attack: fragments that never end. The oldest of the other packets make room.
        let known = self.pending.get(&key).map(|pending| pending.bytes.len());
        let added = end.saturating_sub(known.unwrap_or(0));
        while self.held + added > self.most || (self.pending.len() >= PACKETS && known.is_none()) {
            let others = self.pending.iter().filter(|(other, _)| **other != key);
            let oldest = others.min_by_key(|(_, pending)| pending.until).map(|(key, _)| *key);
            self.drop(&oldest?);
        }
        let until = now + self.time;
        let fresh = || Pending { bytes: Vec::new(), pieces: BTreeMap::new(), total: None, until };
        let pending = self.pending.entry(key).or_insert_with(fresh);
        let overlaps = pending.pieces.range(..end).next_back().is_some_and(|(_, &piece)| piece > offset);
        let contradicts = pending.total.is_some_and(|total| if more { end > total } else { end != total })
            || (!more && pending.bytes.len() > end);
        // Attack: overlapping fragments hide a header from a filter (RFC 5722, 3; Linux does so for IPv4 too).
        if overlaps || contradicts || pending.pieces.len() >= PIECES {
            self.drop(&key);
            return None;
        }
        if pending.bytes.len() < end {
            self.held += end - pending.bytes.len();
            pending.bytes.resize(end, 0);
        }
        pending.bytes[offset..end].copy_from_slice(payload);
        pending.pieces.insert(offset, end);
        if !more {
            pending.total = Some(end);
        }
        let mut whole = 0;
        for (&start, &piece) in &pending.pieces {
            if start != whole {
                return None;
            }
            whole = piece;
        }
        (pending.total == Some(whole)).then(|| self.drop(&key))
    }

    /// Whether a fragment came before, as a whole or within another one (RFC 8200 4.5 permits to ignore it).
    fn has(&self, key: &Key, offset: usize, payload: &[u8]) -> bool {
        let end = offset + payload.len();
        self.pending.get(key).is_some_and(|pending| {
            let piece = pending.pieces.range(..=offset).next_back();
            piece.is_some_and(|(_, piece)| end <= *piece) && pending.bytes[offset..end] == *payload
        })
    }

    fn drop(&mut self, key: &Key) -> Vec<u8> {
        let bytes = self.pending.remove(key).map(|pending| pending.bytes).unwrap_or_default();
        self.held -= bytes.len();
        bytes
    }

    /// Removes packets whose time is up.
    pub(crate) fn expire(&mut self, now: u64) {
        let held = &mut self.held;
        self.pending.retain(|_, pending| {
            let keep = pending.until > now;
            if !keep {
                *held -= pending.bytes.len();
            }
            keep
        });
    }

    /// When the next incomplete packet expires.
    pub(crate) fn due(&self) -> Option<u64> {
        self.pending.values().map(|pending| pending.until).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(identification: u32) -> Key {
        Key { source: [10, 0, 0, 1].into(), destination: [10, 0, 0, 2].into(), identification, protocol: 17 }
    }

    #[test]
    fn overlaps_discard_the_packet() {
        let mut reassembly = Reassembly::new(1 << 20, 10);
        assert_eq!(reassembly.add(0, key(1), 0, true, &[1; 16]), None);
        assert_eq!(reassembly.add(0, key(1), 8, false, &[2; 16]), None);
        assert_eq!((reassembly.held, reassembly.due()), (0, None));
    }

    #[test]
    fn a_fragment_that_comes_twice_changes_nothing_and_one_with_other_bytes_discards_the_packet() {
        let mut reassembly = Reassembly::new(1 << 20, 10);
        assert_eq!(reassembly.add(0, key(1), 0, true, &[1; 16]), None);
        assert_eq!(reassembly.add(0, key(1), 0, true, &[1; 16]), None);
        assert_eq!(reassembly.add(0, key(1), 8, true, &[1; 8]), None);
        assert_eq!(reassembly.add(0, key(1), 16, false, &[1; 4]), Some(vec![1; 20]));
        assert_eq!(reassembly.add(0, key(2), 0, true, &[1; 16]), None);
        assert_eq!(reassembly.add(0, key(2), 0, true, &[2; 16]), None);
        assert_eq!((reassembly.held, reassembly.due()), (0, None));
    }

    #[test]
    fn a_fragment_that_is_too_large_takes_no_others_place() {
        let mut reassembly = Reassembly::new(100, 10);
        assert_eq!(reassembly.add(0, key(1), 0, true, &[1; 16]), None);
        assert_eq!(reassembly.add(0, key(2), 96, true, &[1; 16]), None);
        assert_eq!(reassembly.add(0, key(1), 16, false, &[1; 4]), Some(vec![1; 20]));
    }

    #[test]
    fn memory_is_bounded_and_returned_in_time() {
        let mut reassembly = Reassembly::new(10_000, 10);
        for number in 0..100 {
            reassembly.add(u64::from(number), key(number), 1000, true, &[0; 64]);
            assert!(reassembly.held <= 10_000);
        }
        reassembly.expire(200);
        assert_eq!((reassembly.held, reassembly.due()), (0, None));
    }

    proptest! {
        #[test]
        fn fragments_in_any_order_give_the_packet(
            len in 1usize..3000, size in 1usize..60, order in any::<prop::sample::Selector>(),
        ) {
            let bytes: Vec<u8> = (0..len).map(|at| at as u8).collect();
            let mut parts: Vec<_> = bytes.chunks(size.max(len / 60) * 8).enumerate().collect();
            let step = parts[0].1.len();
            let mut reassembly = Reassembly::new(1 << 20, 10);
            let mut whole = None;
            while !parts.is_empty() {
                let at = order.select(0..parts.len());
                let (number, part) = parts.swap_remove(at);
                prop_assert_eq!(whole, None);
                let offset = number * step;
                whole = reassembly.add(0, key(1), offset, offset + part.len() < len, part);
            }
            prop_assert_eq!(whole, Some(bytes));
            prop_assert_eq!(reassembly.held, 0);
        }
    }
}
