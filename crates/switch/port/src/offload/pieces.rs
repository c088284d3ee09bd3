//! A frame's bytes after its headers, cut into payloads, and their sums.

use super::Stop;
use ringway_frame::{Burst, HEAD};
use ringway_mem::Span;
use ringway_wire::Sum;

/// Maximum number of pieces of a completed frame: those of the original frame, the rewritten headers, and the rest of
/// its head.
pub(super) const PIECES: usize = 66;

/// Bytes of a cache line.
const LINE: usize = 64;

/// A position in a frame.
pub(super) struct Pieces<'a> {
    piece: Span<'a>,
    tail: &'a [Span<'a>],
}

impl<'a> Pieces<'a> {
    /// The position at `offset` bytes.
    pub(super) fn behind(burst: &'a Burst<'a>, frame: usize, offset: usize) -> Pieces<'a> {
        let len = burst.meta(frame).len as usize;
        let head = Span::of(&burst.head(frame)[..len.min(HEAD)]);
        let mut pieces = Pieces { piece: head, tail: burst.tail(frame) };
        let mut left = offset;
        while left > 0 {
            let passed = pieces.take(left);
            if passed.is_empty() {
                break;
            }
            left -= passed.len();
        }
        pieces
    }

    /// The next contiguous bytes, at most `count`; none only at the frame's end.
    #[inline]
    fn take(&mut self, count: usize) -> Span<'a> {
        while self.piece.is_empty() {
            let Some((next, rest)) = self.tail.split_first() else { return Span::empty() };
            (self.piece, self.tail) = (*next, rest);
        }
        let (taken, rest) = self.piece.split(count);
        self.piece = rest;
        taken
    }

    /// Prefetches the next `count` bytes, as far as they are contiguous: sums read short pieces, for which the
    /// processor's own prefetcher is too slow.
    #[inline]
    pub(super) fn prefetch(&self, count: usize) {
        let mut rest = self.piece.split(count).0;
        while !rest.is_empty() {
            rest.prefetch();
            rest = rest.split(LINE).1;
        }
    }

    /// Takes the next `count` bytes; returns the number of their pieces.
    #[inline]
    pub(super) fn cut(&mut self, mut count: usize, into: &mut [Span<'a>]) -> Result<usize, Stop> {
        let mut pieces = 0;
        while count > 0 {
            let taken = self.take(count);
            if taken.is_empty() {
                break;
            }
            count -= taken.len();
            *into.get_mut(pieces).ok_or(Stop::Full)? = taken;
            pieces += 1;
        }
        Ok(pieces)
    }
}

/// Memory for summing. A sender may change its bytes at any time, so they are summed from a copy, which stays in the
/// first-level cache. If they change before delivery, the checksum is wrong, which harms only the sender.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Chunk([u8; CHUNK]);

const CHUNK: usize = 2048;

impl Default for Chunk {
    fn default() -> Chunk {
        Chunk([0; CHUNK])
    }
}

impl Chunk {
    /// Adds the bytes of `pieces` to `sum`.
    #[inline]
    pub(super) fn add(&mut self, pieces: &[Span<'_>], sum: &mut Sum) {
        for piece in pieces {
            let mut rest = *piece;
            while !rest.is_empty() {
                let count = rest.read(&mut self.0);
                sum.add(&self.0[..count]);
                rest = rest.split(count).1;
            }
        }
    }
}
