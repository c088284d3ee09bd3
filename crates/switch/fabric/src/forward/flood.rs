//! Flooding: delivers frames to every port of a switch except their own.

use super::capture::numbers;
use super::destination::{Busy, Destination, Unsuited};
use super::limits;
use super::policing::{Frames, rewritten};
use super::properties::Properties;
use super::{Copies, Delivery, Missed};
use crate::memory_access::Access;
use crate::profile::Stage;
use crate::topology::{Port, RxSlot, Switch};
use ringway_frame::{BURST, Burst, Caps, Reason};
use ringway_port::offload::{Completer, Whole};
use ringway_switch::PortId;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Bytes copied for flooding before other queues are served. Attack: bursts of 256 KB to a switch of 4096
/// ports would make a worker copy a gigabyte in one turn.
const SHARE: usize = 2 << 20;
/// Fixed cost of a delivery, expressed in bytes copied.
const OVERHEAD: usize = 256;

/// The numbers of the frames of a whole burst.
const NAMES: [u16; BURST] = {
    let mut names = [0; BURST];
    let mut at = 0;
    while at < BURST {
        names[at] = at as u16;
        at += 1;
    }
    names
};

/// Frames for one port to which they are flooded.
#[derive(Clone, Copy)]
struct Flooded<'f, 'b> {
    /// Their numbers in the burst of the delivery.
    frames: &'f [u16],
    /// The burst in which they are as the port gets them, and their numbers there.
    burst: &'f Burst<'b>,
    names: &'f [u16],
    properties: Properties,
}

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
        copies: &mut Copies,
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
        let frames: Frames = (start..portion.end).map(|frame| frame as u16).collect();
        let (first, last) = portion.members;
        let whom = if is_retry { &missed.ports } else { &members[first..last] };
        let mut again = Vec::new();
        let mut reached = 0;
        let own = self.source.port;
        for &member in whom.iter().filter(|&&member| member != own) {
            let Some(port) = self.topology.port(member) else { continue };
            let Some(slot) = self.topology.rx.get(port.first as usize) else { continue };
            reached += 1;
            let within = self.decided.scopes.map(|scopes| scopes.within(&frames, member));
            if self.flood_to((port, slot), within.as_ref().unwrap_or(&frames), copies, is_retry) {
                again.push(member);
            }
        }
        let is_done = portion.is_last && again.is_empty();
        self.source.flooded = if is_done { 0 } else { last };
        if !again.is_empty() {
            self.source.missed = Missed { ports: again, frames: frames.len() };
        }
        if is_done {
            let lost: Frames = match (self.decided.policing, self.decided.scopes) {
                (None, None) if reached == 0 && first == 0 => frames.clone(),
                (None, None) => Frames::new(),
                _ => frames.iter().copied().filter(|frame| !self.reaches_any(members, *frame)).collect(),
            };
            if !lost.is_empty() {
                self.source.counters.drop_tx(Reason::NoPort, lost.len());
                self.capture_dropped(own, Reason::NoPort, numbers(&lost));
            }
            self.release(frames.len());
        }
        if is_done { portion.end } else { start }
    }

    /// Whether a flooded frame passes to any port of the switch but its own.
    fn reaches_any(&self, members: &[PortId], frame: u16) -> bool {
        let own = self.source.port;
        let mut members = members.iter().filter(|member| **member != own);
        members.any(|&member| {
            let Some(to) = self.topology.port(member) else { return false };
            let is_within = self.decided.scopes.is_none_or(|scopes| scopes.has(frame, member));
            let frame = usize::from(frame);
            is_within
                && self.decided.policing.is_none_or(|own| own.is_passed(self.port, to, self.burst, frame))
        })
    }

    /// Delivers those of the frames to a port that pass there; whether another worker has it locked, so that they must
    /// be delivered later.
    fn flood_to(
        &mut self,
        (port, slot): (&Port, &'d Arc<RxSlot>),
        frames: &Frames,
        copies: &mut Copies,
        is_retry: bool,
    ) -> bool {
        let (burst, properties) = (self.burst, self.properties);
        if frames.is_empty() {
            return false;
        }
        let Some(policing) = self.decided.policing else {
            let flooded = Flooded { frames, burst, names: frames, properties };
            return self.flood_frames(slot, &flooded, &mut copies.completer, is_retry);
        };
        let (passing, tags, changes) = policing.flooded(self.port, port, burst, frames);
        if passing.is_empty() {
            return false;
        }
        if !changes {
            let flooded = Flooded { frames: &passing, burst, names: &passing, properties };
            return self.flood_frames(slot, &flooded, &mut copies.completer, is_retry);
        }
        self.meter.at(Access::of(self.source.port));
        let burst = rewritten(&mut copies.retagged, burst, &passing, &tags);
        let (names, properties) = (&NAMES[..burst.len().min(BURST)], Properties::of_all(&burst));
        let cut = passing.len() - names.len();
        if cut > 0 {
            self.source.counters.drop_tx(Reason::Full, cut);
        }
        let flooded = Flooded { frames: &passing[..names.len()], burst: &burst, names, properties };
        self.flood_frames(slot, &flooded, &mut copies.completer, is_retry)
    }

    /// As [`Delivery::flood_to`], of frames that pass.
    fn flood_frames(
        &mut self,
        slot: &'d Arc<RxSlot>,
        flooded: &Flooded<'_, '_>,
        completer: &mut Completer,
        is_retry: bool,
    ) -> bool {
        let frames = flooded.frames;
        self.meter.at(Access::of(slot.port));
        self.meter.stopwatch.enter(Stage::Reserve, frames.len());
        match Destination::new(slot, 0, self.turn) {
            // Attack: a member whose memory blocks the copy. The others are not locked meanwhile.
            Ok(Some((to, caps))) => {
                let within = self.within_rate(slot, flooded);
                let flooded = match &within {
                    None => flooded,
                    Some((frames, names)) => &Flooded { frames, names, ..*flooded },
                };
                if !flooded.frames.is_empty() {
                    let mut to = self.flood_one(to, caps, flooded, completer);
                    self.publish(&mut to);
                }
            }
            Ok(None) => self.count_away(slot, frames),
            Err(Busy) if !is_retry && !slot.given_up.load(Relaxed) => return true,
            // Only the worker that has the queue locked writes its counters.
            Err(Busy) => {
                self.source.counters.drop_tx(Reason::Busy, frames.len());
                self.capture_dropped(self.source.port, Reason::Busy, numbers(frames));
            }
        }
        false
    }

    /// The frames, by both numbers, that do not exceed the rate of frames to a port, which has such a limit. The others
    /// are counted.
    fn within_rate(&self, slot: &RxSlot, flooded: &Flooded<'_, '_>) -> Option<(Frames, Frames)> {
        let (policing, port) = (self.decided.policing?, self.topology.port(slot.port)?);
        let limit = limits::rate_to(port)?;
        let (mut frames, mut names, mut beyond) = (Frames::new(), Frames::new(), Frames::new());
        let mut tokens = limit.at(self.turn.now);
        for (frame, name) in flooded.frames.iter().zip(flooded.names) {
            if tokens.take(8 * policing.arrived_len(self.burst, usize::from(*frame))) {
                frames.push(*frame);
                names.push(*name);
            } else {
                beyond.push(*frame);
            }
        }
        drop(tokens);
        if !beyond.is_empty() {
            slot.counters.drop_rx(Reason::RateTo, beyond.len());
            self.capture_dropped(slot.port, Reason::RateTo, numbers(&beyond));
        }
        Some((frames, names))
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
        flooded: &Flooded<'_, '_>,
        completer: &mut Completer,
    ) -> Destination<'d> {
        let Flooded { frames, burst, names, properties } = *flooded;
        let delivered = if properties.suits(&caps) {
            to.reserve(self.turn, burst, names);
            self.copies_to(to.slot);
            let fits = to.fits;
            self.meter.stopwatch.enter(Stage::Copy, fits);
            self.put(&mut to, burst, &names[..fits]);
            fits
        } else {
            self.meter.stopwatch.enter(Stage::Complete, frames.len());
            let completed = completer.complete(burst, names, caps);
            let whole = Whole { inputs: 0, outputs: 0 };
            let mut unsuited = Unsuited { to, largest: caps.largest, completed, whole };
            unsuited.reserve(self.turn);
            self.copies_to(unsuited.to.slot);
            self.meter.stopwatch.enter(Stage::Copy, unsuited.whole.inputs);
            unsuited.put(self, frames, false);
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
