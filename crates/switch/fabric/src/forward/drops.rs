//! Counts frames that reach no destination, by reason.

use super::capture::numbers;
use super::wait::Cut;
use super::{Delivery, Destination, ETHERNET};
use crate::topology::{RxSlot, Topology};
use ringway_frame::Reason;
use ringway_switch::{
    BAD_OFFLOAD, FLOW_LIMIT, FLOWN, FOREIGN, INVALID, ISOLATED, LONG_HEADERS, List, METERED, NO_FLOW,
    NOWHERE, PortId, RATE_FROM, RATE_TO, RESERVED, ROGUE, SPOOFED, STORM, UNREADABLE, WRONG_VLAN,
};
use std::sync::TryLockError;

impl Delivery<'_, '_, '_> {
    /// Counts frames for a destination that is down.
    pub(super) fn count_away(&self, slot: &RxSlot, frames: &[u16]) {
        // Only the worker that has the queue locked writes its counters.
        let port = match slot.queue.try_lock() {
            Err(TryLockError::WouldBlock) => {
                self.source.counters.drop_tx(Reason::Down, frames.len());
                self.source.port
            }
            _held => {
                slot.counters.drop_rx(Reason::Down, frames.len());
                slot.port
            }
        };
        self.capture_dropped(port, Reason::Down, numbers(frames));
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
            let frames = before(list.frames(), cut.at);
            listed += frames.len();
            if cut.busy & 1 << number != 0 {
                self.source.counters.drop_tx(Reason::Busy, frames.len());
                self.capture_dropped(self.source.port, Reason::Busy, numbers(frames));
                continue;
            }
            let Some(slot) = self.topology.rx.get(list.destination as usize) else { continue };
            match open.iter().chain(unsuited).find(|to| to.list == number) {
                Some(to) if to.fits < frames.len() => {
                    slot.counters.drop_rx(Reason::Full, frames.len() - to.fits);
                    self.capture_dropped(slot.port, Reason::Full, numbers(&frames[to.fits..]));
                }
                Some(_) => {}
                None => self.count_away(slot, frames),
            }
        }
        if listed == cut.at - start {
            return;
        }
        for frame in start..cut.at {
            let (verdict, len) = (self.verdicts[frame], self.burst.meta(frame).len);
            let reason = without_destination(self.topology, self.source.port, verdict, len);
            let Some(reason) = reason else { continue };
            self.source.counters.drop_tx(reason, 1);
            self.capture_dropped(self.source.port, reason, [frame].into_iter());
        }
    }
}

/// Why a frame of `len` bytes from port `from` has no destination, if it has none.
pub(super) fn without_destination(
    topology: &Topology,
    from: PortId,
    verdict: PortId,
    len: u32,
) -> Option<Reason> {
    match verdict {
        NOWHERE if len < ETHERNET => Some(Reason::Short),
        INVALID | FOREIGN => Some(Reason::BadSource),
        RESERVED => Some(Reason::Reserved),
        WRONG_VLAN => Some(Reason::WrongVlan),
        ISOLATED => Some(Reason::Isolated),
        SPOOFED => Some(Reason::Spoofed),
        ROGUE => Some(Reason::Rogue),
        UNREADABLE => Some(Reason::Unreadable),
        BAD_OFFLOAD => Some(Reason::BadOffload),
        RATE_FROM => Some(Reason::RateFrom),
        RATE_TO => Some(Reason::RateTo),
        STORM => Some(Reason::Storm),
        // Its copies are counted where they go.
        FLOWN => None,
        NO_FLOW => Some(Reason::Flow),
        METERED => Some(Reason::Meter),
        FLOW_LIMIT => Some(Reason::FlowLimit),
        LONG_HEADERS => Some(Reason::LongHeaders),
        port if port == from => Some(Reason::Hairpin),
        port if topology.port(port).is_none() => Some(Reason::NoPort),
        _ => None,
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
