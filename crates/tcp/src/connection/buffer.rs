//! The byte streams of a connection: sent bytes until they are acknowledged, received bytes until they are
//! read.

use super::chunks::Chunks;
use super::payload::Payload;
use super::shared::{Runs, Source};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use arrayvec::ArrayVec;
use core::ops::Range;
use ringway_mem::Span;

/// Capacity of a buffer's first allocation.
const FIRST: usize = 2048;
/// Ranges of out-of-order bytes. Attack: every second byte of the window would cost an entry of 50 bytes.
const RANGES: usize = 8192;
/// Changed ranges that are kept until they are reported. Attack: a peer that leaves holes, to a program that is late,
/// would make a list without end; each acknowledgment reports three.
const CHANGED: usize = 64;
/// Ends of records that a send buffer keeps.
const RECORDS: usize = 1024;
/// SACK blocks that fit into a header without other options.
pub(crate) const SACK_BLOCKS: usize = 4;

/// Pieces of a frame's payload: 64 KB in buffers of 4 KB, and some more. A frame ends where it would have more.
pub(crate) const PIECES: usize = 24;
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

    /// The offset after the last byte.
    pub(crate) fn end(&self) -> u64 {
        self.start + self.len as u64
    }

    /// Appends bytes up to a length of `limit`; returns how many.
    pub(crate) fn push(&mut self, bytes: &[u8], limit: usize) -> usize {
        let count = bytes.len().min(limit.saturating_sub(self.len));
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

    /// Whether it is empty, and has much memory.
    pub(crate) fn is_spare(&self) -> bool {
        self.bytes.is_empty() && self.bytes.capacity() > FIRST
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
    /// Starts of ranges, the most recently changed last (RFC 2018, 4).
    recent: Vec<u64>,
    /// How many of the last of them have not been reported since they changed.
    unreported: usize,
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
}

impl ReceiveBuffer {
    pub(crate) fn new(start: u64) -> ReceiveBuffer {
        ReceiveBuffer { start, next: start, ..ReceiveBuffer::default() }
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

    /// Bytes from the first missing one to the last received one.
    pub(crate) fn held(&self) -> u64 {
        self.ranges.last_key_value().map_or(0, |(_, end)| end - self.next)
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
        if from > self.next && self.ranges.len() >= RANGES && self.covering(from).is_none() {
            return placed;
        }
        let mut at = if offset == self.next { from.max(self.passed.min(end)) } else { from };
        if at < end {
            let is_empty = self.is_empty();
            let memory = self.memory.get_or_insert_with(|| Box::new(Chunks::new(self.start)));
            if is_empty {
                memory.restart(self.start);
            }
            memory.reserve(end);
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
            self.forget(start);
            high = high.max(range_end);
        }
        if low == self.next {
            placed.in_order = high - self.next;
            placed.filled = high > end || self.has_holes();
            self.next = high;
        } else {
            self.ranges.insert(low, high);
            if self.recent.len() == CHANGED {
                self.recent.remove(0);
            }
            self.recent.push(low);
            self.unreported = (self.unreported + 1).min(CHANGED);
        }
        placed
    }

    /// A range is part of another one now, or was received up to its end.
    fn forget(&mut self, start: u64) {
        if let Some(at) = self.recent.iter().rposition(|recent| *recent == start) {
            self.unreported -= usize::from(at + self.unreported >= self.recent.len());
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
        let later = self.unreported.saturating_sub(most);
        let now = self.recent.iter().rev().skip(later).take(most);
        now.filter_map(|start| Some((*start, *self.ranges.get(start)?)))
    }

    /// So many blocks were reported.
    pub(crate) fn blocks_sent(&mut self, count: usize) {
        self.unreported = self.unreported.saturating_sub(count);
        let kept = self.unreported.max(SACK_BLOCKS);
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

    /// Whether it is empty, and has much memory.
    pub(crate) fn is_spare(&self) -> bool {
        let is_large = self.memory.as_ref().is_some_and(|memory| memory.is_large());
        self.is_empty() && (is_large || self.recent.capacity() > 0)
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
        let (mut sending, mut receiving) = (SendBuffer::new(STREAM), ReceiveBuffer::new(STREAM));
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
        let mut buffer = ReceiveBuffer::new(STREAM);
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
        let mut buffer = ReceiveBuffer::new(STREAM);
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
        assert_eq!((buffer.recent.len(), buffer.unreported), (CHANGED, CHANGED));
        buffer.place(STREAM, &[0; 602]);
        assert!(!buffer.has_unreported() && buffer.recent.is_empty());
    }

    #[test]
    fn bytes_that_are_passed_are_not_stored() {
        let mut buffer = ReceiveBuffer::new(STREAM);
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
            cuts in prop::collection::vec((0usize..600, 1usize..200), 1..60), read in 0usize..300,
        ) {
            let stream: Vec<u8> = (0..800).map(|at| (at * 7 % 251) as u8).collect();
            let mut buffer = ReceiveBuffer::new(STREAM);
            let mut model = [false; 800];
            let mut out = Vec::new();
            for (from, len) in cuts {
                let before = model[from..from + len].iter().any(|&there| there);
                let placed = buffer.place(STREAM + from as u64, &stream[from..from + len]);
                prop_assert_eq!(placed.duplicate.is_some(), before);
                model[from..from + len].fill(true);
                let whole = model.iter().position(|&there| !there).unwrap_or(800);
                prop_assert_eq!(buffer.next() - STREAM, whole as u64);
                let bytes = unread(&buffer);
                out.extend_from_slice(&bytes[..read.min(bytes.len())]);
                buffer.consume(read);
                for (start, end) in buffer.blocks(SACK_BLOCKS) {
                    let block = (start - STREAM) as usize..(end - STREAM) as usize;
                    prop_assert!(model[block].iter().all(|&there| there));
                }
            }
            out.extend(unread(&buffer));
            prop_assert_eq!(&out[..], &stream[..out.len()]);
        }
    }
}
