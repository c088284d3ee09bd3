//! What the session's side and the workers share: registers that workers read, rings, interrupts, statistics.

use super::interrupts::Interrupts;
use super::registers as reg;
use super::stats::Stats;
use crate::csb::Csb;
use crate::device::{self, Raise};
use crate::engine::{Direction, Family, Rings};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ringway_mem::{Direct, MemoryError};

/// What an engine reaches in one turn.
pub type Bus<'t> = device::Bus<'t, Shared>;

/// What a NIC's two sides share.
#[derive(Debug)]
pub struct Shared {
    /// Registers by the offset of their first byte.
    file: [AtomicU64; reg::SIZE as usize],
    pub(crate) interrupts: Interrupts,
    pub(crate) stats: Stats,
    pub(crate) rings: Rings,
    link: AtomicBool,
    /// Guest-physical address of the shared block; 0: none.
    pub(crate) csb: AtomicU64,
}

impl Shared {
    pub(crate) fn new() -> Result<Shared, MemoryError> {
        Ok(Shared {
            file: core::array::from_fn(|_| AtomicU64::new(0)),
            interrupts: Interrupts::default(),
            stats: Stats::default(),
            rings: Rings::new()?,
            link: AtomicBool::new(false),
            csb: AtomicU64::new(0),
        })
    }

    #[inline]
    pub(crate) fn load(&self, offset: u32) -> u64 {
        self.file.get(offset as usize).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn store(&self, offset: u32, value: u64) {
        if let Some(word) = self.file.get(offset as usize) {
            word.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn set_link(&self, link: bool) {
        self.link.store(link, Ordering::Relaxed);
    }
}

impl Family for Shared {
    type Block<'t> = Csb<'t>;

    fn rings(&self) -> &Rings {
        &self.rings
    }

    #[inline]
    fn link(&self) -> bool {
        self.link.load(Ordering::Relaxed)
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

    fn set(bus: &Bus<'_>, csb: Option<Csb<'_>>, causes: u32) -> Raise {
        let interrupts = &bus.shared.interrupts;
        let raise = match csb {
            // The driver doesn't clear ISR; the pin would stay asserted.
            Some(csb) if csb.answer() => interrupts.pulse(causes),
            _ => interrupts.set(causes),
        };
        if let Some(csb) = csb {
            csb.set_causes(causes, raise);
        }
        raise
    }

    fn set_again(&self, causes: u32, _now: u64) -> Raise {
        match self.csb.load(Ordering::Relaxed) {
            0 => self.interrupts.set_again(causes),
            _ => self.interrupts.pulse(causes),
        }
    }
}
