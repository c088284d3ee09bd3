//! What the session's side and the workers share: registers that workers read, rings, interrupts, statistics.

use super::interrupts::Interrupts;
use super::registers as reg;
use super::stats::Stats;
use crate::device;
use crate::pieces::Headers;
use crate::ring::RingState;
use crate::techniques::Switches;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ringway_mem::MemoryError;

/// What an engine reaches in one turn.
pub type Bus<'t> = device::Bus<'t, Shared>;

/// What a NIC's two sides share.
#[derive(Debug)]
pub struct Shared {
    /// Registers by the offset of their first byte.
    file: [AtomicU64; reg::SIZE as usize],
    headers: Headers,
    pub(crate) interrupts: Interrupts,
    pub(crate) stats: Stats,
    pub(crate) switches: Switches,
    pub(crate) tx: RingState,
    pub(crate) rx: RingState,
    link: AtomicBool,
    /// Doorbells of the transmit ring.
    pub(crate) doorbells: AtomicU64,
    /// Until when a worker is about to look at the transmit ring anyway.
    pub(crate) tx_due: AtomicU64,
}

impl Shared {
    pub(crate) fn new() -> Result<Shared, MemoryError> {
        Ok(Shared {
            file: core::array::from_fn(|_| AtomicU64::new(0)),
            headers: Headers::new()?,
            interrupts: Interrupts::default(),
            stats: Stats::default(),
            switches: Switches::default(),
            tx: RingState::default(),
            rx: RingState::default(),
            link: AtomicBool::new(false),
            doorbells: AtomicU64::new(0),
            tx_due: AtomicU64::new(0),
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

    /// Whether the link is up.
    #[inline]
    pub(crate) fn link(&self) -> bool {
        self.link.load(Ordering::Relaxed)
    }

    pub(crate) fn set_link(&self, link: bool) {
        self.link.store(link, Ordering::Relaxed);
    }

    /// Places for the headers of a burst's frames.
    pub(crate) fn headers(&self) -> &Headers {
        &self.headers
    }
}
