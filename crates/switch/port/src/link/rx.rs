//! The RX queue: frames that enter the link.

use super::stored::Stored;
use super::{ARRIVAL_BYTES, ARRIVALS, Shared};
use ringway_frame::{Burst, Caps, LARGEST, Lost, Needs, Reason, RxQueue};
use ringway_mem::Turn;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// A queue that accepts every frame; the link drops those that it has no room for.
pub(super) struct LinkRx {
    shared: Arc<Shared>,
    /// Frames not passed on yet, and their bytes.
    pending: Vec<Stored>,
    bytes: usize,
    /// Memory for further frames.
    spare: Vec<Vec<u8>>,
}

impl LinkRx {
    pub fn new(shared: Arc<Shared>) -> LinkRx {
        LinkRx { shared, pending: Vec::new(), bytes: 0, spare: Vec::new() }
    }
}

impl RxQueue for LinkRx {
    fn caps(&mut self, _turn: &Turn<'_>) -> Option<Caps> {
        let offloads = if self.shared.fills.load(Relaxed) { Needs::NONE } else { Needs::CSUM };
        Some(Caps { offloads, largest: LARGEST })
    }

    fn reserve(&mut self, _turn: &Turn<'_>, _burst: &Burst<'_>, which: &[u16]) -> usize {
        which.len()
    }

    fn put(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> Lost {
        // The turn's own time is before the frames were taken, perhaps long before: the worker may have lost its core
        // since. A frame that is stamped with it would leave before its delay has expired.
        let arrived = (self.shared.now)().max(turn.now);
        for (done, &frame) in which.iter().enumerate() {
            let frame = usize::from(frame);
            let bytes = self.bytes + burst.meta(frame).len as usize;
            if self.pending.len() >= ARRIVALS || bytes > ARRIVAL_BYTES {
                return Lost::count(&self.shared.counters, Reason::Full, burst, &which[done..]);
            }
            self.bytes = bytes;
            let memory = self.spare.pop().unwrap_or_default();
            self.pending.push(Stored::new(burst, frame, arrived, memory));
        }
        Lost::default()
    }

    fn publish(&mut self, _turn: &Turn<'_>) {
        let Ok(mut exchange) = self.shared.exchange.try_lock() else { return };
        if self.spare.is_empty() {
            std::mem::swap(&mut exchange.spare, &mut self.spare);
        }
        if exchange.arrivals.is_empty() {
            std::mem::swap(&mut exchange.arrivals, &mut self.pending);
            self.bytes = 0;
        }
        drop(exchange);
        // Either this thread sees `armed`, or the link's worker, which set it before it looked, sees the arrivals.
        if self.shared.armed.load(SeqCst) && self.shared.armed.swap(false, SeqCst) {
            self.shared.doorbell.wake();
        }
    }

    fn next_due(&self) -> Option<u64> {
        (!self.pending.is_empty()).then_some(0)
    }
}
