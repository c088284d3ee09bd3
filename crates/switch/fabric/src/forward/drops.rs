//! Counts frames that reach no destination, by reason.

use super::wait::Cut;
use super::{Delivery, Destination, ETHERNET};
use crate::topology::RxSlot;
use ringway_frame::Reason;
use ringway_switch::{INVALID, List, NOWHERE, RESERVED};
use std::sync::TryLockError;

impl Delivery<'_, '_, '_> {
    /// Counts frames for a destination that is down.
    pub(super) fn count_away(&self, slot: &RxSlot, frames: usize) {
        // Only the worker that has the queue locked writes its counters.
        match slot.queue.try_lock() {
            Err(TryLockError::WouldBlock) => self.source.counters.drop_tx(Reason::Down, frames),
            _held => slot.counters.drop_rx(Reason::Down, frames),
        }
    }

    /// Counts the frames of `start..cut` that were not delivered.
    pub(super) fn count_drops(
        &self,
        lists: &[List],
        open: &[Destination<'_>],
        unsuited: Option<&Destination<'_>>,
        start: usize,
        cut: &Cut,
    ) {
        let mut listed = 0;
        for (number, list) in lists.iter().enumerate() {
            let frames = before(list.frames(), cut.at).len();
            listed += frames;
            if cut.busy & 1 << number != 0 {
                self.source.counters.drop_tx(Reason::Busy, frames);
                continue;
            }
            let Some(slot) = self.topology.rx.get(list.destination as usize) else { continue };
            match open.iter().chain(unsuited).find(|to| to.list == number) {
                Some(to) if to.fits < frames => slot.counters.drop_rx(Reason::Full, frames - to.fits),
                Some(_) => {}
                None => self.count_away(slot, frames),
            }
        }
        if listed == cut.at - start {
            return;
        }
        for frame in start..cut.at {
            let counters = &self.source.counters;
            match self.verdicts[frame] {
                NOWHERE if self.burst.meta(frame).len < ETHERNET => counters.drop_tx(Reason::Short, 1),
                INVALID => counters.drop_tx(Reason::BadSource, 1),
                RESERVED => counters.drop_tx(Reason::Reserved, 1),
                port if port == self.source.port => counters.drop_tx(Reason::Hairpin, 1),
                port if self.topology.port(port).is_none() => counters.drop_tx(Reason::NoPort, 1),
                _ => {}
            }
        }
    }
}

/// The frames of a list that come before `cut`.
#[inline]
pub(super) fn before(frames: &[u16], cut: usize) -> &[u16] {
    match frames.last() {
        Some(&last) if usize::from(last) >= cut => {
            &frames[..frames.partition_point(|&frame| usize::from(frame) < cut)]
        }
        _ => frames,
    }
}
