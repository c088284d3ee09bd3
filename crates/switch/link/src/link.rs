//! One direction of a link.

use crate::queue::{Line, Waiting};
use crate::wire::Wire;
use crate::{Frame, Profile, ProfileError};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Why a frame was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Reason {
    /// The frame is larger than the MTU.
    Mtu,
    /// The queue is full.
    Full,
    /// RED, CoDel or FQ-CoDel dropped it before the queue was full.
    Early,
    /// The frame was lost on the wire.
    Lost,
    /// The link's memory is used up.
    Memory,
}

impl Reason {
    /// Every reason, in the order of [`Counters::drops`].
    pub const ALL: [Reason; 5] = [Reason::Mtu, Reason::Full, Reason::Early, Reason::Lost, Reason::Memory];

    /// The name in statistics.
    pub const fn name(self) -> &'static str {
        match self {
            Reason::Mtu => "mtu",
            Reason::Full => "full",
            Reason::Early => "early",
            Reason::Lost => "lost",
            Reason::Memory => "memory",
        }
    }
}

/// Counters of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Frames sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames received, duplicates included.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Dropped frames by [`Reason`].
    pub drops: [u64; Reason::ALL.len()],
    /// Frames marked Congestion Experienced.
    pub marked: u64,
    /// Frames with an inverted bit.
    pub corrupted: u64,
    /// Frames that arrive twice.
    pub duplicated: u64,
    /// Frames that overtake another.
    pub reordered: u64,
}

impl Counters {
    pub(crate) fn drop(&mut self, reason: Reason) {
        self.drops[reason as usize] += 1;
    }
}

/// One direction of a link. Times are nanoseconds of any clock and never decrease.
#[derive(Debug)]
pub struct Link<F> {
    profile: Profile,
    line: Line<F>,
    /// When the transmitter has sent the last frame.
    free: u64,
    /// The part of a nanosecond by which it ended later: a remainder of the division by the rate.
    rest: u64,
    /// When the first frame entered the empty queue.
    ready: u64,
    wire: Wire<F>,
    random: Pcg64Mcg,
    counters: Counters,
}

/// The seed for one direction of a link, of the seed that is set for all links and the direction's name.
/// Directions with equal seeds would lose the same frames, and delay them equally there and back.
pub fn seed_of(seed: u64, name: &str) -> u64 {
    ringway_frame::fnv1a(seed.to_le_bytes().into_iter().chain(name.bytes()))
}

impl<F: Frame> Link<F> {
    /// A link; the same `seed` has the same losses and delays. [`seed_of`] gives each direction its own.
    pub fn new(profile: Profile, seed: u64) -> Result<Link<F>, ProfileError> {
        profile.check()?;
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let line = Line::new(&profile, random.next_u64());
        Ok(Link {
            profile,
            line,
            free: 0,
            rest: 0,
            ready: 0,
            wire: Wire::new(),
            random,
            counters: Counters::default(),
        })
    }

    /// Draws losses and delays by another seed from now on.
    pub fn reseed(&mut self, seed: u64) {
        self.random = Pcg64Mcg::seed_from_u64(seed);
    }

    /// Changes the profile at `now`. Frames under way arrive as before; those in the queue stay if another queue has
    /// room. An impossible profile changes nothing.
    pub fn change(&mut self, profile: Profile, now: u64) -> Result<(), ProfileError> {
        profile.check()?;
        self.advance(now);
        if profile.queue == self.profile.queue {
            self.line.adapt(&profile);
        } else {
            self.line.change(&profile, &mut self.random, &mut self.counters);
        }
        self.rest = 0;
        self.profile = profile;
        Ok(())
    }

    /// Sends a frame at `now`.
    pub fn send(&mut self, frame: F, now: u64) {
        self.advance(now);
        let bytes = frame.len();
        self.counters.sent += 1;
        self.counters.sent_bytes += bytes as u64;
        if self.profile.mtu.is_some_and(|mtu| bytes - frame.link_header().min(bytes) > mtu as usize) {
            return self.counters.drop(Reason::Mtu);
        }
        if self.memory() + bytes + Profile::FRAME > self.profile.memory {
            return self.counters.drop(Reason::Memory);
        }
        if self.line.backlog().0 == 0 {
            self.ready = now;
        }
        let waiting = Waiting { frame, arrived: now };
        self.line.enqueue(waiting, &mut self.random, &mut self.counters);
        self.advance(now);
    }

    /// Bytes that are used.
    fn memory(&self) -> usize {
        let (frames, bytes) = self.line.backlog();
        frames * Profile::FRAME + bytes + self.wire.bytes
    }

    /// Moves frames from the queue to the wire, as far as the transmitter gets until `now`.
    fn advance(&mut self, now: u64) {
        while self.line.backlog().0 > 0 {
            let at = self.free.max(self.ready);
            if at > now {
                return;
            }
            let Some(frame) = self.line.dequeue(at, &mut self.counters) else { return };
            let rest = if at > self.free { 0 } else { self.rest };
            let (time, rest) = self.profile.serialization(frame.len(), rest);
            (self.free, self.rest) = (at.saturating_add(time), rest);
            let room = self.profile.memory.saturating_sub(self.memory());
            let sent = (frame, self.free);
            self.wire.send(sent, &self.profile, room, &mut self.random, &mut self.counters);
        }
    }

    /// The next frame that has arrived by `now`, and when it did.
    #[inline]
    pub fn receive(&mut self, now: u64) -> Option<(F, u64)> {
        self.advance(now);
        let (frame, due) = self.wire.receive(now)?;
        self.counters.received += 1;
        self.counters.received_bytes += frame.len() as u64;
        Some((frame, due))
    }

    /// When to call [`Link::receive`] again: no frame arrives before; `None` if there is none.
    pub fn due(&self) -> Option<u64> {
        let waiting = (self.line.backlog().0 > 0)
            .then(|| self.free.max(self.ready).saturating_add(self.profile.delay.least()));
        self.wire.due().into_iter().chain(waiting).min()
    }

    /// Frames in the queue, their bytes, and frames under way.
    pub fn backlog(&self) -> (usize, usize, usize) {
        let (frames, bytes) = self.line.backlog();
        (frames, bytes, self.wire.frames())
    }

    /// The profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }
}
