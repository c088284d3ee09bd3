//! What the session's side and the workers share: registers that workers read, rings, interrupts, statistics.

use super::interrupts::Interrupts;
use super::registers as reg;
use super::stats::Stats;
use crate::csb::Csb;
use crate::descriptor_ring::RingState;
use crate::device::{self, Raise};
use crate::engine::{Direction, Family, Rings};
use crate::pieces::keep;
use crate::techniques::Doorbells;
use alloc::boxed::Box;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use ringway_mem::{Direct, MemoryError, OwnedSpan, Region, Words};

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
/// Nanoseconds of a unit of RDTR, RADV, TIDV and TADV.
const DELAY_UNIT: u64 = 1024;
/// STATUS: the link is up.
pub(crate) const LINK_UP: u32 = 2;

/// Whether a register may lie in mapped pages.
pub(crate) const fn in_pages(offset: u32) -> bool {
    (offset >= RINGS.0 && offset < RINGS.0 + RINGS.1)
        || (offset >= FILTERS.0 && offset < FILTERS.0 + FILTERS.1)
}

/// What an engine reaches in one turn.
pub type Bus<'t> = device::Bus<'t, Shared>;

/// What a NIC's two sides share.
#[derive(Debug)]
pub struct Shared {
    /// Registers that are never mapped, by word.
    file: Box<[AtomicU32]>,
    pages: OwnedSpan,
    pub(crate) interrupts: Interrupts,
    pub(crate) stats: Stats,
    pub(crate) rings: Rings,
    /// The PHY returns frames instead of sending them.
    pub(crate) loopback: AtomicBool,
    /// Guest-physical address of the shared block; 0: none.
    pub(crate) csb: AtomicU64,
    /// Receive descriptors may be extended ones.
    pub(crate) extended: bool,
}

impl Shared {
    /// Registers that can be mapped lie in `pages`, memory of [`PAGES`]'s length, or in private memory. `extended`:
    /// there are interrupt causes for each queue, and extended receive descriptors.
    pub(crate) fn new(pages: Option<Region>, extended: bool) -> Result<Shared, MemoryError> {
        let pages = pages.unwrap_or_else(|| Region::private(0, 0, PAGES.1 as usize));
        Ok(Shared {
            file: (0..END / 4).map(|_| AtomicU32::new(0)).collect(),
            pages: keep(pages, PAGES.1)?,
            interrupts: Interrupts::new(extended),
            stats: Stats::default(),
            rings: Rings::new()?,
            loopback: AtomicBool::new(false),
            csb: AtomicU64::new(0),
            extended,
        })
    }

    /// The interrupts.
    pub fn interrupts(&self) -> &Interrupts {
        &self.interrupts
    }

    /// Offsets and lengths of the parts of BAR 0 that the guest may map, in the memory given for [`PAGES`].
    pub fn mappable(&self) -> impl Iterator<Item = (u32, u32)> + use<> {
        let techniques = self.rings.techniques();
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
}

impl Family for Shared {
    type Block<'t> = Csb<'t>;

    fn rings(&self) -> &Rings {
        &self.rings
    }

    #[inline]
    fn link(&self) -> bool {
        self.load(reg::STATUS) & LINK_UP != 0
    }

    #[inline]
    fn block<'t>(&self, translate: &mut Direct<'t, '_>) -> Option<Csb<'t>> {
        Csb::at(self.csb.load(Ordering::Relaxed), translate)
    }

    fn set_kick(csb: Csb<'_>, direction: Direction, wanted: bool) {
        csb.set_kick(direction, wanted);
    }

    fn wants_interrupt(csb: Csb<'_>, direction: Direction) -> bool {
        csb.wants_interrupt(direction)
    }

    fn delays(&self, direction: Direction) -> [u64; 2] {
        let delays = match direction {
            Direction::Tx => [reg::TIDV, reg::TADV],
            Direction::Rx => [reg::RDTR, reg::RADV],
        };
        delays.map(|register| u64::from(self.load(register) & 0xffff) * DELAY_UNIT)
    }

    fn set(bus: &Bus<'_>, csb: Option<Csb<'_>>, causes: u32) -> Raise {
        let device::Bus { shared, now, .. } = *bus;
        let raise = match csb {
            // The driver doesn't read ICR, so causes are still set there.
            Some(csb) if csb.answer() => shared.interrupts.set_again(causes, now),
            _ => shared.interrupts.set(causes, now),
        };
        if let Some(csb) = csb {
            csb.set_causes(causes, raise);
        }
        raise
    }

    fn set_again(&self, causes: u32, now: u64) -> Raise {
        self.interrupts.set_again(causes, now)
    }

    fn due(&self, now: u64) -> Raise {
        self.interrupts.due(now)
    }

    fn next_due(&self) -> Option<u64> {
        self.interrupts.next_due()
    }
}
