//! The interface of every kind of port: queues through which frames enter and leave the fabric.
//!
//! Names are from the peer's point of view, as in virtio: the peer transmits into a TX queue and receives
//! from an RX queue. A burst is processed in this order: take, reserve, copy, release the source, publish to
//! the destination. So a crash loses at most the current burst, and duplicates no frame.
//!
//! The worker counts frames, bytes, bursts, kicks, and the drops that it decides on. A queue counts frames
//! skipped by `take`, frames that `put` could not deliver, interrupts, and faults.

use crate::burst::Burst;
use crate::counters::{Counters, Reason};
use crate::offload::Needs;
use ringway_mem::Turn;

/// Capabilities of an RX queue's peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Offloads that the peer supports. Frames that need others are completed in software first.
    pub offloads: Needs,
    /// Largest unsegmented frame in bytes, Ethernet header included. A frame with pending segmentation may
    /// have up to [`crate::LARGEST`] bytes.
    pub largest: u32,
}

/// Frames that an RX queue dropped, and counted, although it had reserved room for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Number of frames.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
}

impl Lost {
    /// Counts the frames of `burst` with the indices `which` as dropped.
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

/// A queue through which frames enter. Owned by one worker.
pub trait TxQueue: Send {
    /// Adds the next frames to `burst`, as many as are available and fit. They stay in the queue until
    /// released: a further `take` returns the same frames again. Invalid frames are counted and skipped; if
    /// all are invalid, `take` itself returns them to the peer.
    fn take<'t>(&mut self, turn: &'t Turn<'_>, burst: &mut Burst<'t>);

    /// Returns the next `frames` frames of the last burst to the peer, with the skipped ones before and
    /// between them. May be called several times per burst, each time for the frames that follow.
    fn release(&mut self, turn: &Turn<'_>, frames: usize);

    /// Enables kicks. Returns `false`, with kicks disabled again, if frames are available already.
    fn arm(&mut self, turn: &Turn<'_>) -> bool;

    /// Disables kicks: the queue is polled from now on.
    fn disarm(&mut self, turn: &Turn<'_>);

    /// Whether frames that were not released take at least half of its room; `None` if that is unknown.
    fn is_half_full(&mut self, _turn: &Turn<'_>) -> Option<bool> {
        None
    }

    /// When `take` must be called although the queue is armed, in nanoseconds of the turn's clock.
    fn next_due(&self) -> Option<u64> {
        None
    }
}

/// A queue through which frames leave. Used by one worker at a time, under a try-lock.
pub trait RxQueue: Send {
    /// The peer's current capabilities; `None` if no peer can receive frames.
    fn caps(&mut self, turn: &Turn<'_>) -> Option<Caps>;

    /// How many of the bytes that [`Caps::largest`] allows are for what precedes a packet: an Ethernet header and two
    /// VLAN tags, if nothing else is said.
    fn framing(&self) -> u32 {
        14 + 8
    }

    /// Whether segments of one flow are joined into large frames for its peer, if [`RxQueue::caps`] has these and
    /// nothing else is said.
    fn wants_joined(&self) -> bool {
        false
    }

    /// Reserves room for the frames of `burst` with the indices `which`, in that order; returns the number of
    /// leading ones that have room. Copies nothing, and makes nothing visible to the peer.
    fn reserve(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> usize;

    /// Why `put` will drop the frame at `place` of the last `reserve`, which needs no room, as far as that is known.
    fn refusal(&self, _place: usize) -> Option<Reason> {
        None
    }

    /// Copies the frames with the indices `which`, the first ones of the last `reserve`, and cancels the
    /// other reservations. Returns the frames that could not be delivered although they had room.
    fn put(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> Lost;

    /// Makes the copied frames visible to the peer, and notifies the peer if it wants that and no timer
    /// defers the notification.
    fn publish(&mut self, turn: &Turn<'_>);

    /// Whether at least half of its room is taken.
    fn is_half_full(&mut self, _turn: &Turn<'_>) -> bool {
        false
    }

    /// Number of frames that wait, if a worker's own turns empty the queue. If the worker has too much to do,
    /// frames wait in the queues that it takes them from, too.
    fn waiting(&self) -> Option<usize> {
        None
    }

    /// Whether the last `reserve` found too little room because of an outstanding IOTLB miss. Senders then
    /// wait longer, since the peer is not a slow receiver.
    fn awaits_translation(&self) -> bool {
        false
    }

    /// Whether a notification is deferred to the end of the turn, during which more frames may arrive.
    fn defers_signal(&self) -> bool {
        false
    }

    /// Called at the end of a turn: sends a notification that was deferred to this time, unless a timer
    /// defers it.
    fn end_turn(&mut self, _turn: &Turn<'_>) {}

    /// When `publish` must be called again although nothing was copied (a deferred notification), in
    /// nanoseconds of the turn's clock.
    fn next_due(&self) -> Option<u64> {
        None
    }
}
