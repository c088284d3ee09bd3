//! What every kind of port offers: queues where frames enter, and queues where they leave.
//!
//! Names are the peer's, as in virtio: from a TX queue we take what the peer transmits, into an RX queue we put what it
//! receives. The order of work for a burst is: take, reserve, copy, release the source, publish the destination. So a
//! crash loses at most the current burst and repeats nothing.
//!
//! Who counts: the worker counts frames, bytes, bursts, kicks, and drops it decides on; a queue counts what only it
//! sees: frames it skips in `take`, frames that `put` could not deliver after all, interrupts, faults.

use crate::burst::Burst;
use crate::counters::{Counters, Reason};
use crate::offload::Needs;
use ringway_mem::Turn;

/// What an RX queue's peer can take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Offloads that the peer does itself; for the others frames are completed in software first.
    pub offloads: Needs,
    /// Largest frame in bytes, Ethernet header included, that isn't segmented any more. A frame that is still to be
    /// segmented may have up to [`crate::LARGEST`] bytes.
    pub largest: u32,
}

/// Frames that an RX queue dropped, and counted, though it had room for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// How many.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Lost {
    /// Counts those of `burst` that `which` names as dropped.
    #[cold]
    pub fn count(counters: &Counters, reason: Reason, burst: &Burst<'_>, which: &[u16]) -> Lost {
        counters.drop_rx(reason, which.len());
        let bytes = which.iter().map(|&frame| u64::from(burst.meta(usize::from(frame)).len)).sum();
        Lost { frames: which.len() as u64, bytes }
    }
}

impl core::ops::AddAssign for Lost {
    #[inline]
    fn add_assign(&mut self, other: Lost) {
        self.frames += other.frames;
        self.bytes += other.bytes;
    }
}

/// Where frames enter. Owned by one worker.
pub trait TxQueue: Send {
    /// Adds the next frames to `burst`, as many as there are and as fit. They stay in the queue until released: a
    /// further `take` gives the same frames again. Broken ones are counted and skipped; when there was nothing else,
    /// `take` itself gives them back to the peer.
    fn take<'t>(&mut self, turn: &'t Turn<'_>, burst: &mut Burst<'t>);

    /// Gives the next `frames` of the last burst back to the peer, and what was skipped before and between them. May be
    /// called several times for one burst, each time for the frames after those; the next `take` returns unreleased
    /// frames again.
    fn release(&mut self, turn: &Turn<'_>, frames: usize);

    /// Asks the peer for kicks. `false`: frames are there already, and kicks are off again.
    fn arm(&mut self, turn: &Turn<'_>) -> bool;

    /// Tells the peer that its kicks are not needed, since the queue is polled.
    fn disarm(&mut self, turn: &Turn<'_>);

    /// When the queue wants `take` called though it is armed, in nanoseconds of the turn's clock.
    fn next_due(&self) -> Option<u64> {
        None
    }
}

/// Where frames leave. Used by one worker at a time, under a try-lock.
pub trait RxQueue: Send {
    /// What the peer can take now; `None` while there is no peer to receive anything.
    fn caps(&mut self, turn: &Turn<'_>) -> Option<Caps>;

    /// Reserves room for the frames of `burst` that `which` names, in that order; returns for how many of them, from
    /// the first, there is room. Nothing is copied and nothing can be seen by the peer yet.
    fn reserve(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> usize;

    /// Copies the frames that `which` names: the first of those that the last `reserve` named. What was reserved
    /// beyond them is given up. Returns what of them could not be delivered after all.
    fn put(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> Lost;

    /// Makes what was put visible to the peer, and notifies it if it wants that and no timer holds it back.
    fn publish(&mut self, turn: &Turn<'_>);

    /// Whether the last `reserve` found too little room because of an outstanding request to the peer's side, such as
    /// an IOTLB miss: that says nothing about how fast the peer takes frames, so senders wait longer.
    fn asks(&self) -> bool {
        false
    }

    /// Whether a notification waits for the end of the turn, in which more may come.
    fn combines(&self) -> bool {
        false
    }

    /// Called at the end of a turn: sends the notification that waited for it, unless a timer still holds it back.
    fn turn_ends(&mut self, _turn: &Turn<'_>) {}

    /// When `publish` is to be called again though nothing was put (a held-back notification), in nanoseconds of the
    /// turn's clock.
    fn next_due(&self) -> Option<u64> {
        None
    }
}
