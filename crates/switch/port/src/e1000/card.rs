//! What workers reach of a client: its memory and its interrupts.

use ringway_frame::{Counters, add};
use ringway_host::Signal;
use ringway_mem::Memory;
use ringway_nic::{Bus, Raise};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A card as workers see it; never changed, only replaced. `S`: what its model's two sides share.
#[derive(Debug)]
pub(super) struct Card<S> {
    pub shared: Arc<S>,
    pub memory: Arc<Memory>,
    pub calls: Calls,
    /// Largest frame in bytes that the guest gets.
    pub largest: u32,
}

/// The interrupts of the type in use.
#[derive(Debug, Default)]
pub(super) struct Calls {
    /// Eventfds by vector.
    pub signals: Vec<Option<Arc<Signal>>>,
    /// Set while the pin is masked, if it is in use: a raised pin masks itself until the client unmasks it.
    pub masked: Option<Arc<AtomicBool>>,
}

impl<S> Card<S> {
    /// What an engine reaches in a turn at `now`.
    #[inline]
    pub fn bus(&self, now: u64) -> Bus<'_, S> {
        Bus { shared: &self.shared, memory: &self.memory, now }
    }

    /// Sends interrupts.
    #[inline]
    pub fn raise(&self, raise: Raise, counters: &Counters) {
        if !raise.is_none() {
            raise.vectors().for_each(|vector| self.calls.send(vector.into(), counters));
        }
    }
}

impl Calls {
    /// Sends an interrupt. A masked pin is sent when it is unmasked, if it is still asserted then.
    pub fn send(&self, vector: usize, counters: &Counters) {
        let Some(Some(signal)) = self.signals.get(vector) else { return };
        // SeqCst: the cause was set before; either this sees the unmasking, or the unmasking sees the cause.
        if self.masked.as_ref().is_some_and(|masked| masked.swap(true, Ordering::SeqCst)) {
            return;
        }
        add(&counters.interrupts, 1);
        signal.send();
    }
}
