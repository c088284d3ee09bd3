//! Interrupt causes, their mask, and the interval between interrupts. Workers and the session set causes at the same
//! time; each step is one atomic operation.

use crate::device::Raise;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// A transmit descriptor was written back.
pub const TXDW: u32 = 1 << 0;
/// The transmit ring is empty.
pub const TXQE: u32 = 1 << 1;
/// The link changed.
pub const LSC: u32 = 1 << 2;
/// Few receive descriptors are left.
pub const RXDMT0: u32 = 1 << 4;
/// Receive buffers ran out.
pub const RXO: u32 = 1 << 6;
/// A frame was received.
pub const RXT0: u32 = 1 << 7;
/// An access to the PHY has completed.
pub const MDAC: u32 = 1 << 9;
/// A small frame was received.
pub const SRPD: u32 = 1 << 16;
/// Receive queue 0 (82574L).
pub const RXQ0: u32 = 1 << 20;
/// Receive queue 1 (82574L).
pub const RXQ1: u32 = 1 << 21;
/// Transmit queue 0 (82574L).
pub const TXQ0: u32 = 1 << 22;
/// Transmit queue 1 (82574L).
pub const TXQ1: u32 = 1 << 23;
/// Another cause with MSI-X (82574L).
pub const OTHER: u32 = 1 << 24;
/// ICR: an enabled cause is set (82574L).
const ASSERTED: u32 = 1 << 31;
/// Every cause that a driver may set.
const CAUSES: u32 = 0x01ff_ffff;

/// Number of interrupt vectors.
pub const VECTORS: usize = 5;
/// CTRL_EXT: IMS is cleared by IAM when ICR is accessed, or when an MSI-X message is sent.
const IAME: u32 = 1 << 27;
const EIAME: u32 = 1 << 24;

/// A vector's interval in nanoseconds, and the end of the current one.
#[derive(Debug, Default)]
struct Throttle {
    interval: AtomicU64,
    quiet_until: AtomicU64,
}

/// What decides about interrupts.
#[derive(Debug, Default)]
pub struct Interrupts {
    /// ICR, and IMS in the high half.
    state: AtomicU64,
    /// IAM, EIAC, IVAR, CTRL_EXT (82574L).
    pub(super) auto_mask: AtomicU32,
    pub(super) auto_clear: AtomicU32,
    pub(super) vectors: AtomicU32,
    pub(super) control: AtomicU32,
    msix: AtomicBool,
    /// Whether there are causes for each queue.
    queues: bool,
    throttles: [Throttle; VECTORS],
    /// Vectors whose interrupt waits for the end of its interval.
    held: AtomicU32,
    raised: AtomicU64,
    deferred: AtomicU64,
}

const fn icr(state: u64) -> u32 {
    state as u32
}

const fn ims(state: u64) -> u32 {
    (state >> 32) as u32
}

impl Interrupts {
    pub(super) fn new(queues: bool) -> Interrupts {
        Interrupts { queues, ..Interrupts::default() }
    }

    /// Whether the interrupt line (INTx) is asserted.
    pub fn level(&self) -> bool {
        let state = self.state.load(Ordering::SeqCst);
        icr(state) & ims(state) != 0
    }

    /// Interrupts sent, and those deferred to the end of an interval.
    pub fn counts(&self) -> (u64, u64) {
        (self.raised.load(Ordering::Relaxed), self.deferred.load(Ordering::Relaxed))
    }

    /// Sets causes.
    pub(super) fn set(&self, causes: u32, now: u64) -> Raise {
        let causes = self.expand(causes & CAUSES);
        let before = self.state.fetch_or(causes.into(), Ordering::SeqCst);
        self.fire(causes & !icr(before) & ims(before), now)
    }

    /// Sets causes for a driver that does not read ICR: they interrupt although they are set.
    pub(super) fn set_again(&self, causes: u32, now: u64) -> Raise {
        let causes = self.expand(causes & CAUSES);
        let before = self.state.fetch_or(causes.into(), Ordering::SeqCst);
        self.fire(causes & ims(before), now)
    }

    /// The causes of queues that go with `causes`.
    fn expand(&self, causes: u32) -> u32 {
        if !self.queues {
            return causes;
        }
        let of = |some: u32, queue: u32| if causes & some != 0 { queue } else { 0 };
        let other = if self.msix.load(Ordering::Relaxed) { of(LSC | RXO | MDAC, OTHER) } else { 0 };
        causes | of(RXT0 | RXDMT0, RXQ0) | of(TXDW, TXQ0) | other
    }

    pub(super) fn ims(&self) -> u32 {
        ims(self.state.load(Ordering::SeqCst))
    }

    /// Enables causes; those already set interrupt now.
    pub(super) fn enable(&self, mask: u32, now: u64) -> Raise {
        let mask = mask & CAUSES;
        let before = self.state.fetch_or(u64::from(mask) << 32, Ordering::SeqCst);
        self.fire(mask & !ims(before) & icr(before), now)
    }

    pub(super) fn disable(&self, mask: u32) {
        self.state.fetch_and(!(u64::from(mask) << 32), Ordering::SeqCst);
    }

    /// Reads ICR, which clears it.
    pub(super) fn read_causes(&self) -> u32 {
        let before = self.state.fetch_and(!u64::from(u32::MAX), Ordering::SeqCst);
        let asserted = icr(before) & ims(before) != 0;
        self.auto_mask_if(asserted);
        icr(before) | if self.queues && asserted { ASSERTED } else { 0 }
    }

    /// Clears causes by writing ones to ICR.
    pub(super) fn clear(&self, causes: u32) {
        let before = self.state.fetch_and(!u64::from(causes), Ordering::SeqCst);
        self.auto_mask_if(icr(before) & ims(before) != 0);
    }

    fn auto_mask_if(&self, asserted: bool) {
        if asserted && self.control.load(Ordering::Relaxed) & IAME != 0 {
            self.disable(self.auto_mask.load(Ordering::Relaxed));
        }
    }

    /// Sends an interrupt for newly enabled causes, unless its interval has not ended.
    fn fire(&self, causes: u32, now: u64) -> Raise {
        if causes == 0 {
            return Raise::NONE;
        }
        if !self.msix.load(Ordering::Relaxed) {
            return self.throttled(0, now);
        }
        let mut raise = Raise::NONE;
        for (number, cause) in [RXQ0, RXQ1, TXQ0, TXQ1, OTHER].into_iter().enumerate() {
            if causes & cause == 0 {
                continue;
            }
            let entry = self.vectors.load(Ordering::Relaxed) >> (4 * number) & 0xf;
            // Attack: vectors beyond the table, or not valid.
            if entry & 8 != 0 && (entry as usize & 7) < VECTORS {
                raise |= self.throttled(entry as usize & 7, now);
            }
            self.sent(cause);
        }
        raise
    }

    /// What an MSI-X message does to its cause.
    fn sent(&self, cause: u32) {
        let clears = cause & self.auto_clear.load(Ordering::Relaxed);
        let control = self.control.load(Ordering::Relaxed);
        self.state.fetch_and(!u64::from(clears), Ordering::SeqCst);
        if control & IAME == 0 {
            self.disable(clears);
        }
        if control & EIAME != 0 {
            self.disable(self.auto_mask.load(Ordering::Relaxed) & cause);
        }
    }

    fn throttled(&self, vector: usize, now: u64) -> Raise {
        let throttle = &self.throttles[vector];
        if now < throttle.quiet_until.load(Ordering::Relaxed) {
            self.held.fetch_or(1 << vector, Ordering::SeqCst);
            self.deferred.fetch_add(1, Ordering::Relaxed);
            return Raise::NONE;
        }
        let interval = throttle.interval.load(Ordering::Relaxed);
        throttle.quiet_until.store(now.saturating_add(interval), Ordering::Relaxed);
        self.raised.fetch_add(1, Ordering::Relaxed);
        Raise::of(vector)
    }

    /// Sends deferred interrupts whose interval has ended. Without MSI-X, one whose cause was cleared is dropped.
    pub(super) fn due(&self, now: u64) -> Raise {
        let mut raise = Raise::NONE;
        let held = self.held.load(Ordering::SeqCst);
        for (vector, throttle) in self.throttles.iter().enumerate() {
            let bit = 1 << vector;
            if held & bit == 0 || now < throttle.quiet_until.load(Ordering::Relaxed) {
                continue;
            }
            let mine = self.held.fetch_and(!bit, Ordering::SeqCst) & bit != 0;
            // An MSI-X cause may have cleared itself when its message was deferred.
            if mine && (self.msix.load(Ordering::Relaxed) || self.level()) {
                raise |= self.throttled(vector, now);
            }
        }
        raise
    }

    /// When [`Interrupts::due`] must be called.
    pub(super) fn next_due(&self) -> Option<u64> {
        let held = self.held.load(Ordering::SeqCst);
        let waits = self.throttles.iter().enumerate().filter(|(vector, _)| held >> vector & 1 != 0);
        waits.map(|(_, throttle)| throttle.quiet_until.load(Ordering::Relaxed)).min()
    }

    /// Sets the interval of a vector.
    pub(super) fn set_interval(&self, vector: usize, nanoseconds: u64, now: u64) {
        let Some(throttle) = self.throttles.get(vector) else { return };
        throttle.interval.store(nanoseconds, Ordering::Relaxed);
        let until = throttle.quiet_until.load(Ordering::Relaxed).min(now.saturating_add(nanoseconds));
        throttle.quiet_until.store(until, Ordering::Relaxed);
    }

    pub(super) fn set_msix(&self, enabled: bool) {
        self.msix.store(enabled, Ordering::Relaxed);
    }

    /// Forgets everything but the counts and the kind of interrupt.
    pub(super) fn reset(&self) {
        self.state.store(0, Ordering::SeqCst);
        self.held.store(0, Ordering::SeqCst);
        for register in [&self.auto_mask, &self.auto_clear, &self.vectors, &self.control] {
            register.store(0, Ordering::Relaxed);
        }
        (0..VECTORS).for_each(|vector| self.set_interval(vector, 0, 0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Raise = Raise::of(0);

    #[test]
    fn a_cause_interrupts_when_it_is_enabled_or_set_and_a_read_clears_it() {
        let interrupts = Interrupts::new(false);
        assert_eq!(interrupts.set(RXT0, 0), Raise::NONE);
        assert_eq!(interrupts.enable(RXT0 | LSC, 0), ONE);
        assert_eq!(interrupts.set(RXT0, 0), Raise::NONE, "the driver has been told");
        assert_eq!(interrupts.set_again(RXT0, 0), ONE);
        assert_eq!(interrupts.set(LSC | TXDW, 0), ONE);
        assert!(interrupts.level());
        assert_eq!(interrupts.read_causes(), RXT0 | LSC | TXDW);
        assert!(!interrupts.level());
        interrupts.disable(RXT0);
        assert_eq!(interrupts.set(RXT0, 0), Raise::NONE);
        interrupts.clear(RXT0);
        assert_eq!(interrupts.read_causes(), 0);
    }

    #[test]
    fn an_interval_has_one_interrupt_and_loses_none() {
        let interrupts = Interrupts::new(false);
        interrupts.set_interval(0, 1000, 0);
        assert_eq!(interrupts.enable(RXT0 | TXDW, 0), Raise::NONE);
        assert_eq!(interrupts.set(RXT0, 10), ONE);
        assert_eq!(interrupts.set(TXDW, 20), Raise::NONE);
        assert_eq!((interrupts.next_due(), interrupts.due(1009)), (Some(1010), Raise::NONE));
        assert_eq!((interrupts.due(1010), interrupts.next_due()), (ONE, None));
        let _ = interrupts.read_causes();
        assert_eq!(interrupts.set(RXT0, 1100), Raise::NONE);
        let _ = interrupts.read_causes();
        assert_eq!(interrupts.due(2010), Raise::NONE, "the driver has seen the cause");
        assert_eq!(interrupts.set(RXT0, 2011), ONE);
        assert_eq!(interrupts.counts(), (3, 2));
        interrupts.set_interval(0, 5, 2012);
        let _ = interrupts.read_causes();
        assert_eq!(interrupts.set(RXT0, 2017), ONE, "a shorter interval holds at once");
    }

    #[test]
    fn an_interval_that_was_over_long_ago_has_one_interrupt() {
        let interrupts = Interrupts::new(false);
        interrupts.set_interval(0, 1000, 0);
        assert_eq!(interrupts.enable(RXT0 | TXDW, 0), Raise::NONE);
        assert_eq!((interrupts.set(RXT0, 10), interrupts.set(TXDW, 20)), (ONE, Raise::NONE));
        let hour = 3_600_000_000_000;
        assert_eq!((interrupts.due(hour), interrupts.due(hour)), (ONE, Raise::NONE));
        let _ = interrupts.read_causes();
        assert_eq!(interrupts.set(RXT0, hour + 999), Raise::NONE, "an interval begins with it");
        assert_eq!((interrupts.due(hour + 1000), interrupts.next_due()), (ONE, None));
    }

    #[test]
    fn msix_messages_clear_and_mask_their_cause() {
        let interrupts = Interrupts::new(true);
        interrupts.set_msix(true);
        interrupts.vectors.store(0xa_09_08, Ordering::Relaxed);
        interrupts.auto_clear.store(RXQ0 | TXQ0, Ordering::Relaxed);
        let _ = interrupts.enable(RXQ0 | TXQ0 | OTHER | LSC, 0);
        assert_eq!(interrupts.set(RXT0, 0).vectors().collect::<Vec<_>>(), [0]);
        assert_eq!(interrupts.ims() & RXQ0, 0);
        let _ = interrupts.set(RXT0, 0);
        assert_eq!(interrupts.enable(RXQ0, 0), ONE, "a frame that came while it was masked");
        interrupts.vectors.store(0xa_0f_08, Ordering::Relaxed);
        assert_eq!(interrupts.set(TXDW, 0), Raise::NONE, "there is no vector 7");
    }

    #[test]
    fn reading_icr_masks_by_iam() {
        let interrupts = Interrupts::new(true);
        interrupts.control.store(IAME, Ordering::Relaxed);
        interrupts.auto_mask.store(u32::MAX, Ordering::Relaxed);
        let _ = interrupts.enable(RXT0, 0);
        let _ = interrupts.set(RXT0, 0);
        assert_eq!(interrupts.read_causes(), RXT0 | RXQ0 | ASSERTED);
        assert_eq!(interrupts.ims(), 0);
    }
}
