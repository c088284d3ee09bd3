//! Memory for the bytes of a window of a stream, in chunks: it grows without moving what it holds, and the chunk that
//! was read last is written next, while it is still in the core's cache.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use ringway_mem::Span;

/// Size of the first allocation.
pub(super) const FIRST: usize = 2048;
/// Size of the chunks of large buffers.
pub(super) const CHUNK: usize = 64 << 10;

/// Chunks that follow each other in the stream. Together they have as many bytes as the window at most, rounded up to
/// whole chunks, and one chunk more.
#[derive(Debug)]
pub(super) struct Chunks {
    /// `None`: no byte of it has arrived.
    used: VecDeque<Option<Box<[u8]>>>,
    /// The offset of the first chunk's first byte.
    base: u64,
    /// Size of a chunk, a power of two. The first one is smaller, a power of two, while it is the only one.
    size: usize,
    /// Chunks that were read, to be used again. Together there are never more than were used at once.
    free: Vec<Box<[u8]>>,
    /// The fewest of them since [`Chunks::age`] was called last.
    unused: usize,
    /// The bytes of all chunks.
    memory: usize,
}

fn allocate(len: usize) -> Box<[u8]> {
    alloc::vec![0; len].into_boxed_slice()
}

impl Chunks {
    /// No memory yet; the first byte is at `base`. `size`: of a chunk, a power of two.
    pub(super) fn new(base: u64, size: usize) -> Chunks {
        Chunks { used: VecDeque::new(), base, size, free: Vec::new(), unused: 0, memory: 0 }
    }

    /// Whether it has chunks to be used again.
    pub(super) fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// Frees those chunks that have not been used since it was called last.
    pub(super) fn age(&mut self) {
        let kept = self.free.len().saturating_sub(self.unused);
        self.memory -= (self.free.len() - kept) * self.size;
        self.free.truncate(kept);
        self.unused = self.free.len();
        if self.free.is_empty() {
            self.free = Vec::new();
        }
    }

    /// The bytes of its memory.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// The bytes of the chunks that hold something.
    pub(super) fn used(&self) -> usize {
        self.memory - self.free.len() * self.size
    }

    /// Whether the byte at `offset` needs another chunk.
    pub(super) fn is_missing(&self, offset: u64) -> bool {
        let at = (offset - self.base) as usize / self.size;
        self.used.get(at).is_none_or(|memory| memory.is_none())
    }

    /// The offset up to which bytes from `next` on have room without further memory: chunks that are missing take those
    /// that are free.
    pub(super) fn edge(&self, next: u64) -> u64 {
        let mut at = (next - self.base) as usize / self.size;
        let mut free = self.free.len();
        loop {
            let begin = self.base + (at * self.size) as u64;
            match self.used.get(at) {
                Some(Some(memory)) if memory.len() < self.size => return begin + memory.len() as u64,
                Some(Some(_)) => {}
                Some(None) | None if free > 0 => free -= 1,
                Some(None) | None => return begin,
            }
            at += 1;
        }
    }

    /// Nothing is held; the next byte is that at `base`.
    pub(super) fn restart(&mut self, base: u64) {
        self.free.extend(self.used.drain(1.min(self.used.len())..).flatten());
        self.base = base;
    }

    /// The bytes before `start` were read.
    pub(super) fn advance(&mut self, start: u64) {
        while start - self.base >= self.size as u64
            && let Some(first) = self.used.pop_front()
        {
            // A smaller one was the only one, and what followed was never stored.
            match first {
                Some(memory) if memory.len() == self.size => self.free.push(memory),
                Some(memory) => self.memory -= memory.len(),
                None => {}
            }
            self.base += self.size as u64;
        }
        if self.used.is_empty() {
            self.base = start;
        }
    }

    /// Makes room for bytes up to `end`; those before `start` were read.
    pub(super) fn reserve(&mut self, start: u64, end: u64) {
        if self.used.len() == 1
            && let Some(Some(first)) = self.used.front_mut()
            && first.len() < self.size
            && end - self.base > first.len() as u64
        {
            let (held, len) = ((end - start) as usize, first.len());
            let unread = ((start - self.base) as usize).min(len)..len;
            // Moved within it only if half of it was read since: each byte is moved once.
            if held <= len / 2 {
                first.copy_within(unread, 0);
            } else {
                let mut larger = allocate(held.next_power_of_two().clamp(2 * len, self.size));
                larger[..unread.len()].copy_from_slice(&first[unread]);
                self.memory += larger.len() - first.len();
                *first = larger;
            }
            self.base = start;
        }
        let needed = (end - self.base) as usize;
        if self.used.is_empty() && needed <= self.size / 2 && self.free.is_empty() {
            let first = allocate(needed.next_power_of_two().max(FIRST).min(self.size));
            self.memory += first.len();
            self.used.push_back(Some(first));
        }
        let count = needed.div_ceil(self.size);
        if self.used.len() < count {
            self.used.resize_with(count, || None);
        }
    }

    /// Writes bytes, for which there is room, at `offset`.
    pub(super) fn write(&mut self, offset: u64, bytes: Span<'_>) {
        let (mut at, mut rest) = ((offset - self.base) as usize, bytes);
        while !rest.is_empty()
            && let Some(memory) = self.used.get_mut(at / self.size)
        {
            let memory = memory.get_or_insert_with(|| match self.free.pop() {
                Some(memory) => {
                    self.unused = self.unused.min(self.free.len());
                    memory
                }
                None => {
                    self.memory += self.size;
                    allocate(self.size)
                }
            });
            let begin = at % self.size;
            let (piece, later) = rest.split(rest.len().min(self.size - begin));
            piece.read(&mut memory[begin..begin + piece.len()]);
            (at, rest) = (at + piece.len(), later);
        }
    }

    /// The bytes of a range that were written, in order.
    pub(super) fn pieces(&self, from: u64, to: u64) -> impl Iterator<Item = &[u8]> {
        let (from, to) = ((from - self.base) as usize, (to - self.base) as usize);
        let last = to.div_ceil(self.size).min(self.used.len());
        let range = (from / self.size).min(last)..last;
        let first = range.start;
        self.used.range(range).enumerate().filter_map(move |(number, memory)| {
            let begin = (first + number) * self.size;
            memory.as_deref()?.get(from.max(begin) - begin..to.min(begin + self.size) - begin)
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
        let mut chunks = Chunks::new(STREAM, CHUNK);
        let bytes = alloc::vec![1; 3 * CHUNK];
        chunks.reserve(STREAM, STREAM + 3 * CHUNK as u64);
        chunks.write(STREAM, Span::of(&bytes));
        chunks.advance(STREAM + 2 * CHUNK as u64 + 5);
        assert_eq!((chunks.used.len(), chunks.free.len()), (1, 2));
        chunks.reserve(STREAM + 2 * CHUNK as u64 + 5, STREAM + 5 * CHUNK as u64);
        chunks.write(STREAM + 4 * CHUNK as u64, Span::of(&bytes[..CHUNK]));
        // The chunk between has no byte yet, and no memory.
        assert_eq!((chunks.used.len(), chunks.free.len()), (3, 1));
        assert!(
            chunks.is_missing(STREAM + 3 * CHUNK as u64) && !chunks.is_missing(STREAM + 4 * CHUNK as u64)
        );
        chunks.restart(STREAM + 5 * CHUNK as u64);
        assert_eq!((chunks.used.len(), chunks.free.len()), (1, 2));
    }

    #[test]
    fn what_was_not_used_again_is_freed() {
        let (mut chunks, mut at) = (Chunks::new(STREAM, CHUNK), STREAM);
        let bytes = alloc::vec![1; 5 * CHUNK];
        let mut pass = |chunks: &mut Chunks, count: usize| {
            chunks.restart(at);
            chunks.reserve(at, at + (count * CHUNK) as u64);
            chunks.write(at, Span::of(&bytes[..count * CHUNK]));
            at += (count * CHUNK) as u64;
            chunks.advance(at);
        };
        pass(&mut chunks, 5);
        chunks.age();
        assert_eq!(chunks.free.len(), 5);
        // Three are used, twice; then none.
        pass(&mut chunks, 3);
        pass(&mut chunks, 1);
        chunks.age();
        assert_eq!(chunks.free.len(), 3);
        chunks.age();
        assert_eq!((chunks.memory(), chunks.has_free()), (0, false));
    }

    #[test]
    fn room_ends_where_no_chunk_is_left() {
        let mut chunks = Chunks::new(STREAM, CHUNK);
        let at = |number: usize| STREAM + (number * CHUNK) as u64;
        assert_eq!(chunks.edge(STREAM), STREAM);
        chunks.reserve(STREAM, STREAM + 10);
        assert_eq!(chunks.edge(STREAM), STREAM + FIRST as u64);
        let bytes = alloc::vec![1; 2 * CHUNK];
        chunks.reserve(STREAM, at(2));
        chunks.write(STREAM, Span::of(&bytes));
        // Chunks behind a hole give no room before it.
        chunks.reserve(STREAM, at(6));
        chunks.write(at(4), Span::of(&bytes));
        assert_eq!([0, 1].map(|number| chunks.edge(at(number) + 5)), [at(2); 2]);
        // What was read fills one half of the hole, or all of it.
        chunks.advance(at(1));
        assert_eq!(chunks.edge(at(1)), at(3));
        chunks.advance(at(2));
        assert_eq!(chunks.edge(at(2)), at(6));
        chunks.age();
        chunks.age();
        assert_eq!([2, 4].map(|number| chunks.edge(at(number))), [at(2), at(6)]);
    }

    #[test]
    fn a_small_buffer_has_little_memory() {
        let mut chunks = Chunks::new(STREAM, CHUNK);
        chunks.reserve(STREAM, STREAM + 10);
        assert_eq!(chunks.memory(), FIRST);
        chunks.reserve(STREAM, STREAM + FIRST as u64 + 1);
        assert_eq!(chunks.memory(), 2 * FIRST);
        // What is read makes room.
        for at in (0..1000).map(|number| STREAM + 1000 * number) {
            chunks.advance(at);
            chunks.reserve(at, at + 2000);
        }
        assert_eq!(chunks.memory(), 2 * FIRST);
    }

    proptest! {
        #[test]
        fn written_bytes_are_read(
            bits in 11u32..15, steps in prop::collection::vec((0u8..8, 0usize..3000, 1usize..6000), 1..60),
        ) {
            // Steps of fractions of a chunk.
            let size = 1_usize << bits;
            let part = |count: usize| count * size / 1000;
            // What was written, if it was, by offset; `start`: what was read.
            let (mut chunks, mut model, mut start) = (Chunks::new(STREAM, size), Vec::<Option<u8>>::new(), 0);
            for (what, ahead, len) in steps {
                match what {
                    0 => {
                        start = model.len();
                        chunks.restart(STREAM + start as u64);
                    }
                    1 => {
                        start = (start + part(ahead)).min(model.len());
                        chunks.advance(STREAM + start as u64);
                    }
                    _ => {
                        let most = if what < 6 { size / 20 } else { 4 * size };
                        let (from, len) = (start + part(ahead) % most, 1 + part(len) % most);
                        let bytes: Vec<u8> = (from..from + len).map(|at| (at % 251) as u8 ^ what).collect();
                        chunks.reserve(STREAM + start as u64, STREAM + (from + len) as u64);
                        chunks.write(STREAM + from as u64, Span::of(&bytes));
                        model.resize(model.len().max(from + len), None);
                        for (place, byte) in model[from..].iter_mut().zip(&bytes) {
                            *place = Some(*byte);
                        }
                    }
                }
                let whole = model[start..].iter().map_while(|byte| *byte).collect::<Vec<u8>>();
                prop_assert_eq!(read(&chunks, start, start + whole.len()), whole);
                let all = chunks.used.iter().flatten().chain(&chunks.free).map(|memory| memory.len());
                prop_assert_eq!(chunks.memory(), all.sum::<usize>());
            }
        }
    }
}
