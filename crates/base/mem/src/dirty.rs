//! The log of written pages (vhost-user protocol, "Migration"), and an address translation that fills it.

use crate::memory::{Memory, Region};
use crate::span::{Span, SpanMut};
use crate::translate::{Fault, Translate};
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU8, Ordering};

/// Bytes of a page of the log.
pub const LOG_PAGE: u64 = 4096;
/// Pages per byte of the log.
const PER_BYTE: u64 = 8;

/// A bit for each page of a guest's memory, by guest-physical address, in memory that the front-end shares
/// and clears.
#[derive(Debug)]
pub struct DirtyLog {
    bits: Region,
}

impl DirtyLog {
    /// The log in `bits`, whose first byte covers the first eight pages.
    pub fn new(bits: Region) -> DirtyLog {
        DirtyLog { bits }
    }

    /// The log's memory.
    pub fn region(&self) -> &Region {
        &self.bits
    }

    /// Marks `len` bytes at guest-physical `guest` as written. A front-end that sees the bit also sees the
    /// bytes.
    pub fn mark(&self, guest: u64, len: u64) {
        let Some(last_offset) = len.checked_sub(1) else { return };
        // Attack: a log shorter than the memory, or a ring whose address is after the log's end. Pages after
        // the log's end are not marked, and no sum wraps.
        let Some(last_byte) = self.bits.len.checked_sub(1) else { return };
        let end = last_byte.saturating_mul(PER_BYTE).saturating_add(PER_BYTE - 1);
        let (first, last) = (guest / LOG_PAGE, guest.saturating_add(last_offset) / LOG_PAGE);
        let mut page = first;
        while page <= last.min(end) {
            let byte = page / PER_BYTE;
            let last_in_byte = last.min(byte * PER_BYTE + (PER_BYTE - 1));
            let bits = (0xff << (page % PER_BYTE)) & (0xff >> (PER_BYTE - 1 - last_in_byte % PER_BYTE));
            self.set(byte, bits as u8);
            page = last_in_byte + 1;
        }
    }

    fn set(&self, byte: u64, bits: u8) {
        if byte >= self.bits.len {
            return;
        }
        // SAFETY: `byte` is within the region, which stays mapped writable while `self` lives and is accessed
        // only through atomics and by other processes.
        let at = unsafe { AtomicU8::from_ptr(self.bits.base().add(byte as usize).as_ptr()) };
        // Set unconditionally, even if the bits are set: the front-end may clear them between a check and the
        // moment when the written bytes become visible.
        at.fetch_or(bits, Ordering::SeqCst);
    }
}

/// Ranges translated for writing and not marked yet: guest-physical addresses and lengths.
#[derive(Debug, Default)]
pub struct Trail(Vec<(u64, u64)>);

/// A translation that logs writes. Ranges translated for writing are marked when it is dropped, after the
/// writes.
#[derive(Debug)]
pub struct Logged<'t, 'l, T> {
    inner: &'l mut T,
    memory: &'t Memory,
    log: &'l DirtyLog,
    trail: &'l mut Trail,
}

impl<'t, 'l, T: Translate<'t>> Logged<'t, 'l, T> {
    /// Wraps `inner`, which translates to `memory`. The caller keeps `trail` to reuse its allocation.
    pub fn new(
        inner: &'l mut T,
        memory: &'t Memory,
        log: &'l DirtyLog,
        trail: &'l mut Trail,
    ) -> Logged<'t, 'l, T> {
        trail.0.clear();
        Logged { inner, memory, log, trail }
    }

    fn record(&mut self, span: SpanMut<'t>) -> SpanMut<'t> {
        // The span was looked up in `memory`, and no span leaves its region.
        if let Some(guest) = self.memory.guest_of(span.pointer()) {
            let len = span.len() as u64;
            match self.trail.0.last_mut() {
                Some((first, total)) if *first + *total == guest => *total += len,
                _ => self.trail.0.push((guest, len)),
            }
        }
        span
    }
}

impl<T> Drop for Logged<'_, '_, T> {
    fn drop(&mut self) {
        self.trail.0.drain(..).for_each(|(guest, len)| self.log.mark(guest, len));
    }
}

impl<'t, T: Translate<'t>> Translate<'t> for Logged<'t, '_, T> {
    fn read(&mut self, address: u64, len: u32) -> Result<Span<'t>, Fault> {
        self.inner.read(address, len)
    }

    fn write(&mut self, address: u64, len: u32) -> Result<SpanMut<'t>, Fault> {
        let span = self.inner.write(address, len)?;
        Ok(self.record(span))
    }

    fn keep(&mut self, slot: usize, address: u64, len: u32) -> Result<Span<'t>, Fault> {
        self.inner.keep(slot, address, len)
    }

    fn write_kept(&mut self, slot: usize, address: u64, len: u32) -> Result<SpanMut<'t>, Fault> {
        let span = self.inner.write_kept(slot, address, len)?;
        Ok(self.record(span))
    }

    fn record_misses(&mut self, address: u64, len: u32, write: bool) {
        self.inner.record_misses(address, len, write);
    }

    fn check(&mut self, address: u64, len: u32, write: bool) -> Result<(), Fault> {
        self.inner.check(address, len, write)
    }
}

/// A range of a guest's memory, by guest-physical address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Guest-physical address of the first byte.
    pub guest: u64,
    /// Length in bytes.
    pub len: u64,
}

/// The guest-physical ranges, in order, of bytes that are contiguous in our address space, such as an area of
/// a ring.
#[derive(Clone, Debug, Default)]
pub struct Extents(Vec<Extent>);

impl Extents {
    /// Joins the ranges in this order.
    pub fn new(extents: Vec<Extent>) -> Extents {
        Extents(extents)
    }

    /// Whether there is a single range, at `guest`.
    pub fn begin_at(&self, guest: u64) -> bool {
        matches!(self.0[..], [extent] if extent.guest == guest)
    }

    /// Marks `len` of these bytes from `offset` on as written.
    pub fn mark(&self, log: &DirtyLog, offset: usize, len: usize) {
        let (mut skip, mut left) = (offset as u64, len as u64);
        for extent in &self.0 {
            if left == 0 {
                return;
            }
            let len = extent.len.saturating_sub(skip).min(left);
            log.mark(extent.guest.saturating_add(skip), len);
            skip = skip.saturating_sub(extent.len);
            left -= len;
        }
    }

    /// Marks all ranges as written.
    pub fn mark_all(&self, log: &DirtyLog) {
        self.0.iter().for_each(|extent| log.mark(extent.guest, extent.len));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Hint;
    use crate::translate::Direct;

    fn bits(log: &DirtyLog) -> Vec<u8> {
        let memory = Memory::new(alloc::vec![log.region().clone()]).unwrap();
        let mut bytes = alloc::vec![0; log.region().len as usize];
        memory.span(0, bytes.len() as u32, &mut Hint::default()).unwrap().read(&mut bytes);
        bytes
    }

    fn log(len: usize) -> DirtyLog {
        DirtyLog::new(Region::private(0, 0, len))
    }

    #[test]
    fn a_mark_covers_exactly_the_touched_pages() {
        for (guest, len) in [(0, 1), (4095, 2), (0x7fff, 1), (0x6800, 0x3000), (0x1000, 0x1_0000), (5, 0)] {
            let log = log(4);
            log.mark(guest, len);
            for page in 0..32 {
                let touched = len > 0 && guest / 4096 <= page && page <= (guest + len - 1) / 4096;
                let bit = bits(&log)[page as usize / 8] >> (page % 8) & 1 == 1;
                assert_eq!(bit, touched, "page {page} of {len} bytes at {guest:#x}");
            }
        }
    }

    #[test]
    fn pages_beyond_the_log_are_ignored() {
        let log = log(2);
        for (guest, len) in [(16 << 12, 1), (u64::MAX, u64::MAX), (1 << 63, 1 << 62), (u64::MAX - 4095, 4096)]
        {
            log.mark(guest, len);
            assert_eq!(bits(&log), [0, 0], "{len} bytes at {guest:#x}");
        }
        log.mark(15 << 12, u64::MAX);
        assert_eq!(bits(&log), [0, 0x80]);
    }

    #[test]
    fn written_ranges_are_marked_after_the_write() {
        let memory = Memory::new(alloc::vec![
            Region::private(0x1_0000, 0x10_0000, 0x2000),
            Region::private(0x2_0000, 0x20_0000, 0x2000)
        ])
        .unwrap();
        let (log, mut trail, mut hint) = (log(8), Trail::default(), Hint::default());
        let mut direct = Direct::new(&memory, &mut hint);
        let mut logged = Logged::new(&mut direct, &memory, &log, &mut trail);
        logged.read(0x1_0000, 16).unwrap();
        logged.keep(0, 0x1_0000, 16).unwrap();
        logged.check(0x1_0000, 16, true).unwrap();
        logged.write(0x1_1ff0, 0x100).unwrap().write(&[1; 16]);
        logged.write_kept(0, 0x2_1000, 16).unwrap().write(&[1; 16]);
        assert_eq!(logged.write(0x3_0000, 16).unwrap_err(), Fault::Outside);
        assert_eq!(bits(&log), [0; 8], "nothing is marked before it is written");
        drop(logged);
        assert_eq!(bits(&log), [0, 0, 2, 0, 2, 0, 0, 0]);
    }

    #[test]
    fn scattered_extents_are_marked_by_their_pages() {
        let extents = Extents::new(alloc::vec![
            Extent { guest: 0x5800, len: 0x800 },
            Extent { guest: 0x2000, len: 0x2000 }
        ]);
        for (offset, len, marked) in [
            (0x7ff, 1, 1 << 5),
            (0x800, 1, 1 << 2),
            (0x1800, 1, 1 << 3),
            (0x17ff, 2, 1 << 2 | 1 << 3),
            (0, 0x2800, 1 << 5 | 1 << 2 | 1 << 3),
            // Bytes after the end.
            (0x2800, 100, 0),
            (usize::MAX, usize::MAX, 0),
        ] {
            let log = log(1);
            extents.mark(&log, offset, len);
            assert_eq!(bits(&log), [marked], "{len} bytes from {offset:#x} on");
        }
        assert!(!extents.begin_at(0x5800));
        assert!(Extents::new(alloc::vec![Extent { guest: 7, len: 1 }]).begin_at(7));
    }
}
