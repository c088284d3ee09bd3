//! Destinations for which segments of a burst are joined into large frames.

use super::destination::{Destination, Unsuited};
use super::wait::{Cut, Full};
use super::{Delivery, before};
use crate::profile::Stage;
use crate::topology::Topology;
use arrayvec::ArrayVec;
use ringway_frame::{BURST, Caps, Reason, add};
use ringway_port::offload::reassembly::{Joined, Reassembler, may_join, takes_large};
use ringway_switch::List;

/// Destinations for which frames of one burst are joined; further ones get them as they are.
const MOST: usize = 4;

/// The memory for one destination: for all its frames, and for those that leave with this burst, if these are fewer.
#[derive(Default)]
pub(super) struct Pair {
    all: Reassembler,
    fewer: Reassembler,
}

/// A worker's memory for joined frames.
pub(super) type Pairs = [Pair; MOST];

/// The destinations of frames, locked.
#[derive(Default)]
pub(super) struct OpenDestinations<'d, 'c> {
    /// Those that get their frames as they are.
    pub(super) plain: ArrayVec<Destination<'d>, BURST>,
    /// The one for which frames are completed.
    pub(super) unsuited: Option<Unsuited<'d, 'c>>,
    /// Those for which segments are joined.
    pub(super) joined: ArrayVec<JoinedDestination<'d, 'c>, MOST>,
}

impl<'d> OpenDestinations<'d, '_> {
    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Destination<'d>> {
        let joined = self.joined.iter().map(|joined| &joined.to);
        self.plain.iter().chain(self.unsuited.iter().map(|unsuited| &unsuited.to)).chain(joined)
    }

    /// All of them, mutable.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Destination<'d>> {
        let joined = self.joined.iter_mut().map(|joined| &mut joined.to);
        self.plain.iter_mut().chain(self.unsuited.iter_mut().map(|unsuited| &mut unsuited.to)).chain(joined)
    }
}

/// A destination, and what is made of its frames.
pub(super) struct JoinedDestination<'d, 'c> {
    to: Destination<'d>,
    caps: Caps,
    joined: Joined<'c>,
    fewer: &'c mut Reassembler,
    /// Number of frames of the list, and of those for which there is room.
    all: usize,
    fits: usize,
}

/// Whether the segments for a destination are joined, if that takes large frames.
pub(super) fn joins(topology: &Topology, to: &Destination<'_>, caps: &Caps) -> bool {
    let setting = || topology.port(to.slot.port).and_then(|port| port.reassembly);
    takes_large(caps) && setting().unwrap_or_else(|| to.queue.wants_joined())
}

impl<'d> Delivery<'d, '_, '_> {
    /// Whether frames of a list may be joined for their destination.
    #[inline]
    pub(super) fn joins(&self, to: &Destination<'_>, caps: &Caps, list: &List) -> bool {
        list.frames().len() > 1 && joins(self.topology, to, caps) && may_join(self.burst, list.frames())
    }

    /// Joins the frames of a list, reserves room for those that result, and lowers the cut to the first frame that must
    /// stay. An error has the destination back: it gets its frames as they are.
    pub(super) fn reserve_joined<'c>(
        &self,
        mut to: Destination<'d>,
        caps: Caps,
        list: &List,
        memory: Option<&'c mut Pair>,
        cut: &mut Cut,
    ) -> Result<JoinedDestination<'d, 'c>, Destination<'d>>
    where
        'd: 'c,
    {
        let Some(Pair { all, fewer }) = memory else { return Err(to) };
        let frames = list.frames();
        // Joining must not lower the number of frames that leave. Attack: a guest with a full ring, for which checksums
        // would be computed in each turn.
        to.reserve(self.turn, self.burst, frames);
        if to.fits < frames.len() {
            return Err(to);
        }
        self.meter.stopwatch.enter(Stage::Complete, frames.len());
        let joined = all.join(self.burst, frames, caps);
        self.meter.stopwatch.enter(Stage::Reserve, 0);
        let Some(joined) = joined else { return Err(to) };
        to.reserve(self.turn, &joined.burst, joined.names());
        // Attack: a guest that has room for some segments of a frame, but never for all. A ring of few or small slots
        // refuses what it takes in pieces.
        if to.fits == 0 || (0..to.fits).any(|place| to.queue.refusal(place).is_some()) {
            return Err(to);
        }
        self.see(&mut to, list);
        let fits = joined.firsts.get(to.fits).map_or(frames.len(), |first| usize::from(*first));
        if fits == frames.len() {
            to.fits_all(self.turn.now, self.port.hold);
        } else if self.waits_for(to.slot) {
            cut.lower(usize::from(frames[fits]), Some(Full::of(&to, list)));
        }
        Ok(JoinedDestination { to, caps, joined, fewer, all: frames.len(), fits })
    }
}

impl JoinedDestination<'_, '_> {
    /// Copies those of the list's frames that come before `end`.
    pub(super) fn put(&mut self, delivery: &Delivery<'_, '_, '_>, lists: &[List], end: usize) {
        let JoinedDestination { to, caps, joined, fewer, all, fits } = self;
        delivery.copies_to(to.slot);
        let frames = before(lists[to.list].frames(), end);
        let frames = &frames[..frames.len().min(*fits)];
        if frames.len() == *all {
            to.fits = frames.len();
            delivery.put(to, &joined.burst, joined.names());
            return add(&to.slot.counters.joined, (*all - joined.burst.len()) as u64);
        }
        // Segments that stay must not be in a frame that leaves.
        let Some(joined) = fewer.join(delivery.burst, frames, *caps) else {
            to.reserve(delivery.turn, delivery.burst, frames);
            let fits = to.fits;
            return delivery.put(to, delivery.burst, &frames[..fits]);
        };
        to.reserve(delivery.turn, &joined.burst, joined.names());
        let outputs = to.fits;
        delivery.put(to, &joined.burst, &joined.names()[..outputs]);
        let lost = outputs..joined.burst.len();
        if !lost.is_empty() {
            // Attack: a peer that took back the room that it had for the same frames.
            to.slot.counters.drop_rx(Reason::Full, lost.len());
            delivery.capture_dropped_in(to.slot.port, Reason::Full, &joined.burst, lost);
        }
        to.fits = frames.len();
        add(&to.slot.counters.joined, (frames.len() - joined.burst.len()) as u64);
    }
}

#[cfg(test)]
mod tests;
