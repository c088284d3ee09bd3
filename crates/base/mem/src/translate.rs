//! Translation of a peer's addresses to ours.

use crate::memory::{Hint, Memory, Window};
use crate::span::{Span, SpanMut};

/// Why an address can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The address is outside the memory that the peer shared.
    Outside,
    /// An IOTLB miss: the translation is not known yet; retry later.
    Miss,
}

/// Number of slots of [`Translate::keep`].
pub const KEPT: usize = 512;

/// Translation of a peer's addresses to ours. A result begins at the address and has at least one byte, but
/// may be shorter than requested: the caller translates the rest with further calls.
pub trait Translate<'t> {
    /// Translates for reading.
    fn read(&mut self, address: u64, len: u32) -> Result<Span<'t>, Fault>;

    /// Translates for writing.
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

    /// As [`Translate::write`], and keeps the result in `slot`, below [`KEPT`], for
    /// [`Translate::write_kept`], which the caller must call before writing.
    #[inline]
    fn keep(&mut self, _slot: usize, address: u64, len: u32) -> Result<Span<'t>, Fault> {
        Ok(self.write(address, len)?.as_span())
    }

    /// As [`Translate::write`], faster for bytes kept in `slot`.
    #[inline]
    fn write_kept(&mut self, _slot: usize, address: u64, len: u32) -> Result<SpanMut<'t>, Fault> {
        self.write(address, len)
    }

    /// Records an IOTLB miss for each part of these bytes that has no translation yet.
    fn record_misses(&mut self, _address: u64, _len: u32, _write: bool) {}

    /// Checks that all these bytes can be translated now; records misses as [`Translate::record_misses`]
    /// does.
    fn check(&mut self, _address: u64, _len: u32, _write: bool) -> Result<(), Fault> {
        Ok(())
    }
}

/// Translation of guest-physical addresses, without an IOMMU.
#[derive(Debug)]
pub struct Direct<'t, 'h> {
    memory: &'t Memory,
    hint: &'h mut Hint,
    /// The region of the hint.
    window: Window<'t>,
}

impl<'t, 'h> Direct<'t, 'h> {
    /// Translates to `memory`. The caller keeps `hint` from burst to burst.
    #[inline]
    pub fn new(memory: &'t Memory, hint: &'h mut Hint) -> Direct<'t, 'h> {
        let window = memory.window(*hint);
        Direct { memory, hint, window }
    }

    #[cold]
    fn find_region(&mut self, address: u64, len: u32) -> Result<SpanMut<'t>, Fault> {
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
            None => self.find_region(address, len),
        }
    }
}
