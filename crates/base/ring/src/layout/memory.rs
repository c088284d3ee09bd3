//! Access to a ring's memory.

use super::geometry::{CELLS, CLOSED, Geometry, Header, LayoutError, PAGE, RingKind};
use super::slot::Slot;
use core::ops::Range;
use core::ptr::NonNull;
use ringway_mem::sync::{AtomicU32, AtomicU64, Ordering, compiler_fence};
use ringway_mem::{Region, Span, SpanMut};

/// Index of the ring that the program (a pipe's first end) fills.
pub const TX: usize = 0;
/// Index of the ring that the program (a pipe's first end) empties.
pub const RX: usize = 1;

const CELL: usize = 128;

/// The writer of a cache line of indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Producer,
    Consumer,
}

/// A word of a side's cache line.
#[derive(Clone, Copy, Debug)]
pub(super) enum Word {
    Index,
    Wake,
    WakeAt,
    /// Of a consumer: whether it leaves each buffer in its slot.
    Fixed,
}

/// A ring's mapped memory, whose header was checked.
#[derive(Clone, Debug)]
pub struct RingMemory {
    region: Region,
    header: Header,
    kind: RingKind,
    base: NonNull<u8>,
    slots: [NonNull<u8>; 2],
    buffers: NonNull<u8>,
    /// The memory of the buffers, if it is another one.
    _pool: Option<Region>,
}

// SAFETY: the pointers are addresses within `region` and `_pool`, whose contents are accessed only as atomics or
// through spans.
unsafe impl Send for RingMemory {}
// SAFETY: as above.
unsafe impl Sync for RingMemory {}

impl RingMemory {
    /// Initializes a new ring in zeroed memory.
    pub fn create(region: Region, geometry: &Geometry) -> Result<RingMemory, LayoutError> {
        RingMemory::create_with(region, None, geometry)
    }

    /// As [`RingMemory::create`], with the memory of the buffers if the program brings it ([`Geometry::pool`]).
    ///
    /// # Errors
    /// [`LayoutError::Pool`]: it is missing, or the buffers are not within it.
    pub fn create_with(
        region: Region,
        pool: Option<Region>,
        geometry: &Geometry,
    ) -> Result<RingMemory, LayoutError> {
        let header = geometry.header()?;
        let memory = RingMemory::within(region, pool, header, geometry.kind)?;
        for (index, word) in header.to_words().into_iter().enumerate() {
            memory.word(index).store(word.to_le(), Ordering::Relaxed);
        }
        for ring in [TX, RX] {
            for index in 0..header.slots[ring] {
                let buf_idx = memory.own_buffer(ring, index);
                memory.write_slot(ring, index, Slot { buf_idx, ..Slot::default() });
            }
        }
        Ok(memory)
    }

    /// As [`RingMemory::create`], in memory that had a ring, and that its program may still write. Attack: it writes
    /// meanwhile; then it finds what it wrote.
    pub fn create_again(region: Region, geometry: &Geometry) -> Result<RingMemory, LayoutError> {
        let memory = RingMemory::within(region, None, geometry.header()?, geometry.kind)?;
        for index in 0..PAGE as usize / size_of::<u64>() {
            memory.any_word(index).store(0, Ordering::Relaxed);
        }
        RingMemory::create(memory.region, geometry)
    }

    /// Attaches to a ring in memory that the other side initialized, and may still write.
    pub fn attach(region: Region) -> Result<RingMemory, LayoutError> {
        RingMemory::attach_with(region, None)
    }

    /// As [`RingMemory::attach`], with the memory of the program's buffers, which is used if the ring's are there.
    ///
    /// # Errors
    /// [`LayoutError::Pool`]: the ring's buffers are in such a memory, which is missing or too short.
    pub fn attach_with(region: Region, pool: Option<Region>) -> Result<RingMemory, LayoutError> {
        if region.len < PAGE {
            return Err(LayoutError::Size);
        }
        let base = region.base();
        let words = core::array::from_fn(|index| {
            // SAFETY: the region has at least a page, and the read needs no alignment.
            let word = unsafe { base.cast::<u64>().add(index).as_ptr().read_unaligned() };
            u64::from_le(word)
        });
        // Attack: without the fence, the compiler could read the header again after it was checked.
        compiler_fence(Ordering::SeqCst);
        let header = Header::from_words(words);
        let geometry = Geometry::check(header, region.len)?;
        RingMemory::within(region, pool, header, geometry.kind)
    }

    /// The ring in `region`; `header` is, or equals, a result of [`Geometry::header`].
    fn within(
        region: Region,
        pool: Option<Region>,
        header: Header,
        kind: RingKind,
    ) -> Result<RingMemory, LayoutError> {
        let base = region.base();
        if header.bytes > region.len {
            return Err(LayoutError::Size);
        }
        if base.addr().get() as u64 & (PAGE - 1) != 0 {
            return Err(LayoutError::Alignment);
        }
        // SAFETY: all three offsets are below `header.bytes`, and so within the region.
        let at = |offset: u64| unsafe { base.add(offset as usize) };
        let slots = [at(header.slots_at[TX]), at(header.slots_at[RX])];
        let _pool = if header.first == 0 { None } else { Some(pool.ok_or(LayoutError::Pool)?) };
        let buffers = match &_pool {
            None => at(header.buffers_at),
            Some(pool) => {
                let bytes = u64::from(header.buffers) * u64::from(header.stride);
                // Attack: a program's memory that is shorter than it says.
                if header.buffers_at.checked_add(bytes).is_none_or(|end| end > pool.len) {
                    return Err(LayoutError::Pool);
                }
                // SAFETY: the buffers are within the pool (checked), which stays mapped as long as `_pool`.
                unsafe { pool.base().add(header.buffers_at as usize) }
            }
        };
        Ok(RingMemory { region, header, kind, base, slots, buffers, _pool })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The kind of ring.
    pub fn kind(&self) -> RingKind {
        self.kind
    }

    /// The mapped memory.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Number of slots of a ring.
    #[inline]
    pub fn slots(&self, ring: usize) -> u32 {
        self.header.slots[ring & 1]
    }

    /// Size of a buffer in bytes.
    #[inline]
    pub fn slot_size(&self) -> u32 {
        self.header.slot_size
    }

    /// The first `len` bytes of a buffer; `None` if there is no such buffer, or it is shorter.
    #[inline]
    pub fn buffer(&self, buf_idx: u16, len: u32) -> Option<SpanMut<'_>> {
        // Attack: arbitrary numbers; both were read from memory that the other side writes.
        if u32::from(buf_idx) >= self.header.buffers || len > self.header.slot_size {
            return None;
        }
        let offset = usize::from(buf_idx) * self.header.stride as usize;
        // SAFETY: the header's sizes place buffer `buf_idx`, of `slot_size` bytes, within the region, which
        // stays mapped as long as `self` and is accessed only as atomics or through spans.
        Some(unsafe { SpanMut::new(self.buffers.add(offset), len) })
    }

    /// Whether the buffers are in a memory that the program brought.
    #[inline]
    pub fn has_pool(&self) -> bool {
        self.header.first != 0
    }

    /// The buffer that slot `index` (taken modulo the ring's slots) of a ring named at first.
    #[inline]
    pub(super) fn own_buffer(&self, ring: usize, index: u32) -> u16 {
        let before = if ring == RX { self.header.slots[TX] } else { 0 };
        (self.header.first + before + (index & (self.slots(ring) - 1))) as u16
    }

    /// Buffers that were in no slot at first; of those of a pool, none.
    pub fn extra(&self) -> Range<u16> {
        let end = u16::try_from(self.header.buffers).unwrap_or(u16::MAX);
        if self.has_pool() {
            return end..end;
        }
        let slots = self.header.slots[TX] + self.header.slots[RX];
        u16::try_from(slots).map_or(end..end, |first| first..end.max(first))
    }

    /// The buffer in which a span is, if it is one of [`RingMemory::extra`], and where in it the span begins.
    #[inline]
    pub fn lent(&self, span: Span<'_>) -> Option<(u16, u16)> {
        let (extra, stride) = (self.extra(), self.header.stride as usize);
        // Most spans lie elsewhere, which comparisons tell sooner than a division.
        let first = self.buffers.addr().get() + usize::from(extra.start) * stride;
        let offset = span.address().checked_sub(first)?;
        if offset >= extra.len() * stride || span.len() > self.slot_size() as usize {
            return None;
        }
        let (number, begin) = (extra.start + (offset / stride) as u16, offset % stride);
        (begin + span.len() <= self.slot_size() as usize).then_some((number, begin as u16))
    }

    /// Reads slot `index` (taken modulo the ring's slots) once.
    #[inline]
    pub fn read_slot(&self, ring: usize, index: u32) -> Slot {
        let (low, high) = self.slot_words(ring, index);
        Slot::from_words(
            u64::from_le(low.load(Ordering::Relaxed)),
            u64::from_le(high.load(Ordering::Relaxed)),
        )
    }

    /// Writes slot `index` (taken modulo the ring's slots).
    #[inline]
    pub fn write_slot(&self, ring: usize, index: u32, slot: Slot) {
        let (low, high) = self.slot_words(ring, index);
        let (new_low, new_high) = slot.to_words();
        low.store(new_low.to_le(), Ordering::Relaxed);
        high.store(new_high.to_le(), Ordering::Relaxed);
    }

    /// Writes slot `index` (taken modulo the ring's slots) unless it has these contents, so that an unchanged slot
    /// stays in both sides' caches. Attack: the other side changes it meanwhile; it is the loser.
    #[inline]
    pub fn renew_slot(&self, ring: usize, index: u32, slot: Slot) {
        let (low, high) = self.slot_words(ring, index);
        let (new_low, new_high) = slot.to_words();
        for (word, new) in [(low, new_low), (high, new_high)] {
            if word.load(Ordering::Relaxed) != new.to_le() {
                word.store(new.to_le(), Ordering::Relaxed);
            }
        }
    }

    /// Prefetches the cache line of slot `index` for writing.
    #[inline]
    pub fn prefetch_slot(&self, ring: usize, index: u32) {
        prefetch_write(self.slot_at(ring, index));
    }

    /// Prefetches the first cache line of a buffer.
    #[inline]
    pub fn prefetch_frame(&self, buf_idx: u16) {
        if let Some(buffer) = self.buffer(buf_idx, 0) {
            buffer.prefetch();
        }
    }

    /// Prefetches the first cache line of a buffer for writing.
    #[inline]
    pub fn prefetch_buffer(&self, buf_idx: u16) {
        if u32::from(buf_idx) < self.header.buffers {
            // SAFETY: as in `buffer`.
            prefetch_write(unsafe { self.buffers.add(usize::from(buf_idx) * self.header.stride as usize) });
        }
    }

    /// Whether neither ring has slots that its consumer has not released. A hostile side may say anything.
    pub fn is_drained(&self) -> bool {
        let index = |ring, side| self.cell(ring, side, Word::Index).load(Ordering::Acquire);
        [TX, RX].into_iter().all(|ring| index(ring, Side::Producer) == index(ring, Side::Consumer))
    }

    /// Whether this memory is no longer in use: the other side is gone, or Ringway revoked the ring.
    #[inline]
    pub fn is_closed(&self) -> bool {
        self.closed().load(Ordering::Acquire) != 0
    }

    /// Marks this memory as no longer in use.
    pub fn close(&self) {
        self.closed().store(1, Ordering::SeqCst);
    }

    #[inline]
    pub(super) fn cell(&self, ring: usize, side: Side, word: Word) -> &AtomicU32 {
        let offset = CELLS + (ring & 1) * 2 * CELL + side as usize * CELL + word as usize * 4;
        // SAFETY: the offset is within the first page and a multiple of 4, and the base is page-aligned;
        // another process may write an atomic at any time.
        unsafe { AtomicU32::from_ptr(self.base.add(offset).as_ptr().cast()) }
    }

    #[inline]
    fn slot_at(&self, ring: usize, index: u32) -> NonNull<u8> {
        let ring = ring & 1;
        let index = index & (self.header.slots[ring] - 1);
        // SAFETY: the index is below the number of slots, all of which are within the region.
        unsafe { self.slots[ring].add(index as usize * Slot::SIZE) }
    }

    #[inline]
    fn slot_words(&self, ring: usize, index: u32) -> (&AtomicU64, &AtomicU64) {
        let at = self.slot_at(ring, index).as_ptr().cast::<u64>();
        // SAFETY: a slot has 16 bytes and is aligned to 16; another process may write an atomic at any time.
        unsafe { (AtomicU64::from_ptr(at), AtomicU64::from_ptr(at.add(1))) }
    }

    fn closed(&self) -> &AtomicU32 {
        // SAFETY: within the first page and aligned, as for `cell`.
        unsafe { AtomicU32::from_ptr(self.base.add(CLOSED).as_ptr().cast()) }
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        self.any_word(index.min(Header::WORDS - 1))
    }

    /// A word of the first page.
    fn any_word(&self, index: usize) -> &AtomicU64 {
        let index = index.min(PAGE as usize / size_of::<u64>() - 1);
        // SAFETY: within the first page and aligned, as for `cell`.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().cast::<u64>().add(index)) }
    }
}

/// Prefetches a cache line for writing, so that the store need not wait for its ownership.
#[inline]
fn prefetch_write(pointer: NonNull<u8>) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no visible effect and cannot fault; on processors without `prefetchw` it is a
    // no-op.
    unsafe {
        let line = pointer.as_ptr();
        core::arch::asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = pointer;
}
