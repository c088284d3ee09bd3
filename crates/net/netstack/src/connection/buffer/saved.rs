//! Buffers as bytes, for connections that move to another stack.

use super::{CHANGED, RANGES, RECORDS, ReceiveBuffer, SendBuffer};
use crate::codec::{Bound, Field, Reader, STREAM, put_bytes};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

impl SendBuffer {
    /// Writes its bytes, also those that are elsewhere, and the ends of records. `false`: some are gone.
    pub(crate) fn save(&self, to: &mut Vec<u8>) -> bool {
        (self.start, self.len).put(to);
        let (mut at, mut bytes) = (self.start, Vec::new());
        while at < self.end() {
            for piece in self.pieces(at, self.len) {
                let from = bytes.len();
                bytes.resize(from + piece.len(), 0);
                piece.read(&mut bytes[from..]);
            }
            if self.start + bytes.len() as u64 == at {
                return false;
            }
            at = self.start + bytes.len() as u64;
        }
        to.extend_from_slice(&bytes);
        let ends = self.records.as_ref().map(|records| &records.ends);
        ends.map_or(0, VecDeque::len).put(to);
        ends.into_iter().flatten().for_each(|end| (end - self.start).put(to));
        !self.is_lost()
    }

    /// A buffer with what [`SendBuffer::save`] wrote, of at most `most` bytes.
    pub(crate) fn restore(from: &mut Reader<'_>, most: usize) -> Option<SendBuffer> {
        let mut new = SendBuffer::new(u64::take(from, STREAM)?);
        let bytes = from.bytes(most)?;
        new.push(bytes, bytes.len());
        let mut last = 0;
        for _ in 0..usize::take(from, Bound::Most(RECORDS as u64))? {
            let end = u64::take(from, Bound::Most(bytes.len() as u64))?;
            if end <= last {
                return None;
            }
            new.records.get_or_insert_default().ends.push_back(new.start + end);
            last = end;
        }
        Some(new)
    }
}

impl ReceiveBuffer {
    /// Writes what it holds: the unread bytes, and the ranges after holes, those that changed last at the end.
    pub(crate) fn save(&self, to: &mut Vec<u8>) {
        self.start.put(to);
        put_bytes(to, self.readable(), self.pieces());
        let is_recent = |start: &u64| self.recent.contains(start) && self.ranges.contains_key(start);
        let others = self.ranges.keys().filter(|start| !is_recent(start));
        let recent = self.recent.iter().filter(|start| is_recent(start));
        self.ranges.len().put(to);
        for (start, end) in others.chain(recent).filter_map(|start| Some((*start, *self.ranges.get(start)?)))
        {
            (start - self.next).put(to);
            let memory = self.memory.iter().flat_map(|memory| memory.pieces(start, end));
            put_bytes(to, (end - start) as usize, memory);
        }
        self.recent.len().put(to);
        self.unreported.put(to);
    }

    /// Stores what [`ReceiveBuffer::save`] wrote, at most `most` bytes, in an empty buffer. Bytes after a hole that
    /// would take too much memory are forgotten, as those of a segment are.
    pub(crate) fn restore(&mut self, from: &mut Reader<'_>, most: usize) -> Option<()> {
        self.start = u64::take(from, STREAM)?;
        self.next = self.start;
        let unread = from.bytes(most)?;
        self.place(self.start, unread);
        let next = self.next;
        for _ in 0..usize::take(from, Bound::Most(RANGES as u64))? {
            let distance = u64::take(from, Bound::Most(most as u64))?;
            let bytes = from.bytes(most - (distance as usize).min(most))?;
            if distance > 0 {
                self.place(next + distance, bytes);
            }
        }
        let recent = usize::take(from, Bound::Most(CHANGED as u64))?;
        let unreported = u16::take(from, Bound::Most(CHANGED as u64))?;
        self.recent.drain(..self.recent.len().saturating_sub(recent));
        self.unreported = unreported.min(self.recent.len() as u16);
        (self.next == next).then_some(())
    }
}
