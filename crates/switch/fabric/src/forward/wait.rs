//! Waiting of frames for a destination without room.

use super::{Delivery, Destination};
use crate::topology::RxSlot;
use ringway_frame::BURST;
use ringway_switch::List;
use std::sync::atomic::Ordering::Relaxed;

/// A frame that waits for a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Since when.
    since: u64,
    /// When it was last seen waiting.
    last: u64,
}

/// Nanoseconds that frames wait for a destination with an outstanding request to its peer's side, such as an IOTLB
/// miss, if `hold` is not more and not 0: a front-end answers when its host lets it run.
pub(super) const PEER_HOLD: u64 = 10_000_000;
/// Nanoseconds that frames wait for a queue that another worker has locked, if `hold` is not more. Two workers that
/// send to one port contend for its queue all the time, and one of them may be preempted meanwhile.
pub(super) const LOCK_HOLD: u64 = 10_000_000;

/// The position at which a burst had to stop, and the destination that caused it.
pub(super) struct Cut {
    pub(super) at: usize,
    pub(super) full: Option<Full>,
    /// Numbers of lists whose destination is locked by another worker that is no longer waited for.
    pub(super) busy: u64,
}

const _: () = assert!(BURST <= 64);

/// A destination that had no room.
#[derive(Clone, Copy)]
pub(super) struct Full {
    pub(super) destination: usize,
    pub(super) cause: Cause,
}

/// Why a destination had no room.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Full,
    /// The destination has an outstanding request to its peer's side.
    AwaitsPeer,
    /// Another worker has locked the destination.
    Locked,
}

impl Full {
    pub(super) fn of(to: &Destination<'_>, list: &List) -> Full {
        let cause = if to.queue.awaits_translation() { Cause::AwaitsPeer } else { Cause::Full };
        Full { destination: list.destination as usize, cause }
    }
}

impl Cut {
    pub(super) fn lower(&mut self, at: usize, full: Option<Full>) {
        if at < self.at {
            (self.at, self.full) = (at, full);
        }
    }
}

impl Delivery<'_, '_, '_> {
    pub(super) fn waits_for(&self, slot: &RxSlot) -> bool {
        self.port.hold > 0 && !slot.wait_limit.is_over()
    }

    /// The first frame found no room: it waits for at most `hold`, and less where it holds frames for others too often.
    pub(super) fn wait(&mut self, cut: &Cut) {
        let now = self.turn.now;
        let Waiting { since, last } = *self.source.waiting.get_or_insert(Waiting { since: now, last: now });
        self.source.waiting = Some(Waiting { since, last: now });
        let Some(Full { destination, cause }) = cut.full else { return };
        let Some(slot) = self.topology.rx.get(destination) else { return };
        let hold = self.port.hold.max(match cause {
            Cause::Full => 0,
            Cause::AwaitsPeer => PEER_HOLD,
            Cause::Locked => LOCK_HOLD,
        });
        if now.saturating_sub(since) >= hold {
            match cause {
                // Attack: a peer whose memory blocks the worker that holds its queue, and so all senders to
                // it.
                Cause::Locked => slot.given_up.store(true, Relaxed),
                Cause::Full | Cause::AwaitsPeer => slot.wait_limit.end(now, hold),
            }
            self.source.waiting = None;
        } else if cause != Cause::Locked && now > last && self.holds_others(cut.at) {
            slot.wait_limit.charge(now, now - last, hold);
        }
    }

    /// Whether a frame after `first` has another destination.
    fn holds_others(&self, first: usize) -> bool {
        let verdicts = &self.verdicts[..self.burst.len()];
        verdicts.iter().skip(first).any(|&port| port != verdicts[first])
    }
}
