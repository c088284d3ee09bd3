//! Frames under way.

use crate::delay::DelayState;
use crate::link::{Counters, Reason};
use crate::loss::{LossState, happens};
use crate::{Frame, Profile};
use alloc::collections::{BinaryHeap, VecDeque};
use core::cmp::Ordering;
use rand_core::Rng;

/// A frame under way.
#[derive(Debug)]
struct Flying<F> {
    due: u64,
    /// Frames of the same instant arrive in this order.
    number: u64,
    frame: F,
}

impl<F> Flying<F> {
    fn key(&self) -> (u64, u64) {
        (self.due, self.number)
    }
}

impl<F> PartialEq for Flying<F> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<F> Eq for Flying<F> {}

impl<F> PartialOrd for Flying<F> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<F> Ord for Flying<F> {
    /// The earliest is the greatest, as a `BinaryHeap` returns the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// The wire: loses, marks, damages, duplicates and delays frames.
#[derive(Debug)]
pub(crate) struct Wire<F> {
    /// Frames in the order of their arrival.
    ordered: VecDeque<Flying<F>>,
    /// Frames that may overtake others.
    overtaking: BinaryHeap<Flying<F>>,
    /// When the last of `ordered` arrives.
    last: u64,
    number: u64,
    loss: LossState,
    delay: DelayState,
    /// Bytes under way.
    pub bytes: usize,
}

impl<F: Frame> Wire<F> {
    pub fn new() -> Wire<F> {
        Wire {
            ordered: VecDeque::new(),
            overtaking: BinaryHeap::new(),
            last: 0,
            number: 0,
            loss: LossState::default(),
            delay: DelayState::default(),
            bytes: 0,
        }
    }

    /// Sends a frame that was serialized at `at`. `room`: bytes that a duplicate may take.
    pub fn send(
        &mut self,
        (mut frame, at): (F, u64),
        profile: &Profile,
        room: usize,
        random: &mut impl Rng,
        counters: &mut Counters,
    ) {
        if self.loss.loses(&profile.loss, random) {
            return counters.drop(Reason::Lost);
        }
        counters.marked += u64::from(happens(profile.mark, random) && frame.mark());
        let bits = (frame.len() * 8) as u128;
        if happens(profile.corrupt, random) && bits > 0 {
            frame.invert(((u128::from(random.next_u64()) * bits) >> 64) as usize);
            counters.corrupted += 1;
        }
        if happens(profile.duplicate, random)
            && room >= frame.len() + Profile::FRAME
            && let Some(second) = frame.duplicate()
        {
            counters.duplicated += 1;
            self.fly(second, at, profile, random, counters);
        }
        self.fly(frame, at, profile, random, counters);
    }

    fn fly(&mut self, frame: F, at: u64, profile: &Profile, random: &mut impl Rng, counters: &mut Counters) {
        let due = at.saturating_add(self.delay.draw(&profile.delay, random));
        self.bytes += frame.len() + Profile::FRAME;
        self.number += 1;
        let number = self.number;
        if !profile.reorder {
            self.last = self.last.max(due);
            return self.ordered.push_back(Flying { due: self.last, number, frame });
        }
        counters.reordered += u64::from(due < self.last);
        self.last = self.last.max(due);
        self.overtaking.push(Flying { due, number, frame });
    }

    /// When the next frame arrives.
    pub fn due(&self) -> Option<u64> {
        let [one, other] =
            [self.ordered.front(), self.overtaking.peek()].map(|it| it.map(|flying| flying.due));
        one.into_iter().chain(other).min()
    }

    /// A frame that has arrived by `now`, and when.
    #[inline]
    pub fn receive(&mut self, now: u64) -> Option<(F, u64)> {
        let first = self.ordered.front().map(Flying::key).filter(|(due, _)| *due <= now);
        let free = self.overtaking.peek().map(Flying::key).filter(|(due, _)| *due <= now);
        let flying = match (first, free) {
            (Some(first), Some(free)) if free < first => self.overtaking.pop(),
            (Some(_), _) => self.ordered.pop_front(),
            (None, Some(_)) => self.overtaking.pop(),
            (None, None) => None,
        }?;
        self.bytes -= flying.frame.len() + Profile::FRAME;
        Some((flying.frame, flying.due))
    }

    /// Number of frames under way.
    pub fn frames(&self) -> usize {
        self.ordered.len() + self.overtaking.len()
    }
}
