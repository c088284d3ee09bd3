//! A guest's shared memory regions, and the translation of its addresses to ours.

use crate::span::{Span, SpanMut};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::cell::UnsafeCell;
use core::marker::PhantomData;
use core::ptr::NonNull;

/// Largest number of regions of one guest. Attack: unlimited regions would make lookups arbitrarily slow.
/// vhost-user front-ends need at most 509 (QEMU's memory slots).
pub const REGIONS: usize = 509;
/// Largest total size of one guest's regions: 8 TB. Attack: a sparse file as long as our address space would
/// leave no addresses for other guests.
const BYTES: u64 = 8 << 40;

/// One shared range of a guest's memory.
#[derive(Clone)]
pub struct Region {
    /// Guest-physical address of the first byte.
    pub guest: u64,
    /// User address of the first byte: its address in the front-end.
    pub user: u64,
    /// Length in bytes.
    pub len: u64,
    host: NonNull<u8>,
    keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pointer is only an address; memory is accessed through spans.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl core::fmt::Debug for Region {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(out, "guest {:#x} user {:#x} len {:#x}", self.guest, self.user, self.len)
    }
}

impl Region {
    /// Describes a mapped range.
    ///
    /// # Safety
    /// `len` bytes at `host` stay mapped readable and writable as long as `keep` lives, and are accessed only
    /// through spans.
    pub unsafe fn new(
        guest: u64,
        user: u64,
        len: u64,
        host: NonNull<u8>,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Region {
        Region { guest, user, len, host, keep }
    }

    /// Zeroed memory of our own, page-aligned, which lives as long as the region and its clones.
    pub fn private(guest: u64, user: u64, len: usize) -> Region {
        #[repr(C, align(4096))]
        struct Page(UnsafeCell<[u8; 4096]>);
        struct Pages(Vec<Page>);
        // SAFETY: the bytes are accessed only through spans and atomics.
        unsafe impl Send for Pages {}
        // SAFETY: as above.
        unsafe impl Sync for Pages {}
        let zeroed = || Page(UnsafeCell::new([0; 4096]));
        let pages = Pages(core::iter::repeat_with(zeroed).take(len.div_ceil(4096)).collect());
        let host = NonNull::from(pages.0.as_slice()).cast();
        // SAFETY: the pages have at least `len` bytes, don't move, and live in the keeper.
        unsafe { Region::new(guest, user, len as u64, host, Arc::new(pages)) }
    }

    /// A part of it; `None` if it reaches beyond.
    pub fn part(&self, offset: u64, len: u64) -> Option<Region> {
        offset.checked_add(len).filter(|end| *end <= self.len)?;
        let (guest, user) = (self.guest.checked_add(offset)?, self.user.checked_add(offset)?);
        // SAFETY: within the region (checked), whose keeper keeps all of it.
        Some(unsafe { Region::new(guest, user, len, self.host.add(offset as usize), self.keep.clone()) })
    }

    /// Our address of the first byte. The caller must bound its accesses.
    pub fn base(&self) -> NonNull<u8> {
        self.host
    }

    /// The value that keeps the range mapped.
    pub fn keeper(&self) -> &Arc<dyn Any + Send + Sync> {
        &self.keep
    }
}

/// Why a set of regions is not valid as guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryError {
    /// More than [`REGIONS`].
    TooMany,
    /// A region has no bytes.
    Empty,
    /// A region passes the end of an address space.
    Wraps,
    /// The regions have more than 8 TB in total.
    TooLarge,
    /// Two regions share guest-physical or user addresses.
    Overlap,
}

impl core::fmt::Display for MemoryError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            MemoryError::TooMany => "more memory regions than a guest may share",
            MemoryError::Empty => "a memory region has no bytes",
            MemoryError::Wraps => "a memory region passes the end of the address space",
            MemoryError::TooLarge => "the memory regions have more than 8 TB in total",
            MemoryError::Overlap => "two memory regions overlap",
        })
    }
}

impl core::error::Error for MemoryError {}

/// The region used last, which the next lookup tries first.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hint(usize);

/// The indices of regions, of which there are fewer than 2^16, ordered by a number. Numbers are sorted, since a sort of
/// regions for each order would take much code in a guest's image.
fn order(regions: &[Region], number: impl Fn(&Region) -> u64) -> Vec<u16> {
    let place = |(at, region): (usize, &Region)| u128::from(number(region)) << 64 | at as u128;
    let mut places: Vec<u128> = regions.iter().enumerate().map(place).collect();
    places.sort_unstable();
    places.into_iter().map(|place| place as u16).collect()
}

/// All shared memory of a guest.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    regions: Vec<Region>,
    /// Indices of the regions, ordered by our address.
    by_host: Vec<u16>,
}

impl Memory {
    /// Checks and sorts the regions.
    pub fn new(regions: Vec<Region>) -> Result<Memory, MemoryError> {
        if regions.len() > REGIONS {
            return Err(MemoryError::TooMany);
        }
        for region in &regions {
            if region.len == 0 {
                return Err(MemoryError::Empty);
            }
            // Attack: an end that wraps to a small number would pass all later bounds checks.
            if region.guest.checked_add(region.len).is_none() || region.user.checked_add(region.len).is_none()
            {
                return Err(MemoryError::Wraps);
            }
        }
        if regions.iter().fold(0, |sum: u64, region| sum.saturating_add(region.len)) > BYTES {
            return Err(MemoryError::TooLarge);
        }
        let by_user = order(&regions, |region| region.user);
        let ends = |pair: &[u16]| [pair[0], pair[1]].map(|at| &regions[usize::from(at)]);
        if by_user.windows(2).map(ends).any(|[one, next]| one.user + one.len > next.user) {
            return Err(MemoryError::Overlap);
        }
        let by_guest = order(&regions, |region| region.guest);
        let regions: Vec<Region> = by_guest.iter().map(|at| regions[usize::from(*at)].clone()).collect();
        if regions.windows(2).any(|pair| pair[0].guest + pair[0].len > pair[1].guest) {
            return Err(MemoryError::Overlap);
        }
        let by_host = order(&regions, |region| region.host.addr().get() as u64);
        Ok(Memory { regions, by_host })
    }

    /// The regions, ordered by guest-physical address.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// `len` bytes at guest-physical `guest`, if one region contains them all.
    #[inline]
    pub fn span(&self, guest: u64, len: u32, hint: &mut Hint) -> Option<Span<'_>> {
        Some(self.span_mut(guest, len, hint)?.as_span())
    }

    /// As [`Memory::span`], for writing.
    #[inline]
    pub fn span_mut(&self, guest: u64, len: u32, hint: &mut Hint) -> Option<SpanMut<'_>> {
        if let Some(region) = self.regions.get(hint.0)
            && let Some(span) = within(region, guest.wrapping_sub(region.guest), len)
        {
            return Some(span);
        }
        let index = self.regions.partition_point(|region| region.guest <= guest).checked_sub(1)?;
        let region = self.regions.get(index)?;
        let span = within(region, guest.wrapping_sub(region.guest), len)?;
        *hint = Hint(index);
        Some(span)
    }

    /// Up to `len` bytes at guest-physical `guest`, at most to the end of its region; `None` if no region
    /// contains `guest`, or `len` is 0.
    #[cold]
    pub(crate) fn prefix(&self, guest: u64, len: u32, hint: &mut Hint) -> Option<SpanMut<'_>> {
        let index = self.regions.partition_point(|region| region.guest <= guest).checked_sub(1)?;
        let region = self.regions.get(index)?;
        let offset = guest - region.guest;
        let room = u32::try_from(region.len.checked_sub(offset)?).unwrap_or(u32::MAX);
        let len = len.min(room);
        *hint = Hint(index);
        if len == 0 { None } else { within(region, offset, len) }
    }

    /// The region of the hint, if any.
    #[inline]
    pub(crate) fn window(&self, hint: Hint) -> Window<'_> {
        let region = self.regions.get(hint.0);
        // SAFETY: a region's bytes stay mapped while the region, and so this memory, lives.
        region.map_or(Window::NONE, |region| unsafe { Window::new(region.guest, region.len, region.host) })
    }

    /// The guest-physical address of our address `host`.
    pub(crate) fn guest_of(&self, host: NonNull<u8>) -> Option<u64> {
        let region = |index: &u16| self.regions.get(usize::from(*index));
        let before = |index: &u16| region(index).is_some_and(|region| region.host <= host);
        // Attack: the largest number of regions; a linear search would visit all of them for each written
        // range.
        let found = self.by_host.partition_point(before).checked_sub(1)?;
        let region = region(self.by_host.get(found)?)?;
        let offset = (host.addr().get() - region.host.addr().get()) as u64;
        (offset < region.len).then(|| region.guest + offset)
    }

    /// As [`Memory::user_span`], with a reference to the memory.
    pub fn keep_user(self: &Arc<Memory>, user: u64, len: u32) -> Option<OwnedSpan> {
        let span = self.user_span(user, len)?;
        Some(OwnedSpan { pointer: span.pointer(), len, memory: self.clone() })
    }

    /// The region that contains all `len` bytes at user address `user`, and their offset.
    pub(crate) fn locate_user(&self, user: u64, len: u64) -> Option<(u16, u64)> {
        self.regions.iter().enumerate().find_map(|(index, region)| {
            let offset = user.checked_sub(region.user)?;
            // There are fewer than 2^16 regions.
            (offset < region.len && region.len - offset >= len).then_some((index as u16, offset))
        })
    }

    /// Our address of byte `offset` of a region, if `len` bytes follow.
    pub(crate) fn base_at(&self, region: u16, offset: u64, len: u64) -> Option<NonNull<u8>> {
        let region = self.regions.get(usize::from(region))?;
        if offset >= region.len || region.len - offset < len {
            return None;
        }
        // SAFETY: `offset` is within the region.
        Some(unsafe { region.host.add(offset as usize) })
    }

    /// `len` bytes of a region at `offset`, with a reference to the memory.
    pub(crate) fn keep_at(self: &Arc<Memory>, region: u16, offset: u64, len: u32) -> Option<OwnedSpan> {
        let pointer = self.base_at(region, offset, len.into())?;
        Some(OwnedSpan { pointer, len, memory: self.clone() })
    }

    /// `len` bytes at user address `user`, if one region contains them all. Ring addresses are user
    /// addresses.
    pub fn user_span(&self, user: u64, len: u32) -> Option<SpanMut<'_>> {
        self.regions.iter().find_map(|region| within(region, user.checked_sub(region.user)?, len))
    }
}

/// A contiguous range of a peer's addresses. Held in a local, since the compiler would otherwise reload it
/// after each store to guest memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window<'t> {
    guest: u64,
    len: u64,
    host: NonNull<u8>,
    _lives: PhantomData<&'t Memory>,
}

impl<'t> Window<'t> {
    /// An empty range.
    pub const NONE: Window<'t> = Window { guest: 0, len: 0, host: NonNull::dangling(), _lives: PhantomData };

    /// `len` bytes at the peer's address `guest`, mapped at our address `host`.
    ///
    /// # Safety
    /// As for [`SpanMut::new`], for all `len` bytes.
    #[inline]
    pub(crate) unsafe fn new(guest: u64, len: u64, host: NonNull<u8>) -> Window<'t> {
        Window { guest, len, host, _lives: PhantomData }
    }

    /// `len` bytes at `guest`, if they are all within the window and `len` is not 0.
    #[inline]
    pub fn whole(&self, guest: u64, len: u32) -> Option<SpanMut<'t>> {
        let offset = guest.wrapping_sub(self.guest);
        // Attack: `offset + len` could wrap, so `len` is compared with the bytes after `offset`. A length of
        // 0 wraps to a value that never fits.
        if offset >= self.len || u64::from(len).wrapping_sub(1) >= self.len - offset {
            return None;
        }
        // SAFETY: `offset` and `len` are within the range promised to `new` for `'t`.
        Some(unsafe { SpanMut::new(self.host.add(offset as usize), len) })
    }
}

/// A range of a guest's memory, with a reference to that memory.
#[derive(Clone, Debug)]
pub struct OwnedSpan {
    pointer: NonNull<u8>,
    len: u32,
    memory: Arc<Memory>,
}

// SAFETY: as for `Region`.
unsafe impl Send for OwnedSpan {}
// SAFETY: as for `Region`.
unsafe impl Sync for OwnedSpan {}

impl OwnedSpan {
    /// The bytes.
    #[inline]
    pub fn span(&self) -> SpanMut<'_> {
        // SAFETY: the bytes are within a region of `memory`, which is never changed and lives as long as
        // `self`.
        unsafe { SpanMut::new(self.pointer, self.len) }
    }

    /// The guest-physical address of the first byte.
    pub fn guest(&self) -> Option<u64> {
        self.memory.guest_of(self.pointer)
    }

    /// The memory that contains the bytes.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }
}

#[inline]
fn within(region: &Region, offset: u64, len: u32) -> Option<SpanMut<'_>> {
    // Attack: `offset + len` could wrap, so `len` is compared with the bytes after `offset`.
    if offset >= region.len || region.len - offset < u64::from(len) {
        return None;
    }
    // SAFETY: `offset` and `len` are within the region, which stays mapped while `keep` lives, and `keep`
    // outlives the borrow of the region.
    Some(unsafe { SpanMut::new(region.host.add(offset as usize), len) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::{Direct, Translate};

    fn region(guest: u64, user: u64, len: usize) -> Region {
        Region::private(guest, user, len)
    }

    #[test]
    fn private_memory_is_zeroed_aligned_and_shared_by_clones() {
        let region = Region::private(0x1000, 0, 5000);
        assert!(region.base().cast::<[u64; 512]>().addr().get().is_multiple_of(4096));
        let memory = Memory::new(vec![region.clone()]).unwrap();
        drop(region);
        let span = memory.span_mut(0x1000 + 4990, 10, &mut Hint::default()).unwrap();
        assert_eq!(span.as_span().read_array(), Some([0u8; 10]));
        assert_eq!(span.write(&[7; 11]), 10);
        assert_eq!(
            memory.clone().span(0x1000 + 4999, 1, &mut Hint::default()).unwrap().read_array(),
            Some([7])
        );
    }

    #[test]
    fn addresses_resolve_within_one_region_only() {
        let memory = Memory::new(vec![region(0x1000, 0x9000, 0x100), region(0x1100, 0xa000, 0x100)]).unwrap();
        let mut hint = Hint::default();
        assert!(memory.span(0x1000, 0x100, &mut hint).is_some());
        assert!(memory.span(0x10ff, 2, &mut hint).is_none(), "crosses into the next region");
        assert!(memory.span(0x11ff, 1, &mut hint).is_some());
        assert!(memory.span(0x1200, 1, &mut hint).is_none());
        assert!(memory.span(0xfff, 1, &mut hint).is_none());
        assert!(memory.span(u64::MAX, u32::MAX, &mut hint).is_none());
        assert!(memory.user_span(0xa000, 0x100).is_some());
        assert!(memory.user_span(0xa000, 0x101).is_none());
        let mut direct = Direct::new(&memory, &mut hint);
        let mut prefix = |guest, len| direct.write(guest, len).ok().map(|span| span.len());
        assert_eq!(prefix(0x10f0, 0x20), Some(0x10));
        assert_eq!(prefix(0x1100, 0x20), Some(0x20));
        assert_eq!(prefix(0x1100, 0), None);
        assert_eq!(prefix(0x1200, 1), None);
        assert_eq!(prefix(u64::MAX, 1), None);
    }

    #[test]
    fn host_addresses_map_back_to_guest_addresses() {
        let regions = (0..20).map(|number| region(number << 16, (20 - number) << 16, 0x100));
        let memory = Memory::new(regions.collect()).unwrap();
        for region in memory.regions() {
            for offset in [0, 1, 0xff] {
                // SAFETY: within the region.
                let host = unsafe { region.base().add(offset) };
                assert_eq!(memory.guest_of(host), Some(region.guest + offset as u64));
            }
        }
        assert_eq!(memory.guest_of(NonNull::dangling()), None);
        assert_eq!(Memory::default().guest_of(memory.regions()[0].base()), None);
    }

    #[test]
    fn bad_tables_are_refused() {
        let overlap = Memory::new(vec![region(0, 0, 0x100), region(0xff, 0x1000, 0x100)]);
        assert_eq!(overlap.unwrap_err(), MemoryError::Overlap);
        let user = Memory::new(vec![region(0, 0, 0x100), region(0x1000, 0x80, 0x100)]);
        assert_eq!(user.unwrap_err(), MemoryError::Overlap);
        assert_eq!(Memory::new(vec![region(u64::MAX, 0, 2)]).unwrap_err(), MemoryError::Wraps);
        assert_eq!(Memory::new(vec![region(0, 0, 0)]).unwrap_err(), MemoryError::Empty);
        let claims = |at: u64| Region { len: BYTES / 2, ..region(at, at, 1) };
        assert!(Memory::new(vec![claims(0), claims(BYTES)]).is_ok());
        let large = Memory::new(vec![claims(0), claims(BYTES), region(4 * BYTES, 4 * BYTES, 1)]);
        assert_eq!(large.unwrap_err(), MemoryError::TooLarge);
    }
}
