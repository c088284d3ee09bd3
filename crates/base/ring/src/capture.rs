//! Shared memory through which `data` passes copies of frames to a client that captures.
//!
//! The memory has a header and several lanes, each a ring of words with one [`Producer`] at a time. Workers write into
//! lanes of their own, so that none waits for another; one client reads them all. A lane that is full takes no more
//! records, and counts them: the client can delay nobody. Nobody is notified; the client looks from time to time.
//!
//! Everything is an atomic word of 64 bits in the byte order of the machine, so that both sides may write at any time
//! without undefined behaviour. Each side reads the other's index once and checks it.

use alloc::vec::Vec;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// The first word: layout 1.
const MAGIC: u64 = 0x5259_4341_5054_0001;
/// Words of the header.
const HEADER: usize = 8;
/// The word of the header that counts frames for which no lane was free.
const MISSED: usize = 4;
/// Words of a lane before its statistics: the head on one cache line, the tail on another.
const INDICES: usize = 16;
const TAIL: usize = 8;
/// Words of statistics of a port: received, accepted, dropped, and one not used.
const STATISTICS: usize = 4;
/// Words of a record's header.
const RECORD: usize = 3;
/// Most lanes and ports. Attack: a header whose numbers overflow.
const MOST: usize = 4096;
/// Most words of a lane: 1 GB.
const MOST_WORDS: usize = 1 << 27;

/// The sizes of a capture's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    lanes: usize,
    ports: usize,
    words: usize,
}

impl Geometry {
    /// Memory with this many lanes, of `bytes` in all, for this many ports. Sizes are rounded and bounded.
    pub fn new(lanes: usize, ports: usize, bytes: usize) -> Geometry {
        let (lanes, ports) = (lanes.clamp(1, MOST), ports.clamp(1, MOST));
        let words = (bytes / 8 / lanes).clamp(512, MOST_WORDS);
        Geometry { lanes, ports, words: 1 << words.ilog2() }
    }

    /// The sizes that initialized memory has; `None` if it is no memory of a capture.
    pub fn of(memory: &[AtomicU64]) -> Option<Geometry> {
        let word = |at: usize| memory.get(at).map(|word| word.load(Relaxed));
        let small = |at| word(at).and_then(|word| usize::try_from(word).ok());
        let (lanes, ports, words) = (small(1)?, small(2)?, small(3)?);
        let is_valid = word(0) == Some(MAGIC)
            && (1..=MOST).contains(&lanes)
            && (1..=MOST).contains(&ports)
            && words.is_power_of_two()
            && words <= MOST_WORDS;
        let geometry = Geometry { lanes, ports, words };
        (is_valid && memory.len() * 8 >= geometry.bytes()).then_some(geometry)
    }

    /// Writes the sizes into zeroed memory.
    pub fn initialize(&self, memory: &[AtomicU64]) {
        for (word, value) in
            memory.iter().zip([MAGIC, self.lanes as u64, self.ports as u64, self.words as u64])
        {
            word.store(value, Relaxed);
        }
    }

    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        (HEADER + self.lanes * self.stride()) * 8
    }

    /// Counts frames for which no lane was free. The filter has not seen them, and the statistics of ports do not
    /// include them.
    pub fn miss(&self, memory: &[AtomicU64], frames: u64) {
        let _ = memory.get(MISSED).map(|word| word.fetch_add(frames, Relaxed));
    }

    /// Number of frames for which no lane was free.
    pub fn missed(&self, memory: &[AtomicU64]) -> u64 {
        memory.get(MISSED).map_or(0, |word| word.load(Relaxed))
    }

    /// Number of lanes.
    pub fn lanes(&self) -> usize {
        self.lanes
    }

    /// Number of ports.
    pub fn ports(&self) -> usize {
        self.ports
    }

    fn stride(&self) -> usize {
        INDICES + (self.ports * STATISTICS).next_multiple_of(8) + self.words
    }

    /// A lane in memory of this geometry.
    pub fn lane<'m>(&self, memory: &'m [AtomicU64], lane: usize) -> Option<Lane<'m>> {
        let begin = HEADER + (lane < self.lanes).then_some(lane)? * self.stride();
        let (indices, rest) = memory.get(begin..begin + self.stride())?.split_at_checked(INDICES)?;
        let (statistics, data) = rest.split_at_checked(self.stride() - INDICES - self.words)?;
        Some(Lane { indices, statistics, data })
    }
}

/// A copy of a frame, without its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Index of the port in the capture.
    pub port: u16,
    /// What happened to the frame; its meaning is the caller's.
    pub kind: u16,
    /// Nanoseconds since 1970.
    pub time: u64,
    /// The frame's length in bytes.
    pub len: u32,
}

/// Frames of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that passed.
    pub received: u64,
    /// Frames that the filter accepted.
    pub accepted: u64,
    /// Accepted frames that were not copied, since the lane was full.
    pub dropped: u64,
}

/// A lane in shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Lane<'m> {
    indices: &'m [AtomicU64],
    statistics: &'m [AtomicU64],
    data: &'m [AtomicU64],
}

impl Lane<'_> {
    fn word(&self, index: u64) -> &AtomicU64 {
        // The length is a power of two.
        &self.data[index as usize & (self.data.len() - 1)]
    }

    /// The statistics of a port.
    pub fn statistics(&self, port: usize) -> Statistics {
        let word = |offset| {
            self.statistics.get(port * STATISTICS + offset).map_or(0, |word: &AtomicU64| word.load(Relaxed))
        };
        Statistics { received: word(0), accepted: word(1), dropped: word(2) }
    }

    fn count(&self, port: u16, offset: usize) {
        if let Some(word) = self.statistics.get(usize::from(port) * STATISTICS + offset) {
            word.store(word.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }
}

/// The writing side of a lane. One at a time exists.
#[derive(Debug)]
pub struct Producer {
    head: u64,
}

impl Producer {
    /// Goes on where a former producer of the lane ended.
    pub fn new(lane: &Lane<'_>) -> Producer {
        Producer { head: lane.indices[0].load(Relaxed) }
    }

    /// Counts a frame that passed.
    pub fn receive(&mut self, lane: &Lane<'_>, port: u16) {
        lane.count(port, 0);
    }

    /// Adds the copy of an accepted frame, or counts it as dropped. It becomes visible by [`Producer::publish`].
    pub fn push(&mut self, lane: &Lane<'_>, record: &Record, data: &[u8]) -> bool {
        lane.count(record.port, 1);
        let words = RECORD + data.len().div_ceil(8);
        let tail = lane.indices[TAIL].load(Acquire);
        // Attack: a client that writes any tail. One ahead of the head, or too far behind it, means a full lane.
        let used = self.head.wrapping_sub(tail);
        let is_room = usize::try_from(used).ok().and_then(|used| lane.data.len().checked_sub(used));
        if is_room.is_none_or(|room| room < words) {
            lane.count(record.port, 2);
            return false;
        }
        let mut at = self.head;
        let mut write = |word: u64| {
            lane.word(at).store(word, Relaxed);
            at = at.wrapping_add(1);
        };
        write((words as u64) << 32 | u64::from(record.port) << 16 | u64::from(record.kind));
        write(record.time);
        write(u64::from(record.len) << 32 | data.len() as u64);
        let (whole, rest) = data.as_chunks::<8>();
        whole.iter().for_each(|bytes| write(u64::from_ne_bytes(*bytes)));
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            write(u64::from_ne_bytes(last));
        }
        self.head = at;
        true
    }

    /// Makes the records visible.
    pub fn publish(&self, lane: &Lane<'_>) {
        lane.indices[0].store(self.head, Release);
    }
}

/// The memory holds what no producer writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt;

/// The reading side of a lane.
#[derive(Clone, Copy, Debug, Default)]
pub struct Consumer {
    tail: u64,
}

impl Consumer {
    /// Passes the records that are visible to `each`, and gives their room back.
    pub fn drain(&mut self, lane: &Lane<'_>, mut each: impl FnMut(Record, &[u8])) -> Result<(), Corrupt> {
        let head = lane.indices[0].load(Acquire);
        let mut bytes = Vec::new();
        while self.tail != head {
            let left = head.wrapping_sub(self.tail);
            let word = |offset: u64| lane.word(self.tail.wrapping_add(offset)).load(Relaxed);
            let (first, time, lengths) = (word(0), word(1), word(2));
            let (words, len) = (first >> 32, lengths & 0xffff_ffff);
            if left > lane.data.len() as u64 || words > left || words != RECORD as u64 + len.div_ceil(8) {
                return Err(Corrupt);
            }
            bytes.clear();
            (RECORD as u64..words).for_each(|offset| bytes.extend_from_slice(&word(offset).to_ne_bytes()));
            bytes.truncate(len as usize);
            let (port, kind) = ((first >> 16) as u16, first as u16);
            each(Record { port, kind, time, len: (lengths >> 32) as u32 }, &bytes);
            self.tail = self.tail.wrapping_add(words);
            lane.indices[TAIL].store(self.tail, Release);
        }
        Ok(())
    }

    /// Leaves the lane for ever: it is full for its producers, which count every further record as dropped.
    pub fn close(self, lane: &Lane<'_>) {
        // More is used than the lane has.
        lane.indices[TAIL].store(self.tail.wrapping_sub(1 << 63), Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn memory(geometry: &Geometry) -> Vec<AtomicU64> {
        let memory: Vec<_> = (0..geometry.bytes() / 8).map(|_| AtomicU64::new(0)).collect();
        geometry.initialize(&memory);
        memory
    }

    proptest! {
        #[test]
        fn copies_and_drops_are_all_frames(
            rounds in prop::collection::vec(
                (prop::collection::vec(0usize..1600, 0..20), any::<bool>()), 1..20,
            ),
        ) {
            let geometry = Geometry::new(2, 3, 2 * 4096);
            let memory = memory(&geometry);
            prop_assert_eq!(Geometry::of(&memory), Some(geometry));
            let lane = geometry.lane(&memory, 1).unwrap();
            let mut producer = Producer::new(&lane);
            let mut consumer = Consumer::default();
            let (mut written, mut read) = (Vec::new(), Vec::new());
            let mut count = 0u64;
            for (frames, reads) in rounds {
                for len in frames {
                    let data: Vec<u8> = (0..len).map(|at| (at as u64 + count) as u8).collect();
                    let record = Record { port: 2, kind: count as u16, time: count, len: len as u32 };
                    producer.receive(&lane, 2);
                    if producer.push(&lane, &record, &data) {
                        written.push((record, data));
                    }
                    count += 1;
                }
                producer.publish(&lane);
                // Another producer goes on.
                producer = Producer::new(&lane);
                if reads {
                    consumer.drain(&lane, |record, data| read.push((record, data.to_vec()))).unwrap();
                }
            }
            consumer.drain(&lane, |record, data| read.push((record, data.to_vec()))).unwrap();
            prop_assert_eq!(&read, &written);
            let Statistics { received, accepted, dropped } = lane.statistics(2);
            prop_assert_eq!((received, accepted, dropped), (count, count, count - written.len() as u64));
            prop_assert_eq!(lane.statistics(0), Statistics::default());
            prop_assert_eq!(lane.statistics(usize::MAX / STATISTICS), Statistics::default());
        }

        #[test]
        fn hostile_memory_is_refused_by_both_sides(
            words in prop::collection::vec(any::<u64>(), 64), tail: u64, head: u64,
        ) {
            let geometry = Geometry::new(1, 1, 4096);
            let memory = memory(&geometry);
            for (at, word) in words.iter().enumerate() {
                memory[HEADER + INDICES + at].store(word & 0x0000_0001_ffff_ffff, Relaxed);
            }
            let lane = geometry.lane(&memory, 0).unwrap();
            lane.indices[TAIL].store(tail, Relaxed);
            lane.indices[0].store(head & 1023, Relaxed);
            let mut producer = Producer::new(&lane);
            producer.push(&lane, &Record::default(), &[1; 100]);
            let mut count = 0;
            let _ = Consumer::default().drain(&lane, |_, _| count += 1);
            prop_assert!(count <= 1023);
        }
    }

    #[test]
    fn a_closed_lane_takes_nothing_from_any_producer() {
        let geometry = Geometry::new(1, 1, 4096);
        let memory = memory(&geometry);
        let lane = geometry.lane(&memory, 0).unwrap();
        let mut producer = Producer::new(&lane);
        assert!(producer.push(&lane, &Record::default(), &[1; 8]));
        Consumer::default().close(&lane);
        assert!(!producer.push(&lane, &Record::default(), &[1; 8]));
        producer.publish(&lane);
        assert!(!Producer::new(&lane).push(&lane, &Record::default(), &[]));
        assert_eq!(lane.statistics(0), Statistics { received: 0, accepted: 3, dropped: 2 });
    }

    #[test]
    fn only_valid_headers_are_accepted() {
        let geometry = Geometry::new(3, 5, 1 << 16);
        let memory = memory(&geometry);
        assert_eq!(Geometry::of(&memory), Some(geometry));
        assert_eq!(Geometry::of(&memory[1..]), None);
        assert_eq!(Geometry::of(&memory[..memory.len() - 1]), None);
        for (at, value) in [(0, 1), (1, 0), (1, u64::MAX), (2, 1 << 40), (3, 3), (3, 1 << 63)] {
            let before = memory[at].swap(value, Relaxed);
            assert_eq!(Geometry::of(&memory), None, "{at} {value}");
            memory[at].store(before, Relaxed);
        }
        assert!(geometry.lane(&memory, 3).is_none());
    }
}
