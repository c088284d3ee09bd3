//! Memory for the bytes of a window of a stream, in chunks: it grows without moving what it holds, and the chunk that
//! was read last is written next, while it is still in the core's cache.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use ringway_mem::Span;

/// Size of the first allocation.
const FIRST: usize = 2048;
/// Size of a chunk. The first one is smaller, a power of two, while it is the only one.
const CHUNK: usize = 64 << 10;

/// Chunks that follow each other in the stream.
#[derive(Debug)]
pub(super) struct Chunks {
    /// `None`: no byte of it has arrived.
    used: VecDeque<Option<Box<[u8]>>>,
    /// The offset of the first chunk's first byte.
    base: u64,
    /// Chunks that were read, to be used again. Together there are never more than were used at once.
    free: Vec<Box<[u8]>>,
}

fn allocate(len: usize) -> Box<[u8]> {
    alloc::vec![0; len].into_boxed_slice()
}

impl Chunks {
    /// No memory yet; the first byte is at `base`.
    pub(super) fn new(base: u64) -> Chunks {
        Chunks { used: VecDeque::new(), base, free: Vec::new() }
    }

    /// Whether it has more than the smallest amount of memory.
    pub(super) fn is_large(&self) -> bool {
        !self.free.is_empty()
            || self.used.len() > 1
            || self.used.iter().flatten().any(|memory| memory.len() > FIRST)
    }

    /// Nothing is held; the next byte is that at `base`.
    pub(super) fn restart(&mut self, base: u64) {
        self.free.extend(self.used.drain(1.min(self.used.len())..).flatten());
        self.base = base;
    }

    /// The bytes before `start` were read.
    pub(super) fn advance(&mut self, start: u64) {
        while start - self.base >= CHUNK as u64
            && let Some(first) = self.used.pop_front()
        {
            // A smaller one was the only one, and what followed was never stored.
            self.free.extend(first.filter(|memory| memory.len() == CHUNK));
            self.base += CHUNK as u64;
        }
        if self.used.is_empty() {
            self.base = start;
        }
    }

    /// Makes room for bytes up to `end`.
    pub(super) fn reserve(&mut self, end: u64) {
        let needed = (end - self.base) as usize;
        let size = if self.used.len() > 1 { CHUNK } else { needed.next_power_of_two().clamp(FIRST, CHUNK) };
        if let Some(Some(first)) = self.used.front_mut()
            && first.len() < size
        {
            let used_before = if size == CHUNK { self.free.pop() } else { None };
            let mut larger = used_before.unwrap_or_else(|| allocate(size));
            larger[..first.len()].copy_from_slice(first);
            *first = larger;
        } else if self.used.is_empty() && size < CHUNK && self.free.is_empty() {
            self.used.push_back(Some(allocate(size)));
        }
        let count = needed.div_ceil(CHUNK);
        if self.used.len() < count {
            self.used.resize_with(count, || None);
        }
    }

    /// Writes bytes, for which there is room, at `offset`.
    pub(super) fn write(&mut self, offset: u64, bytes: Span<'_>) {
        let (mut at, mut rest) = ((offset - self.base) as usize, bytes);
        while !rest.is_empty()
            && let Some(memory) = self.used.get_mut(at / CHUNK)
        {
            let memory = memory.get_or_insert_with(|| self.free.pop().unwrap_or_else(|| allocate(CHUNK)));
            let begin = at % CHUNK;
            let (piece, later) = rest.split(rest.len().min(CHUNK - begin));
            piece.read(&mut memory[begin..begin + piece.len()]);
            (at, rest) = (at + piece.len(), later);
        }
    }

    /// The bytes of a range that were written, in order.
    pub(super) fn pieces(&self, from: u64, to: u64) -> impl Iterator<Item = &[u8]> {
        let (from, to) = ((from - self.base) as usize, (to - self.base) as usize);
        let last = to.div_ceil(CHUNK).min(self.used.len());
        let range = (from / CHUNK).min(last)..last;
        let first = range.start;
        self.used.range(range).enumerate().filter_map(move |(number, memory)| {
            let begin = (first + number) * CHUNK;
            memory.as_deref()?.get(from.max(begin) - begin..to.min(begin + CHUNK) - begin)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STREAM: u64 = 1 << 32;

    fn read(chunks: &Chunks, from: usize, to: usize) -> Vec<u8> {
        chunks.pieces(STREAM + from as u64, STREAM + to as u64).flatten().copied().collect()
    }

    #[test]
    fn what_was_read_is_used_again() {
        let mut chunks = Chunks::new(STREAM);
        let bytes = alloc::vec![1; 3 * CHUNK];
        chunks.reserve(STREAM + 3 * CHUNK as u64);
        chunks.write(STREAM, Span::of(&bytes));
        chunks.advance(STREAM + 2 * CHUNK as u64 + 5);
        assert_eq!((chunks.used.len(), chunks.free.len()), (1, 2));
        chunks.reserve(STREAM + 5 * CHUNK as u64);
        chunks.write(STREAM + 4 * CHUNK as u64, Span::of(&bytes[..CHUNK]));
        // The chunk between has no byte yet, and no memory.
        assert_eq!((chunks.used.len(), chunks.free.len()), (3, 1));
        chunks.restart(STREAM + 5 * CHUNK as u64);
        assert_eq!((chunks.used.len(), chunks.free.len()), (1, 2));
    }

    #[test]
    fn a_small_buffer_has_little_memory() {
        let mut chunks = Chunks::new(STREAM);
        chunks.reserve(STREAM + 10);
        assert!(!chunks.is_large());
        chunks.reserve(STREAM + FIRST as u64 + 1);
        let memory: usize = chunks.used.iter().flatten().map(|memory| memory.len()).sum();
        assert_eq!((memory, chunks.is_large()), (2 * FIRST, true));
    }

    proptest! {
        #[test]
        fn written_bytes_are_read(
            steps in prop::collection::vec((0u8..8, 0usize..3 * CHUNK, 1usize..CHUNK + 5000), 1..40),
        ) {
            // What was written, if it was, by offset; `start`: what was read.
            let (mut chunks, mut model, mut start) = (Chunks::new(STREAM), Vec::<Option<u8>>::new(), 0);
            for (what, ahead, len) in steps {
                match what {
                    0 => {
                        start = model.len();
                        chunks.restart(STREAM + start as u64);
                    }
                    1 => {
                        start = (start + ahead).min(model.len());
                        chunks.advance(STREAM + start as u64);
                    }
                    _ => {
                        let most = if what < 6 { 3000 } else { 4 * CHUNK };
                        let (from, len) = (start + ahead % most, len % most);
                        let bytes: Vec<u8> = (from..from + len).map(|at| (at % 251) as u8 ^ what).collect();
                        chunks.reserve(STREAM + (from + len) as u64);
                        chunks.write(STREAM + from as u64, Span::of(&bytes));
                        model.resize(model.len().max(from + len), None);
                        for (place, byte) in model[from..].iter_mut().zip(&bytes) {
                            *place = Some(*byte);
                        }
                    }
                }
                let whole = model[start..].iter().map_while(|byte| *byte).collect::<Vec<u8>>();
                prop_assert_eq!(read(&chunks, start, start + whole.len()), whole);
            }
        }
    }
}
