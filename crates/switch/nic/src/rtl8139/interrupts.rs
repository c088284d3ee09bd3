//! Interrupt causes and their mask. Workers and the session set causes at the same time; each step is one atomic
//! operation.

use crate::device::Raise;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A frame was received.
pub const ROK: u32 = 1 << 0;
/// A frame was received with an error.
pub const RER: u32 = 1 << 1;
/// A frame was transmitted.
pub const TOK: u32 = 1 << 2;
/// A frame was not transmitted.
pub const TER: u32 = 1 << 3;
/// There is no receive descriptor.
pub const RDU: u32 = 1 << 4;
/// The link changed.
pub const LINK_CHANGE: u32 = 1 << 5;
/// There is no transmit descriptor.
pub const TDU: u32 = 1 << 7;
/// The driver asked for it.
pub const SOFTWARE: u32 = 1 << 8;

/// What decides about interrupts.
#[derive(Debug, Default)]
pub(crate) struct Interrupts {
    /// ISR, and IMR in the high half.
    state: AtomicU32,
    raised: AtomicU64,
}

const fn isr(state: u32) -> u32 {
    state & 0xffff
}

const fn imr(state: u32) -> u32 {
    state >> 16
}

impl Interrupts {
    pub fn causes(&self) -> u32 {
        isr(self.state.load(Ordering::SeqCst))
    }

    pub fn mask(&self) -> u32 {
        imr(self.state.load(Ordering::SeqCst))
    }

    /// Whether the interrupt line is asserted.
    pub fn level(&self) -> bool {
        let state = self.state.load(Ordering::SeqCst);
        isr(state) & imr(state) != 0
    }

    /// Interrupts sent.
    pub fn count(&self) -> u64 {
        self.raised.load(Ordering::Relaxed)
    }

    /// Sets causes.
    pub fn set(&self, causes: u32) -> Raise {
        let before = self.state.fetch_or(isr(causes), Ordering::SeqCst);
        self.fire(causes & !isr(before) & imr(before))
    }

    /// Sets causes that were held back: they interrupt although they are set.
    pub fn set_again(&self, causes: u32) -> Raise {
        let before = self.state.fetch_or(isr(causes), Ordering::SeqCst);
        self.fire(causes & imr(before))
    }

    /// Interrupts for causes that are enabled without setting them: the driver has them in its shared block, and does
    /// not clear them here.
    pub fn pulse(&self, causes: u32) -> Raise {
        self.fire(causes & self.mask())
    }

    /// Clears causes.
    pub fn clear(&self, causes: u32) {
        self.state.fetch_and(!isr(causes), Ordering::SeqCst);
    }

    /// Replaces the mask; newly enabled causes interrupt now.
    pub fn set_mask(&self, mask: u32) -> Raise {
        let replace = |state| Some(isr(state) | isr(mask) << 16);
        let before = self.state.try_update(Ordering::SeqCst, Ordering::SeqCst, replace).unwrap_or_default();
        self.fire(isr(before) & mask & !imr(before))
    }

    pub fn reset(&self) {
        self.state.store(0, Ordering::SeqCst);
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
    fn a_cause_interrupts_when_it_is_set_or_enabled_until_it_is_cleared() {
        let (interrupts, one) = (Interrupts::default(), Raise::of(0));
        assert_eq!(interrupts.set(ROK), Raise::NONE);
        assert_eq!(interrupts.set_mask(ROK | TOK), one);
        assert_eq!((interrupts.set(ROK), interrupts.set_again(ROK)), (Raise::NONE, one));
        assert_eq!((interrupts.set_mask(ROK | TOK), interrupts.set(TOK)), (Raise::NONE, one));
        interrupts.clear(ROK);
        assert_eq!((interrupts.causes(), interrupts.level()), (TOK, true));
        assert_eq!(interrupts.set_mask(0), Raise::NONE);
        assert!(!interrupts.level() && interrupts.mask() == 0 && interrupts.count() == 3);
        assert_eq!(interrupts.pulse(ROK), Raise::NONE);
        interrupts.clear(!0);
        assert_eq!(interrupts.set_mask(ROK), Raise::NONE);
        assert_eq!(
            (interrupts.pulse(ROK), interrupts.pulse(ROK), interrupts.pulse(TOK)),
            (one, one, Raise::NONE)
        );
        assert!(!interrupts.level() && interrupts.causes() == 0);
    }
}
