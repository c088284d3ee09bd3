//! Flooding: delivers frames to every port of a switch except their own.

use super::capture::numbers;
use super::destination::{Busy, Destination, Unsuited};
use super::{Delivery, Missed};
use crate::meter::Access;
use crate::profile::Stage;
use crate::topology::Switch;
use arrayvec::ArrayVec;
use ringway_frame::{BURST, Caps, Reason};
use ringway_port::offload::{Completer, Whole};
use std::sync::atomic::Ordering::Relaxed;

/// Bytes copied for flooding before other queues are served. Attack: bursts of 256 KB to a switch of 4096
/// ports would make a worker copy a gigabyte in one turn.
const SHARE: usize = 2 << 20;
/// Fixed cost of a delivery, expressed in bytes copied.
const OVERHEAD: usize = 256;

/// The part of a flood that is done in one turn.
struct Portion {
    /// End of the frames.
    end: usize,
    /// Start and end of the members.
    members: (usize, usize),
    /// Whether these are the last members.
    is_last: bool,
}

impl<'d> Delivery<'d, '_, '_> {
    /// Delivers the frames `start..end` to every port of the switch except their own. Full ports are not waited for,
    /// since one slow receiver would slow down all; a port whose queue another worker has locked is retried in the
    /// next turn. Returns the first frame that not all ports have yet.
    pub(super) fn flood(
        &mut self,
        switch: Option<&Switch>,
        completer: &mut Completer,
        start: usize,
        end: usize,
    ) -> usize {
        let members = switch.map_or(&[][..], |switch| &switch.members);
        let missed = std::mem::take(&mut self.source.missed);
        let is_retry = missed.frames > 0;
        let portion = if is_retry {
            let flooded = self.source.flooded.min(members.len());
            let end = end.min(start + missed.frames);
            Portion { end, members: (flooded, flooded), is_last: flooded == members.len() }
        } else {
            self.portion(members.len(), start, end.min(start + BURST))
        };
        let frames: ArrayVec<u16, BURST> = (start..portion.end).map(|frame| frame as u16).collect();
        let (first, last) = portion.members;
        let whom = if is_retry { &missed.ports } else { &members[first..last] };
        let mut again = Vec::new();
        let mut reached = 0;
        let own = self.source.port;
        for &member in whom.iter().filter(|&&member| member != own) {
            let Some(port) = self.topology.port(member) else { continue };
            let Some(slot) = self.topology.rx.get(port.first as usize) else { continue };
            reached += 1;
            self.meter.at(Access::of(slot.port));
            self.meter.stopwatch.enter(Stage::Reserve, frames.len());
            match Destination::new(slot, 0, self.turn) {
                // Attack: a member whose memory blocks the copy. The others are not locked meanwhile.
                Ok(Some((to, caps))) => {
                    let mut to = self.flood_one(to, caps, &frames, completer);
                    self.publish(&mut to);
                }
                Ok(None) => self.count_away(slot, &frames),
                Err(Busy) if !is_retry && !slot.given_up.load(Relaxed) => again.push(member),
                // Only the worker that has the queue locked writes its counters.
                Err(Busy) => {
                    self.source.counters.drop_tx(Reason::Busy, frames.len());
                    self.capture_dropped(own, Reason::Busy, numbers(&frames));
                }
            }
        }
        let is_done = portion.is_last && again.is_empty();
        self.source.flooded = if is_done { 0 } else { last };
        if !again.is_empty() {
            self.source.missed = Missed { ports: again, frames: frames.len() };
        }
        if is_done {
            if reached == 0 && first == 0 {
                self.source.counters.drop_tx(Reason::NoPort, frames.len());
                self.capture_dropped(own, Reason::NoPort, numbers(&frames));
            }
            self.release(frames.len());
        }
        if is_done { portion.end } else { start }
    }

    fn portion(&self, members: usize, start: usize, end: usize) -> Portion {
        let cost = |frame: usize| self.burst.meta(frame).len as usize + OVERHEAD;
        // Members may have been removed since the flood was begun.
        let first = self.source.flooded.min(members);
        let each = SHARE / cost(start);
        if first > 0 || each < members {
            let last = members.min(first + each.max(1));
            return Portion { end: start + 1, members: (first, last), is_last: last == members };
        }
        let mut left = (SHARE / members.max(1)).saturating_sub(cost(start));
        let fits = |frame: &usize| {
            let cost = cost(*frame);
            left = left.saturating_sub(cost);
            left > 0
        };
        let more = (start + 1..end).take_while(fits).count();
        Portion { end: start + 1 + more, members: (0, members), is_last: true }
    }

    /// Copies the frames that fit.
    fn flood_one(
        &self,
        mut to: Destination<'d>,
        caps: Caps,
        frames: &[u16],
        completer: &mut Completer,
    ) -> Destination<'d> {
        let delivered = if self.properties.suits(&caps) {
            to.reserve(self.turn, self.burst, frames);
            self.copies_to(to.slot);
            let fits = to.fits;
            self.meter.stopwatch.enter(Stage::Copy, fits);
            self.put(&mut to, self.burst, &frames[..fits]);
            fits
        } else {
            self.meter.stopwatch.enter(Stage::Complete, frames.len());
            let completed = completer.complete(self.burst, frames, caps);
            let mut unsuited = Unsuited { to, completed, whole: Whole { inputs: 0, outputs: 0 } };
            unsuited.reserve(self.turn);
            self.copies_to(unsuited.to.slot);
            self.meter.stopwatch.enter(Stage::Copy, unsuited.whole.inputs);
            unsuited.put(self, frames);
            to = unsuited.to;
            unsuited.whole.inputs
        };
        if delivered < frames.len() {
            to.slot.counters.drop_rx(Reason::Full, frames.len() - delivered);
            self.capture_dropped(to.slot.port, Reason::Full, numbers(&frames[delivered..]));
        } else {
            to.fits_all(self.turn.now, self.port.hold);
        }
        to
    }
}
