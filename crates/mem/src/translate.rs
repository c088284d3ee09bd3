//! From the addresses a peer uses to ours.

use crate::memory::{Hint, Memory, Window};
use crate::span::{Span, SpanMut};

/// Why an address can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It names nothing that the peer may have us touch.
    Outside,
    /// It is not known yet whether it does; ask again later.
    Miss,
}

/// Places for [`Translate::keep`].
pub const KEPT: usize = 512;

/// A way from a peer's addresses to ours. What comes back begins at the address and may be shorter than asked for,
/// but has at least one byte: what lies behind it is to be asked for with a further call.
pub trait Translate<'t> {
    /// Bytes to read.
    fn read(&mut self, address: u64, len: u32) -> Result<Span<'t>, Fault>;

    /// Bytes to write.
    fn write(&mut self, address: u64, len: u32) -> Result<SpanMut<'t>, Fault>;

    /// Bytes to read of many ranges, one after the other, as [`Translate::read`] has them, up to the first fault; asks
    /// for the first two cache lines of each. Returns how many were found.
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

    /// As [`Translate::write`], for bytes that will be asked for again by [`Translate::write_kept`]; `place` is below
    /// [`KEPT`]. Nothing is written before.
    #[inline]
    fn keep(&mut self, _place: usize, address: u64, len: u32) -> Result<Span<'t>, Fault> {
        Ok(self.write(address, len)?.as_span())
    }

    /// As [`Translate::write`], quicker for what was kept at `place`.
    #[inline]
    fn write_kept(&mut self, _place: usize, address: u64, len: u32) -> Result<SpanMut<'t>, Fault> {
        self.write(address, len)
    }

    /// These bytes will be read or written next: what is not known of them is to be asked for, together with what
    /// was found missing before.
    fn want(&mut self, _address: u64, _len: u32, _write: bool) {}

    /// Whether what is known of these bytes is enough to read or write all of them, so that none is found missing when
    /// it is too late to wait.
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
    /// Addresses of `memory`. `hint` is the caller's to keep from burst to burst.
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
