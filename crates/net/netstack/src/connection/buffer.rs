//! The byte streams of a connection: sent bytes until they are acknowledged, received bytes until they are
//! read.

mod saved;

use super::chunks::{CHUNK, Chunks, FIRST};
use super::payload::Payload;
use super::shared::{Runs, Source};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::ops::Range;
use ringway_mem::Span;

/// Ranges of out-of-order bytes. Attack: every second byte of the window would cost an entry of 50 bytes.
const RANGES: usize = 8192;
/// Chunks of memory that out-of-order bytes may take, and bytes of memory for each byte that is held beyond them.
/// Attack: a byte in each chunk of the window would take the memory of a full one. Of a stream whose segments are
/// lost at random, even most of them, each chunk holds more.
const SPARSE: usize = 4;
const DENSITY: usize = 16;
/// Changed ranges that are kept until they are reported. Attack: a peer that leaves holes, to a program that is late,
/// would make a list without end; each acknowledgment reports three.
const CHANGED: usize = 64;
/// Ends of records that a send buffer keeps.
const RECORDS: usize = 1024;
/// SACK blocks that fit into a header without other options.
pub(crate) const SACK_BLOCKS: usize = 4;

/// Most pieces of a frame's payload (see [`crate::Transmit::frame`]): 64 KB in buffers of 4 KB, and some more. A frame
/// ends where it would have more.
pub const PIECES: usize = 24;
/// A part of a send buffer.
pub(crate) type Pieces<'a> = ArrayVec<Span<'a>, PIECES>;

/// Bytes from the first unacknowledged one on. Offsets are those of the stream.
#[derive(Debug, Default)]
pub(crate) struct SendBuffer {
    /// The bytes that were copied, without those of runs.
    bytes: VecDeque<u8>,
    start: u64,
    /// Bytes that are elsewhere. Few programs have any.
    runs: Option<Box<Runs>>,
    len: usize,
    /// Ends of records: a segment has bytes of one record only. Few programs have any.
    records: Option<Box<Records>>,
}

/// Ends of records, in order.
#[derive(Debug, Default)]
struct Records {
    ends: VecDeque<u64>,
}

impl SendBuffer {
    pub(crate) fn new(start: u64) -> SendBuffer {
        SendBuffer { start, ..SendBuffer::default() }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The offset of the first byte.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// The offset after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.len as u64
    }

    /// Appends bytes up to a length of `limit`; returns how many.
    pub(crate) fn push(&mut self, bytes: &[u8], limit: usize) -> usize {
        let count = bytes.len().min(limit.saturating_sub(self.len));
        let needed = self.bytes.len() + count;
        if needed > self.bytes.capacity() {
            // Grows as a deque does, but not to more than the limit.
            let capacity = (2 * self.bytes.capacity()).min(limit).max(needed);
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend(&bytes[..count]);
        self.len += count;
        count
    }

    /// Appends bytes of a source, without a copy; returns how many.
    pub(crate) fn push_run(&mut self, source: &Arc<dyn Source>, range: Range<usize>, limit: usize) -> usize {
        let count = range.len().min(limit.saturating_sub(self.len));
        let range = range.start..range.start + count;
        if count == 0 || !self.runs.get_or_insert_default().push(self.start + self.len as u64, source, range)
        {
            return 0;
        }
        self.len += count;
        count
    }

    /// Bytes of a source could not be read.
    pub(crate) fn lose(&mut self) {
        if let Some(runs) = &mut self.runs {
            runs.lose();
        }
    }

    /// Whether some bytes are not copied.
    pub(crate) fn has_runs(&self) -> bool {
        self.runs.is_some()
    }

    /// Whether bytes of a source are gone.
    pub(crate) fn is_lost(&self) -> bool {
        self.runs.as_ref().is_some_and(|runs| runs.is_lost())
    }

    /// Ends a record at the last byte. If there are too many, it is joined with the next.
    pub(crate) fn end_record(&mut self) {
        let end = self.end();
        let ends = &mut self.records.get_or_insert_default().ends;
        if ends.len() < RECORDS && ends.back() != Some(&end) && end > self.start {
            ends.push_back(end);
        }
    }

    /// The first end of a record after `offset`.
    pub(crate) fn next_record_end(&self, offset: u64) -> Option<u64> {
        let ends = &self.records.as_ref()?.ends;
        ends.get(ends.partition_point(|end| *end <= offset)).copied()
    }

    /// The end of the record that the byte at `offset` is in; the last one has no end yet.
    pub(crate) fn record_end(&self, offset: u64) -> u64 {
        self.next_record_end(offset).unwrap_or(self.end())
    }

    /// Whether a record ends at `offset`.
    pub(crate) fn is_record_end(&self, offset: u64) -> bool {
        self.records.as_ref().is_some_and(|records| records.ends.binary_search(&offset).is_ok())
    }

    /// The bytes from `offset` on, at most `len`, or fewer if they are in too many places.
    pub(crate) fn pieces(&self, offset: u64, len: usize) -> Pieces<'_> {
        let mut pieces = Pieces::new();
        let mut at = offset.clamp(self.start, self.end());
        let end = (at + len as u64).min(self.end());
        while at < end && pieces.remaining_capacity() >= 2 {
            let run = self.runs.as_ref().and_then(|runs| runs.at(at));
            if let Some(run) = run.filter(|run| run.start <= at) {
                let next = run.end.min(end);
                let span = run.span(at, next);
                let whole = span.len() as u64 == next - at;
                pieces.push(span);
                if !whole {
                    break;
                }
                at = next;
            } else {
                let next = run.map_or(end, |run| run.start.min(end));
                for slice in self.copied(at, (next - at) as usize) {
                    if !slice.is_empty() {
                        pieces.push(Span::of(slice));
                    }
                }
                at = next;
            }
        }
        pieces
    }

    /// Copied bytes from `offset` on, in two pieces.
    fn copied(&self, offset: u64, len: usize) -> [&[u8]; 2] {
        let elsewhere = self.runs.as_ref().map_or(0, |runs| runs.before(offset));
        let from = ((offset - self.start - elsewhere) as usize).min(self.bytes.len());
        let to = (from + len).min(self.bytes.len());
        let (front, back) = self.bytes.as_slices();
        let middle = front.len();
        [&front[from.min(middle)..to.min(middle)], &back[from.max(middle) - middle..to.max(middle) - middle]]
    }

    /// Removes the bytes before `offset`.
    pub(crate) fn acknowledge(&mut self, offset: u64) {
        let count = (offset.saturating_sub(self.start) as usize).min(self.len);
        let elsewhere = self.runs.as_ref().map_or(0, |runs| runs.before(self.start + count as u64));
        self.bytes.drain(..count - elsewhere as usize);
        (self.start, self.len) = (self.start + count as u64, self.len - count);
        if let Some(runs) = &mut self.runs {
            runs.acknowledge(self.start);
            self.runs.take_if(|runs| runs.is_empty());
        }
        if let Some(records) = &mut self.records {
            while records.ends.pop_front_if(|end| *end <= self.start).is_some() {}
            self.records.take_if(|records| records.ends.is_empty());
        }
    }

    /// The bytes of its memory.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether it is empty, and has memory.
    pub(crate) fn is_spare(&self) -> bool {
        self.bytes.is_empty() && self.bytes.capacity() > 0
    }

    /// Returns the memory of an empty buffer.
    pub(crate) fn release(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = VecDeque::new();
        }
    }
}

/// Received bytes: segments are placed by their offset, in order or not.
#[derive(Debug, Default)]
pub(crate) struct ReceiveBuffer {
    /// Only while it is in use: most connections of a server are idle.
    memory: Option<Box<Chunks>>,
    /// The first unread byte.
    start: u64,
    /// The first missing byte.
    next: u64,
    /// Received ranges after `next`: start and end.
    ranges: BTreeMap<u64, u64>,
    /// The sum of their lengths: less than a window, which has 30 bits.
    apart: u32,
    /// Starts of ranges, the most recently changed last (RFC 2018, 4).
    recent: Vec<u64>,
    /// How many of the last of them have not been reported since they changed.
    unreported: u16,
    /// The size of a chunk of its memory is 2 to the power of this.
    chunk: u8,
    /// Bytes before this offset that arrive in order are not stored, since the caller of `place` has them.
    passed: u64,
}

/// What became of a segment's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placed {
    /// Bytes that can now be read.
    pub in_order: u64,
    /// Whether some of its bytes had been received already: their range.
    pub duplicate: Option<(u64, u64)>,
    /// Whether it filled a hole.
    pub filled: bool,
    /// Bytes that were copied.
    pub copied: u64,
}

/// The size of a chunk of a receive buffer that holds at most so many bytes.
fn chunk_of(most: usize) -> usize {
    1 << most.clamp(FIRST, CHUNK).ilog2()
}

/// The bytes of memory that the buffer of a window of `most` bytes takes at most.
pub(crate) fn most_memory(most: usize) -> usize {
    let chunk = chunk_of(most);
    most.div_ceil(chunk).saturating_add(1).saturating_mul(chunk)
}

impl ReceiveBuffer {
    /// `most`: bytes that it holds at most.
    pub(crate) fn new(start: u64, most: usize) -> ReceiveBuffer {
        let chunk = chunk_of(most).trailing_zeros() as u8;
        ReceiveBuffer { start, next: start, chunk, ..ReceiveBuffer::default() }
    }

    /// The offset of the first missing byte.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Bytes that can be read.
    pub(crate) fn readable(&self) -> usize {
        (self.next - self.start) as usize
    }

    /// The next `count` bytes go to a program directly: [`ReceiveBuffer::place`] does not store them if they begin a
    /// segment, and the caller removes them before anyone reads. 0 ends this.
    pub(crate) fn pass(&mut self, count: usize) {
        self.passed = if count == 0 { 0 } else { self.next + count as u64 };
    }

    /// Whether there are bytes after a hole.
    pub(crate) fn has_holes(&self) -> bool {
        !self.ranges.is_empty()
    }

    /// The end of the last range after a hole.
    pub(crate) fn last_end(&self) -> Option<u64> {
        self.ranges.last_key_value().map(|(_, end)| *end)
    }

    /// Bytes from the first missing one to the last received one, but at most twice of those that were received.
    /// Attack: a byte at the end of the window would count as a whole window.
    pub(crate) fn held(&self) -> u64 {
        let distance = self.ranges.last_key_value().map_or(0, |(_, end)| end - self.next);
        distance.min(2 * u64::from(self.apart))
    }

    /// Whether bytes after a hole would take too much memory for their number.
    fn is_sparse(&self, from: u64, end: u64) -> bool {
        let Some(memory) = &self.memory else { return false };
        let held = self.readable() + self.apart as usize;
        let grows = memory.is_missing(from) || memory.is_missing(end - 1);
        grows && memory.used() > (SPARSE << self.chunk) + DENSITY * held
    }

    /// Places bytes at `offset`; bytes after `limit` must have been cut off.
    pub(crate) fn place<'a>(&mut self, offset: u64, bytes: impl Into<Payload<'a>>) -> Placed {
        let bytes: Payload<'a> = bytes.into();
        let end = offset + bytes.len() as u64;
        let mut placed = Placed { duplicate: self.duplicate(offset, end), ..Placed::default() };
        let from = offset.max(self.next);
        if from >= end {
            return placed;
        }
        let is_full = self.ranges.len() >= RANGES && self.covering(from).is_none();
        if from > self.next && (is_full || self.is_sparse(from, end)) {
            return placed;
        }
        let mut at = if offset == self.next { from.max(self.passed.min(end)) } else { from };
        if at < end {
            placed.copied = end - at;
            let is_empty = self.is_empty();
            let memory =
                self.memory.get_or_insert_with(|| Box::new(Chunks::new(self.start, 1 << self.chunk)));
            if is_empty {
                memory.restart(self.start);
            }
            memory.reserve(self.start, end);
            for piece in bytes.from((at - offset) as usize).pieces() {
                memory.write(at, piece);
                at += piece.len() as u64;
            }
        }
        let (mut low, mut high) = (from, end);
        if let Some((start, range_end)) = self.ranges.range(..=from).next_back().map(|(&s, &e)| (s, e))
            && range_end >= from
        {
            (low, high) = (start, high.max(range_end));
        }
        while let Some((&start, &range_end)) = self.ranges.range(low..=high).next() {
            self.ranges.remove(&start);
            self.apart -= (range_end - start) as u32;
            self.forget(start);
            high = high.max(range_end);
        }
        if low == self.next {
            placed.in_order = high - self.next;
            placed.filled = high > end || self.has_holes();
            self.next = high;
        } else {
            self.ranges.insert(low, high);
            self.apart += (high - low) as u32;
            if self.recent.len() == CHANGED {
                self.recent.remove(0);
            }
            self.recent.push(low);
            self.unreported = (self.unreported + 1).min(CHANGED as u16);
        }
        placed
    }

    /// A range is part of another one now, or was received up to its end.
    fn forget(&mut self, start: u64) {
        if let Some(at) = self.recent.iter().rposition(|recent| *recent == start) {
            self.unreported -= u16::from(at + usize::from(self.unreported) >= self.recent.len());
            self.recent.remove(at);
        }
    }

    fn covering(&self, offset: u64) -> Option<(u64, u64)> {
        let (&start, &end) = self.ranges.range(..=offset).next_back()?;
        (end >= offset).then_some((start, end))
    }

    /// The first range of `offset .. end` that has been received already (RFC 2883, 4).
    fn duplicate(&self, offset: u64, end: u64) -> Option<(u64, u64)> {
        if offset < self.next {
            return Some((offset, end.min(self.next)));
        }
        let (start, range_end) =
            self.covering(offset).filter(|&(_, range_end)| range_end > offset).or_else(|| {
                self.ranges.range(offset..end).next().map(|(&start, &range_end)| (start, range_end))
            })?;
        Some((offset.max(start), end.min(range_end)))
    }

    /// The blocks to report in an acknowledgment with room for `most`, the most recent first. If more have changed
    /// since the last acknowledgment, as when frames arrive in bursts, those that changed first: the peer would
    /// otherwise take for lost what is never reported.
    pub(crate) fn blocks(&self, most: usize) -> impl Iterator<Item = (u64, u64)> {
        let later = usize::from(self.unreported).saturating_sub(most);
        let now = self.recent.iter().rev().skip(later).take(most);
        now.filter_map(|start| Some((*start, *self.ranges.get(start)?)))
    }

    /// So many blocks were reported.
    pub(crate) fn blocks_sent(&mut self, count: usize) {
        self.unreported = self.unreported.saturating_sub(count as u16);
        let kept = usize::from(self.unreported).max(SACK_BLOCKS);
        self.recent.drain(..self.recent.len().saturating_sub(kept));
    }

    /// Whether ranges have changed and were not reported since.
    pub(crate) fn has_unreported(&self) -> bool {
        self.unreported > 0
    }

    /// The unread bytes, in order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.memory.iter().flat_map(|memory| memory.pieces(self.start, self.next))
    }

    /// Removes `count` bytes that were read.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count.min(self.readable()) as u64;
        if let Some(memory) = &mut self.memory {
            memory.advance(self.start);
        }
    }

    fn is_empty(&self) -> bool {
        self.start == self.next && self.ranges.is_empty()
    }

    /// The bytes of its memory.
    pub(crate) fn memory(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.memory())
    }

    /// How many bytes it holds, unread ones included, without further memory, or with `least` bytes.
    pub(crate) fn capacity(&self, least: usize) -> usize {
        (self.edge(least) - self.start) as usize
    }

    /// The offset up to which it stores bytes without further memory, or with `least` bytes: at least that of the
    /// first missing byte. Attack: chunks that lie far behind a hole, counted as room before it, would let a peer fill
    /// the hole, and so have more of them.
    pub(crate) fn edge(&self, least: usize) -> u64 {
        let room = match &self.memory {
            // All of it begins anew with the next byte.
            Some(memory) if self.is_empty() => self.start + memory.memory() as u64,
            Some(memory) => memory.edge(self.next),
            None => self.start,
        };
        // A buffer that holds nothing at all would stop the stream.
        let least = self.start + least.max(1) as u64;
        room.max(least).max(self.next).max(self.passed)
    }

    /// Whether it is empty and has memory, or has memory that it does not use.
    pub(crate) fn is_spare(&self) -> bool {
        let has_free = self.memory.as_ref().is_some_and(|memory| memory.has_free());
        has_free || self.is_empty() && (self.memory.is_some() || self.recent.capacity() > 0)
    }

    /// Returns memory that was not used since it was called last, whether or not the buffer is empty. Attack: a peer
    /// that fills the buffer once, and then leaves a hole open or sends a byte now and then.
    pub(crate) fn age(&mut self) {
        if let Some(memory) = &mut self.memory {
            memory.age();
        }
    }

    /// Returns the memory of an empty buffer.
    pub(crate) fn release(&mut self) {
        if self.is_empty() {
            (self.memory, self.recent) = (None, Vec::new());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STREAM: u64 = 1 << 32;

    #[test]
    fn sent_bytes_stay_until_acknowledged() {
        let mut buffer = SendBuffer::new(STREAM);
        assert_eq!(buffer.push(&[1; 10], 16), 10);
        assert_eq!(buffer.push(&[2; 10], 16), 6);
        buffer.acknowledge(STREAM + 8);
        assert_eq!((buffer.len(), buffer.end()), (8, STREAM + 16));
        assert_eq!(joined(&buffer.pieces(STREAM + 9, 3)), [1, 2, 2]);
        assert_eq!(joined(&buffer.pieces(STREAM + 15, 30)), [2]);
    }

    fn joined(pieces: &[Span<'_>]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for piece in pieces {
            let mut out = vec![0; piece.len()];
            piece.read(&mut out);
            bytes.extend(out);
        }
        bytes
    }

    fn unread(buffer: &ReceiveBuffer) -> Vec<u8> {
        buffer.pieces().flatten().copied().collect()
    }

    #[test]
    fn a_record_ends_once_and_is_forgotten_when_acknowledged() {
        let mut buffer = SendBuffer::new(STREAM);
        buffer.end_record();
        assert_eq!(buffer.next_record_end(STREAM), None);
        buffer.push(&[1; 10], 100);
        buffer.end_record();
        buffer.end_record();
        buffer.push(&[1; 10], 100);
        assert_eq!([0, 9, 10].map(|at| buffer.record_end(STREAM + at) - STREAM), [10, 10, 20]);
        assert!(buffer.is_record_end(STREAM + 10) && !buffer.is_record_end(STREAM + 20));
        buffer.acknowledge(STREAM + 10);
        assert!(buffer.records.is_none());
        (0..2 * RECORDS).for_each(|_| {
            buffer.push(&[1], 1 << 20);
            buffer.end_record();
        });
        assert_eq!(buffer.records.as_ref().map(|records| records.ends.len()), Some(RECORDS));
    }

    #[test]
    fn only_empty_buffers_return_their_memory() {
        let (mut sending, mut receiving) = (SendBuffer::new(STREAM), ReceiveBuffer::new(STREAM, 6 << 20));
        sending.push(&[1; 10_000], 1 << 20);
        receiving.place(STREAM, &[1; 10_000]);
        assert!(!sending.is_spare() && !receiving.is_spare());
        sending.release();
        receiving.release();
        assert_eq!((sending.len(), receiving.readable()), (10_000, 10_000));
        sending.acknowledge(STREAM + 10_000);
        receiving.consume(10_000);
        assert!(sending.is_spare() && receiving.is_spare());
        sending.release();
        receiving.release();
        assert_eq!((sending.bytes.capacity(), receiving.memory.is_none()), (0, true));
        assert!(!sending.is_spare() && !receiving.is_spare());
    }

    #[test]
    fn blocks_are_the_most_recent_first() {
        let mut buffer = ReceiveBuffer::new(STREAM, 6 << 20);
        for at in [10, 30, 50] {
            buffer.place(STREAM + at, &[0; 10]);
        }
        buffer.place(STREAM + 20, &[0; 5]);
        let blocks: Vec<_> = buffer.blocks(SACK_BLOCKS).map(|(s, e)| (s - STREAM, e - STREAM)).collect();
        assert_eq!(blocks, [(10, 25), (50, 60), (30, 40)]);
        let again = buffer.place(STREAM + 32, &[0; 4]);
        assert_eq!(again.duplicate, Some((STREAM + 32, STREAM + 36)));
    }

    #[test]
    fn ranges_that_change_together_are_all_reported() {
        let mut buffer = ReceiveBuffer::new(STREAM, 6 << 20);
        for at in (10..=100).step_by(10) {
            buffer.place(STREAM + at, &[0; 5]);
        }
        // Fills the hole between two of them.
        buffer.place(STREAM + 95, &[0; 5]);
        let mut reported = Vec::new();
        while buffer.has_unreported() {
            let blocks: Vec<_> =
                buffer.blocks(3).map(|(start, end)| (start - STREAM, end - STREAM)).collect();
            buffer.blocks_sent(blocks.len());
            reported.push(blocks);
        }
        assert_eq!(reported[0], [(30, 35), (20, 25), (10, 15)]);
        assert_eq!(reported[2], [(90, 105), (80, 85), (70, 75)]);
        assert_eq!(reported.len(), 3);
        // Then again the most recent ones.
        assert_eq!(buffer.blocks(3).next(), Some((STREAM + 90, STREAM + 105)));
        assert_eq!(buffer.recent.len(), SACK_BLOCKS);
        for at in (200..600).step_by(4) {
            buffer.place(STREAM + at, &[0; 2]);
        }
        assert_eq!((buffer.recent.len(), buffer.unreported), (CHANGED, CHANGED as u16));
        buffer.place(STREAM, &[0; 602]);
        assert!(!buffer.has_unreported() && buffer.recent.is_empty());
    }

    #[test]
    fn bytes_that_are_passed_are_not_stored() {
        let mut buffer = ReceiveBuffer::new(STREAM, 6 << 20);
        buffer.pass(60);
        // Not in order, and then in part a duplicate.
        buffer.place(STREAM + 30, &[3; 10]);
        buffer.pass(20);
        // Fills the hole: ten of its bytes are stored.
        assert_eq!(buffer.place(STREAM, &[1; 30]).in_order, 40);
        buffer.consume(20);
        buffer.pass(0);
        assert_eq!(unread(&buffer), [[1; 10], [3; 10]].concat());
        buffer.consume(20);
        buffer.pass(5);
        assert_eq!(buffer.place(STREAM + 35, &[4; 10]).in_order, 5);
        assert_eq!(unread(&buffer), [4; 5]);
        buffer.consume(5);
        buffer.release();
        buffer.pass(5);
        assert_eq!(buffer.place(STREAM + 45, &[5; 5]).in_order, 5);
        assert_eq!((buffer.readable(), buffer.memory.is_none()), (5, true));
    }

    proptest! {
        #[test]
        fn copied_and_shared_bytes_are_one_stream(
            steps in prop::collection::vec((0u8..4, 0usize..50, 0usize..50), 1..80),
        ) {
            let sources: Vec<Arc<dyn Source>> =
                [0u8, 100].map(|first| Arc::new((first..first + 100).collect::<Vec<u8>>()) as _).into();
            let (mut buffer, mut model, mut start) = (SendBuffer::new(STREAM), Vec::new(), 0);
            for (what, from, len) in steps {
                match what {
                    0 => {
                        let bytes = vec![200 + (len % 50) as u8; len];
                        let count = buffer.push(&bytes, 300);
                        model.extend_from_slice(&bytes[..count]);
                    }
                    1 => {
                        let source = len % 2;
                        let count = buffer.push_run(&sources[source], from..from + len, 300);
                        model.extend((from..from + count).map(|at| (100 * source + at) as u8));
                    }
                    2 => {
                        start = model.len().min(start + from);
                        buffer.acknowledge(STREAM + start as u64);
                    }
                    _ => {
                        let at = model.len().min(start + from);
                        let pieces = joined(&buffer.pieces(STREAM + at as u64, len));
                        prop_assert!(!pieces.is_empty() || len == 0 || at == model.len());
                        prop_assert_eq!(&pieces[..], &model[at..at + pieces.len()]);
                    }
                }
                prop_assert_eq!(buffer.len(), model.len() - start);
                prop_assert_eq!(buffer.end(), STREAM + model.len() as u64);
            }
            buffer.acknowledge(STREAM + model.len() as u64);
            prop_assert!(buffer.bytes.is_empty() && buffer.runs.is_none());
        }

        #[test]
        fn pieces_in_any_order_give_the_stream(
            bits in 6u8..17, ages: bool,
            cuts in prop::collection::vec((0usize..600, 1usize..200), 1..60), read in 0usize..300,
        ) {
            let stream: Vec<u8> = (0..800).map(|at| (at * 7 % 251) as u8).collect();
            // Chunks that are small enough for pieces to cross them.
            let mut buffer = ReceiveBuffer { chunk: bits, ..ReceiveBuffer::new(STREAM, 6 << 20) };
            let mut model = [false; 800];
            let mut out = Vec::new();
            for (from, len) in cuts {
                let before = model[from..from + len].iter().any(|&there| there);
                let (start, end) = (buffer.next().max(STREAM + from as u64), STREAM + (from + len) as u64);
                let refused = start > buffer.next() && start < end && buffer.is_sparse(start, end);
                let placed = buffer.place(STREAM + from as u64, &stream[from..from + len]);
                prop_assert_eq!(placed.duplicate.is_some(), before);
                if !refused {
                    model[from..from + len].fill(true);
                }
                let whole = model.iter().position(|&there| !there).unwrap_or(800);
                prop_assert_eq!(buffer.next() - STREAM, whole as u64);
                let chunk = 1 << bits;
                prop_assert!(buffer.memory() <= (800_usize.div_ceil(chunk) + 1) * chunk);
                let bytes = unread(&buffer);
                out.extend_from_slice(&bytes[..read.min(bytes.len())]);
                buffer.consume(read);
                if ages {
                    buffer.age();
                }
                let held = model[whole..].iter().filter(|there| **there).count();
                prop_assert_eq!(buffer.apart as usize, held);
                for (start, end) in buffer.blocks(SACK_BLOCKS) {
                    let block = (start - STREAM) as usize..(end - STREAM) as usize;
                    prop_assert!(model[block].iter().all(|&there| there));
                }
            }
            out.extend(unread(&buffer));
            prop_assert_eq!(&out[..], &stream[..out.len()]);
        }

        #[test]
        fn memory_follows_the_window(
            most in 1usize..20_000,
            steps in prop::collection::vec((0usize..1000, 1usize..1500, 0usize..1000), 1..200),
        ) {
            let stream = [7; 1500];
            let mut buffer = ReceiveBuffer::new(STREAM, most);
            for (ahead, len, read) in steps {
                // Segments within the window; every other one leaves a hole.
                let left = most - buffer.readable();
                let from = if ahead < 500 { 0 } else { left * (ahead - 500) / 500 };
                let len = len.min(left - from);
                buffer.place(buffer.next() + from as u64, &stream[..len]);
                prop_assert!(buffer.memory() <= most_memory(most), "{} of {most}", buffer.memory());
                buffer.consume(buffer.readable() * read / 1000);
            }
        }
    }

    #[test]
    fn a_hole_that_is_always_open_takes_a_chunk_more_than_the_window() {
        for most in [4 << 10, 6 << 10, 64 << 10, 256 << 10] {
            let mut buffer = ReceiveBuffer::new(STREAM, most);
            assert_eq!(most_memory(most), (most.div_ceil(chunk_of(most)) + 1) * chunk_of(most));
            for _ in 0..2000 {
                // The last byte of the window, and then those before it but the first.
                buffer.place(buffer.next() + most as u64 - 1, &[2]);
                buffer.place(buffer.next() + 1, &[1; 999]);
                buffer.place(buffer.next(), &[1]);
                assert!(buffer.memory() <= most_memory(most), "{} of {most}", buffer.memory());
                buffer.consume(buffer.readable());
                assert!(buffer.has_holes());
            }
        }
        // A program that leaves a byte unread.
        let mut buffer = ReceiveBuffer::new(STREAM, 4 << 10);
        for _ in 0..1000 {
            buffer.place(buffer.next(), &[1; 500]);
            buffer.consume(buffer.readable() - 1);
        }
        assert_eq!(buffer.memory(), FIRST);
    }

    #[test]
    fn memory_that_is_not_used_is_returned_though_a_hole_is_open() {
        let most = 6 << 20;
        let mut buffer = ReceiveBuffer::new(STREAM, most);
        buffer.place(STREAM, &*alloc::vec![1; most]);
        buffer.consume(most);
        assert!(buffer.memory() >= most - CHUNK);
        buffer.place(buffer.next() + 1, &[1]);
        (0..2).for_each(|_| buffer.age());
        assert_eq!((buffer.memory(), buffer.is_spare()), (CHUNK, false));
        // A byte in each round.
        buffer.place(buffer.next(), &*alloc::vec![1; most]);
        for _ in 0..10 {
            buffer.consume(buffer.readable());
            buffer.place(buffer.next(), &[1]);
            buffer.age();
        }
        assert!(buffer.memory() <= 2 * CHUNK, "{}", buffer.memory());
    }

    #[test]
    fn a_byte_in_each_chunk_does_not_take_a_window_of_memory() {
        let mut buffer = ReceiveBuffer::new(STREAM, 6 << 20);
        for number in (1..96).rev() {
            buffer.place(STREAM + number * CHUNK as u64, &[1]);
            // Bytes across a boundary, and beside stored ones.
            buffer.place(STREAM + number * CHUNK as u64 - 1, &[1; 2]);
            buffer.place(STREAM + (number + 1) * CHUNK as u64 - 1, &[1]);
        }
        assert!(buffer.memory() <= (SPARSE + 2) * CHUNK, "{}", buffer.memory());
        // One segment in ten of a window.
        let mut buffer = ReceiveBuffer::new(STREAM, 6 << 20);
        for number in (1..430).rev() {
            buffer.place(STREAM + number * 14_480, &[1; 1448]);
        }
        assert_eq!((buffer.apart, buffer.held()), (429 * 1448, 2 * 429 * 1448));
    }
}
