//! Destinations of a burst: locking, reserving, copying, publishing.

use super::Delivery;
use crate::topology::{RxSlot, is_closed};
use ringway_frame::{Burst, Caps, Lost, Reason, RxQueue, add};
use ringway_mem::Turn;
use ringway_port::offload::{Completed, Outcome, Whole};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, MutexGuard, TryLockError};

/// A destination while its lock is held.
pub(super) struct Destination<'w> {
    pub(super) queue: MutexGuard<'w, Box<dyn RxQueue>>,
    pub(super) slot: &'w Arc<RxSlot>,
    pub(super) list: usize,
    pub(super) fits: usize,
}

impl<'w> Destination<'w> {
    /// Takes the destination's lock without waiting, and gets its capabilities. `Ok(None)`: the destination is down.
    #[inline]
    pub(super) fn new(
        slot: &'w Arc<RxSlot>,
        list: usize,
        turn: &Turn<'_>,
    ) -> Result<Option<(Destination<'w>, Caps)>, Busy> {
        let mut queue = match slot.queue.try_lock() {
            Ok(queue) => queue,
            Err(TryLockError::WouldBlock) => return Err(Busy),
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        };
        if slot.given_up.load(Relaxed) {
            slot.given_up.store(false, Relaxed);
        }
        if is_closed(&slot.budget) {
            return Ok(None);
        }
        let Some(caps) = queue.caps(turn) else { return Ok(None) };
        Ok(Some((Destination { queue, slot, list, fits: 0 }, caps)))
    }

    #[inline]
    pub(super) fn reserve(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, frames: &[u16]) {
        self.fits = self.queue.reserve(turn, burst, frames).min(frames.len());
    }

    /// Called when the destination has room for all frames offered.
    #[inline]
    pub(super) fn fits_all(&self, now: u64, hold: u64) {
        if self.slot.wait_limit.is_over() {
            self.slot.wait_limit.renew(now, hold);
        }
    }

    #[inline]
    pub(super) fn put(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, frames: &[u16]) -> Lost {
        let lost = self.queue.put(turn, burst, frames);
        let bytes: u64 = if frames.len() == burst.len() {
            burst.bytes() as u64
        } else {
            frames.iter().map(|&frame| u64::from(burst.meta(usize::from(frame)).len)).sum()
        };
        add(&self.slot.counters.rx_frames, (frames.len() as u64).saturating_sub(lost.frames));
        add(&self.slot.counters.rx_bytes, bytes.saturating_sub(lost.bytes));
        lost
    }

    #[inline]
    pub(super) fn publish(
        &mut self,
        turn: &Turn<'_>,
        due: &mut Vec<(u64, Arc<RxSlot>)>,
        combining: &mut usize,
    ) {
        self.queue.publish(turn);
        if let Some(when) = self.queue.next_due() {
            *combining += usize::from(self.queue.defers_signal());
            if !due.iter().any(|(_, slot)| Arc::ptr_eq(slot, self.slot)) {
                due.push((when, self.slot.clone()));
            }
        }
    }
}

/// A destination that can't take its frames unmodified, and the frames completed for it.
pub(super) struct Unsuited<'d, 'c> {
    pub(super) to: Destination<'d>,
    /// The longest frame that it takes.
    pub(super) largest: u32,
    pub(super) completed: Completed<'c>,
    pub(super) whole: Whole,
}

impl Unsuited<'_, '_> {
    pub(super) fn reserve(&mut self, turn: &Turn<'_>) {
        let Unsuited { to, completed, whole, .. } = self;
        to.reserve(turn, &completed.burst, completed.names());
        // Attack: a destination that always has room for some segments of a frame, but never for all. Only
        // whole frames count, or the sender would wait forever.
        *whole = completed.whole(to.fits);
    }

    /// Copies the frames made from `inputs`, and counts those that could not be completed. Those that are too long are
    /// answered if they are for this destination only.
    pub(super) fn put(&mut self, delivery: &Delivery<'_, '_, '_>, inputs: &[u16], is_only: bool) {
        let Unsuited { to, completed, whole, largest } = self;
        let outcomes = &completed.outcomes[..inputs.len().min(whole.inputs)];
        let outputs = outcomes.iter().zip(inputs).map(|(outcome, input)| match outcome {
            Outcome::Frames(frames) => usize::from(*frames),
            Outcome::Dropped(reason) => {
                to.slot.counters.drop_rx(*reason, 1);
                if *reason == Reason::Long && is_only {
                    let long = [*largest, to.queue.framing()];
                    delivery.answer_long(to.slot.port, usize::from(*input), long);
                }
                delivery.capture_dropped(to.slot.port, *reason, [usize::from(*input)].into_iter());
                0
            }
        });
        let outputs = outputs.sum();
        delivery.put(to, &completed.burst, &completed.names()[..outputs]);
        to.fits = whole.inputs;
    }
}

/// Another worker has the destination's queue locked.
pub(super) struct Busy;
