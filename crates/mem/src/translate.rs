//! Translation of a peer's addresses to ours.

use crate::memory::{Hint, Memory, Window};
use crate::span::{Span, SpanMut};

/// Why an address can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not in memory that the peer granted.
    Outside,
    /// Its translation is not known yet; retry later.
    Miss,
}

/// Number of places for [`Translate::keep`].
pub const KEPT: usize = 512;

/// Translation of a peer's addresses to ours. A result begins at the address and has at least one byte, but
/// may be shorter than requested; the rest is translated by a further call.
pub trait Translate<'t> {
    /// Bytes to read.
    fn read(&mut self, address: u64, len: u32) -> Result<Span<'t>, Fault>;

    /// Bytes to write.
    fn write(&mut self, address: u64, len: u32) -> Result<SpanMut<'t>, Fault>;

    /// Translates many ranges for reading, as [`Translate::read`] does, up to the first fault; prefetches the
    /// first two cache lines of each. Returns the number translated.
    #[inline(always)]
    fn read_all(
        &mut self,
        ranges: impl Iterator<Item = (u64, u32)>,
        spans: &mut [Span<'t>],
    ) -> (usize, Result<(), Fault>) {
        let mut count = 0;
        for ((address, len), span) in ranges.zip(spans) {
            match self.read(address, len) {
                Ok(found) => *span = found,
                Err(fault) => return (count, Err(fault)),
            }
            span.prefetch();
            span.split(64).1.prefetch();
            count += 1;
        }
        (count, Ok(()))
    }

    /// As [`Translate::write`], for bytes that are translated again by [`Translate::write_kept`]; `place` is
    /// below [`KEPT`]. The bytes must not be written before that.
    #[inline]
    fn keep(&mut self, _place: usize, address: u64, len: u32) -> Result<Span<'t>, Fault> {
        Ok(self.write(address, len)?.as_span())
    }

    /// As [`Translate::write`], faster for bytes kept at `place`.
    #[inline]
    fn write_kept(&mut self, _place: usize, address: u64, len: u32) -> Result<SpanMut<'t>, Fault> {
        self.write(address, len)
    }

    /// Announces an access to these bytes: unknown translations are requested, together with the misses
    /// recorded so far.
    fn want(&mut self, _address: u64, _len: u32, _write: bool) {}

    /// Whether all these bytes can be translated now, for callers that can't wait later.
    fn knows(&mut self, _address: u64, _len: u32, _write: bool) -> Result<(), Fault> {
        Ok(())
    }
}

/// Guest-physical addresses: no IOMMU.
#[derive(Debug)]
pub struct Direct<'t, 'h> {
    memory: &'t Memory,
    hint: &'h mut Hint,
    /// The region of the hint.
    window: Window<'t>,
}

impl<'t, 'h> Direct<'t, 'h> {
    /// Addresses of `memory`. The caller keeps `hint` from burst to burst.
    #[inline]
    pub fn new(memory: &'t Memory, hint: &'h mut Hint) -> Direct<'t, 'h> {
        let window = memory.window(*hint);
        Direct { memory, hint, window }
    }

    #[cold]
    fn elsewhere(&mut self, address: u64, len: u32) -> Result<SpanMut<'t>, Fault> {
        let found = self.memory.prefix(address, len, self.hint).ok_or(Fault::Outside);
        self.window = self.memory.window(*self.hint);
        found
    }
}

impl<'t> Translate<'t> for Direct<'t, '_> {
    #[inline]
    fn read(&mut self, address: u64, len: u32) -> Result<Span<'t>, Fault> {
        Ok(self.write(address, len)?.as_span())
    }

    #[inline]
    fn write(&mut self, address: u64, len: u32) -> Result<SpanMut<'t>, Fault> {
        match self.window.whole(address, len) {
            Some(span) => Ok(span),
            None => self.elsewhere(address, len),
        }
    }
}
