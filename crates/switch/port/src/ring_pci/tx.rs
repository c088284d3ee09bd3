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

    fn is_half_full(&mut self, turn: &Turn<'_>) -> Option<bool> {
        self.ring.is_half_full(turn)
    }

    fn next_due(&self) -> Option<u64> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_mem::Reader;

    struct Half;

    impl TxQueue for Half {
        fn take<'t>(&mut self, _turn: &'t Turn<'_>, _burst: &mut Burst<'t>) {}

        fn release(&mut self, _turn: &Turn<'_>, _frames: usize) {}

        fn arm(&mut self, _turn: &Turn<'_>) -> bool {
            true
        }

        fn disarm(&mut self, _turn: &Turn<'_>) {}

        fn is_half_full(&mut self, _turn: &Turn<'_>) -> Option<bool> {
            Some(true)
        }
    }

    #[test]
    fn how_full_the_ring_is_is_known_with_a_timer_too() {
        let mut reader = Reader::register().unwrap();
        let mut timed = TimedTx::new(Box::new(Half), 1, Arc::new(AtomicBool::new(true)));
        assert_eq!(timed.is_half_full(&reader.turn(0)), Some(true));
    }
}
