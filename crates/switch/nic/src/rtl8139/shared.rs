//! What the session's side and the workers share: registers that workers read, rings, interrupts, statistics.

use super::interrupts::Interrupts;
use super::registers as reg;
use super::stats::Stats;
use crate::device::{self, Raise};
use crate::engine::{Family, Rings};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ringway_mem::MemoryError;

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
}

impl Shared {
    pub(crate) fn new() -> Result<Shared, MemoryError> {
        Ok(Shared {
            file: core::array::from_fn(|_| AtomicU64::new(0)),
            interrupts: Interrupts::default(),
            stats: Stats::default(),
            rings: Rings::new()?,
            link: AtomicBool::new(false),
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
    /// There is none.
    type Block<'t> = ();

    fn rings(&self) -> &Rings {
        &self.rings
    }

    #[inline]
    fn link(&self) -> bool {
        self.link.load(Ordering::Relaxed)
    }

    fn set(bus: &Bus<'_>, _block: Option<()>, causes: u32) -> Raise {
        bus.shared.interrupts.set(causes)
    }

    fn set_again(&self, causes: u32, _now: u64) -> Raise {
        self.interrupts.set_again(causes)
    }
}
