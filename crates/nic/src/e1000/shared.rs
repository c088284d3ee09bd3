//! What the session's side and the workers share: registers that workers read, rings, interrupts, statistics.

use super::interrupts::Interrupts;
use super::registers as reg;
use super::stats::Stats;
use crate::techniques::{Doorbells, Switches, Techniques};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use ringway_frame::{BURST, HEADERS};
use ringway_mem::{Kept, Memory, MemoryError, Region, Span, SpanMut, Words};

/// The range with the registers that can be mapped: those of the rings, and the filters. Between them is a page of
/// statistics, which are cleared by reads and never mapped.
pub const PAGES: (u32, u32) = (0x2000, 0x4000);
const RINGS: (u32, u32) = (0x2000, 0x2000);
const FILTERS: (u32, u32) = (0x5000, 0x1000);
/// End of all registers.
const END: u32 = 0xb640;

/// RDLEN, TDLEN: multiples of 128 bytes below 1 MB.
const LEN_MASK: u32 = 0xf_ff80;
/// RDBAL, TDBAL: multiples of 16.
const BASE_MASK: u32 = !0xf;
/// STATUS: the link is up.
pub(crate) const LINK_UP: u32 = 2;

/// Whether a register may lie in mapped pages.
pub(crate) const fn in_pages(offset: u32) -> bool {
    (offset >= RINGS.0 && offset < RINGS.0 + RINGS.1)
        || (offset >= FILTERS.0 && offset < FILTERS.0 + FILTERS.1)
}

/// What an engine reaches in one turn.
#[derive(Clone, Copy, Debug)]
pub struct Bus<'t> {
    /// The NIC.
    pub shared: &'t Shared,
    /// The guest's memory.
    pub memory: &'t Memory,
    /// The time of the turn in nanoseconds.
    pub now: u64,
}

/// The last generation of any ring, so that an engine never takes the ring of another NIC for that of its former one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// A ring as it was when the driver enabled it.
#[derive(Debug, Default)]
pub(crate) struct RingState {
    generation: AtomicU32,
    base: AtomicU64,
    len: AtomicU32,
    head: AtomicU32,
}

impl RingState {
    /// Which enabling of the ring this is; `None`: it is disabled.
    #[inline]
    pub fn generation(&self) -> Option<u32> {
        Some(self.generation.load(Ordering::Acquire)).filter(|&generation| generation != 0)
    }

    /// Base, length in bytes, head.
    pub fn description(&self) -> (u64, u32, u32) {
        let load = |word: &AtomicU32| word.load(Ordering::Relaxed);
        (self.base.load(Ordering::Relaxed), load(&self.len), load(&self.head))
    }

    fn start(&self, base: u64, len: u32, head: u32) {
        self.base.store(base, Ordering::Relaxed);
        self.len.store(len, Ordering::Relaxed);
        self.head.store(head, Ordering::Relaxed);
        let generation = GENERATION.fetch_add(1, Ordering::Relaxed).wrapping_add(1).max(1);
        self.generation.store(generation, Ordering::Release);
    }

    pub fn stop(&self) {
        self.generation.store(0, Ordering::Release);
    }
}

/// What a NIC's two sides share.
#[derive(Debug)]
pub struct Shared {
    /// Registers that are never mapped, by word.
    file: Box<[AtomicU32]>,
    pages: Kept,
    /// Rewritten headers of the frames of a burst.
    headers: Kept,
    pub(crate) interrupts: Interrupts,
    pub(crate) stats: Stats,
    pub(crate) switches: Switches,
    pub(crate) tx: RingState,
    pub(crate) rx: RingState,
    /// The PHY returns frames instead of sending them.
    pub(crate) loopback: AtomicBool,
    /// Guest-physical address of the shared block; 0: none.
    pub(crate) csb: AtomicU64,
    /// How often a worker found a tail moved: of the transmit ring, of the receive ring.
    pub(crate) doorbells: [AtomicU64; 2],
    /// Until when a worker is about to look at the transmit ring anyway.
    pub(crate) tx_due: AtomicU64,
    /// Receive descriptors may be extended ones.
    pub(crate) extended: bool,
}

impl Shared {
    /// Registers that can be mapped lie in `pages`, memory of [`PAGES`]'s length, or in private memory. `extended`:
    /// there are interrupt causes for each queue, and extended receive descriptors.
    pub(crate) fn new(pages: Option<Region>, extended: bool) -> Result<Shared, MemoryError> {
        let keep = |region: Region, len: u32| {
            let user = region.user;
            Arc::new(Memory::new(alloc::vec![region])?).keep_user(user, len).ok_or(MemoryError::Empty)
        };
        let pages = pages.unwrap_or_else(|| Region::private(0, 0, PAGES.1 as usize));
        let headers = BURST * HEADERS;
        Ok(Shared {
            file: (0..END / 4).map(|_| AtomicU32::new(0)).collect(),
            pages: keep(pages, PAGES.1)?,
            headers: keep(Region::private(0, 0, headers), headers as u32)?,
            interrupts: Interrupts::new(extended),
            stats: Stats::default(),
            switches: Switches::default(),
            tx: RingState::default(),
            rx: RingState::default(),
            loopback: AtomicBool::new(false),
            csb: AtomicU64::new(0),
            doorbells: Default::default(),
            tx_due: AtomicU64::new(0),
            extended,
        })
    }

    /// The techniques in use.
    pub fn techniques(&self) -> Techniques {
        self.switches.get()
    }

    /// The interrupts.
    pub fn interrupts(&self) -> &Interrupts {
        &self.interrupts
    }

    /// Offsets and lengths of the parts of BAR 0 that the guest may map, in the memory given for [`PAGES`].
    pub fn mappable(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let techniques = self.techniques();
        let rings = (techniques.doorbells == Doorbells::Mapped).then_some(RINGS);
        rings.into_iter().chain(techniques.in_place.then_some(FILTERS))
    }

    fn words(&self) -> Option<Words<'_, u32>> {
        Words::new(self.pages.span())
    }

    /// A register's value. Attack: in mapped pages it may change at any time, so callers load it once and check it.
    #[inline]
    pub(crate) fn load(&self, offset: u32) -> u32 {
        if in_pages(offset) {
            let at = (offset - PAGES.0) as usize / 4;
            return self.words().map_or(0, |words| words.load_acquire(at));
        }
        self.file.get(offset as usize / 4).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn store(&self, offset: u32, value: u32) {
        if in_pages(offset) {
            if let Some(words) = self.words() {
                words.store_release((offset - PAGES.0) as usize / 4, value);
            }
        } else if let Some(word) = self.file.get(offset as usize / 4) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Whether the link is up.
    #[inline]
    pub fn link(&self) -> bool {
        self.load(reg::STATUS) & LINK_UP != 0
    }

    /// Whether frames that the guest sends come back to it instead of leaving.
    #[inline]
    pub(crate) fn loops_back(&self) -> bool {
        self.loopback.load(Ordering::Relaxed)
    }

    /// A ring's address and its length in bytes, by the registers that begin at `base`.
    fn place(&self, base: u32) -> (u64, u32) {
        let load = |register: u32| self.load(base + register - reg::RDBAL);
        let low = load(reg::RDBAL) & BASE_MASK;
        (u64::from(load(reg::RDBAH)) << 32 | u64::from(low), load(reg::RDLEN) & LEN_MASK)
    }

    /// Takes the ring registers over that begin at `base`, and enables the ring.
    pub(crate) fn start(&self, ring: &RingState, base: u32) {
        let (address, len) = self.place(base);
        ring.start(address, len, self.load(base + reg::RDH - reg::RDBAL));
    }

    /// Whether an enabled ring was moved through mapped registers since they were taken over.
    pub(crate) fn is_moved(&self, ring: &RingState, base: u32) -> bool {
        let (address, len, _) = ring.description();
        self.place(base) != (address, len)
    }

    /// Place for the headers of frame `number` of a burst.
    pub(crate) fn headers(&self, number: usize) -> SpanMut<'_> {
        self.headers.span().split(number * HEADERS).1.split(HEADERS).0
    }

    /// `bytes`, at most [`HEADERS`], stored at the place for the headers of frame `number`.
    pub(crate) fn keep_headers(&self, number: usize, bytes: &[u8]) -> Span<'_> {
        let place = self.headers(number);
        place.as_span().split(place.write(bytes)).0
    }
}
