//! The TX queue: that of a ring, with a timer in place of the doorbell.

use ringway_frame::{Burst, TxQueue};
use ringway_mem::Turn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A ring's TX queue whose sleeping worker looks for frames at intervals, so that the guest needs no register.
pub(super) struct TimedTx {
    ring: Box<dyn TxQueue>,
    /// Nanoseconds.
    interval: u64,
    /// Whether a program uses the ring.
    used: Arc<AtomicBool>,
    due: Option<u64>,
}

impl TimedTx {
    pub fn new(ring: Box<dyn TxQueue>, interval: u64, used: Arc<AtomicBool>) -> TimedTx {
        TimedTx { ring, interval: interval.max(1), used, due: None }
    }
}

impl TxQueue for TimedTx {
    fn take<'t>(&mut self, turn: &'t Turn<'_>, burst: &mut Burst<'t>) {
        self.due = None;
        self.ring.take(turn, burst);
    }

    fn release(&mut self, turn: &Turn<'_>, frames: usize) {
        self.ring.release(turn, frames);
    }

    fn arm(&mut self, turn: &Turn<'_>) -> bool {
        self.due = None;
        if !self.ring.arm(turn) {
            return false;
        }
        // While nobody uses the ring, the next program's reset wakes the worker.
        if self.used.load(Relaxed) {
            self.ring.disarm(turn);
            // Queues with the same interval are looked at together.
            self.due = Some((turn.now / self.interval + 1).saturating_mul(self.interval));
        }
        true
    }

    fn disarm(&mut self, turn: &Turn<'_>) {
        self.ring.disarm(turn);
    }

    fn next_due(&self) -> Option<u64> {
        self.due
    }
}
