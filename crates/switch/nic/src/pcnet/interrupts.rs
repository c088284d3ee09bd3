//! Interrupt causes of CSR0, their masks in CSR3, and whether interrupts are enabled. Workers and the session set
//! causes at the same time; each step is one atomic operation.

use crate::device::Raise;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The initialization block was read.
pub const IDON: u32 = 1 << 8;
/// A descriptor was sent.
pub const TINT: u32 = 1 << 9;
/// A frame was received.
pub const RINT: u32 = 1 << 10;
/// The initialization block is not in memory.
pub const MERR: u32 = 1 << 11;
/// There is no receive descriptor.
pub const MISS: u32 = 1 << 12;
/// All causes, and those that are errors.
pub const CAUSES: u32 = 0x7f00;
const ERRORS: u32 = 0x7800;
/// Interrupts are enabled; a cause that is not masked is set; an error is set.
const IENA: u32 = 1 << 6;
const INTR: u32 = 1 << 7;
const ERR: u32 = 1 << 15;

/// What decides about interrupts.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    /// Causes and IENA, and the masks in the high half.
    state: AtomicU32,
    raised: AtomicU64,
}

/// Causes that are set and not masked.
const fn unmasked(state: u32) -> u32 {
    state & CAUSES & !(state >> 16)
}

/// Causes that assert the line.
const fn asserted(state: u32) -> u32 {
    if state & IENA != 0 { unmasked(state) } else { 0 }
}

impl Interrupts {
    /// The bits of CSR0 that are about interrupts.
    pub fn status(&self) -> u32 {
        let state = self.state.load(Ordering::SeqCst);
        let intr = if unmasked(state) != 0 { INTR } else { 0 };
        let err = if state & ERRORS != 0 { ERR } else { 0 };
        state & (CAUSES | IENA) | intr | err
    }

    /// Whether the interrupt line is asserted.
    pub fn level(&self) -> bool {
        asserted(self.state.load(Ordering::SeqCst)) != 0
    }

    /// Interrupts sent.
    pub fn count(&self) -> u64 {
        self.raised.load(Ordering::Relaxed)
    }

    /// Sets causes.
    pub fn set(&self, causes: u32) -> Raise {
        self.change(|state| state | causes & CAUSES)
    }

    /// Sets causes that were held back: they interrupt although they are set.
    pub fn set_again(&self, causes: u32) -> Raise {
        let before = self.state.fetch_or(causes & CAUSES, Ordering::SeqCst);
        self.fire(asserted(before | causes & CAUSES) & causes)
    }

    /// A write to CSR0: clears the causes that are written as 1, and enables or disables interrupts.
    pub fn write(&self, value: u32) -> Raise {
        self.change(|state| state & !(value & CAUSES) & !IENA | value & IENA)
    }

    /// Replaces the masks; causes that are not masked any more interrupt now.
    pub fn set_mask(&self, mask: u32) -> Raise {
        self.change(|state| state & 0xffff | mask << 16)
    }

    /// Clears causes and disables interrupts; the masks stay.
    pub fn stop(&self) {
        self.state.fetch_and(0xffff_0000, Ordering::SeqCst);
    }

    pub fn reset(&self) {
        self.state.store(0, Ordering::SeqCst);
    }

    /// Interrupts if a cause asserts the line that did not before.
    fn change(&self, new: impl Fn(u32) -> u32) -> Raise {
        let change = |state| Some(new(state));
        let before = self.state.try_update(Ordering::SeqCst, Ordering::SeqCst, change).unwrap_or_default();
        self.fire(asserted(new(before)) & !asserted(before))
    }

    fn fire(&self, causes: u32) -> Raise {
        if causes == 0 {
            return Raise::NONE;
        }
        self.raised.fetch_add(1, Ordering::Relaxed);
        Raise::of(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_interrupts_when_it_is_set_enabled_or_unmasked_until_it_is_cleared() {
        let (interrupts, one) = (Interrupts::default(), Raise::of(0));
        assert_eq!(interrupts.set(RINT), Raise::NONE);
        assert_eq!((interrupts.status(), interrupts.level()), (RINT | INTR, false));
        assert_eq!(interrupts.write(IENA), one);
        assert_eq!((interrupts.set(RINT), interrupts.set_again(RINT)), (Raise::NONE, one));
        assert_eq!(interrupts.set_mask(RINT | TINT), Raise::NONE);
        assert_eq!((interrupts.set(TINT), interrupts.level()), (Raise::NONE, false));
        assert_eq!(interrupts.status(), RINT | TINT | IENA);
        assert_eq!(interrupts.set_mask(RINT), one);
        assert_eq!(interrupts.write(IENA | TINT), Raise::NONE);
        assert_eq!(interrupts.status(), RINT | IENA);
        assert_eq!(interrupts.set(MISS), one);
        assert_eq!(interrupts.status(), RINT | MISS | IENA | INTR | ERR);
        interrupts.stop();
        assert_eq!((interrupts.status(), interrupts.set(RINT), interrupts.count()), (0, Raise::NONE, 4));
    }
}
