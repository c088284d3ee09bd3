//! The queue before the transmitter, one discipline a file.

mod codel;
mod drop_tail;
mod fq_codel;
mod red;

use crate::Frame;
use crate::link::Counters;
use crate::profile::{Profile, ProfileError, probability};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use rand_core::Rng;

/// How much a queue holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Capacity {
    /// A number of frames.
    Frames(usize),
    /// Their bytes.
    Bytes(usize),
    /// Bytes in units of the bandwidth-delay product (a round trip's); at least one frame.
    BandwidthDelay(f64),
}

/// CoDel's parameters (RFC 8289, 4.2 and 4.3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CoDelSettings {
    /// Acceptable time in the queue, in nanoseconds.
    pub target: u64,
    /// Time for which it must be exceeded before a frame is dropped.
    pub interval: u64,
    /// Whether frames of transports capable of ECN are marked instead.
    pub ecn: bool,
}

impl Default for CoDelSettings {
    /// RFC 8289's values: 5 ms and 100 ms.
    fn default() -> CoDelSettings {
        CoDelSettings { target: 5_000_000, interval: 100_000_000, ecn: true }
    }
}

/// The discipline of a queue.
#[derive(Clone, Debug, PartialEq)]
pub enum Queue {
    /// Frames that find the queue full are dropped.
    DropTail {
        /// What it holds.
        limit: Capacity,
        /// Frames that find more bytes than this are marked (RFC 8257, 3.1).
        mark: Option<usize>,
    },
    /// Random Early Detection (Floyd and Jacobson, 1993); thresholds in bytes of the average queue.
    Red {
        /// Below it no frame is dropped.
        min: usize,
        /// From this average on all frames are dropped.
        max: usize,
        /// Probability of a drop as the average approaches `max`.
        probability: f64,
        /// What it holds.
        limit: Capacity,
        /// Whether frames of transports capable of ECN are marked instead, below `max`.
        ecn: bool,
    },
    /// Controlled Delay (RFC 8289).
    CoDel {
        /// Its parameters.
        settings: CoDelSettings,
        /// What it holds.
        limit: Capacity,
    },
    /// A CoDel queue for each flow, served by deficit round robin (RFC 8290).
    FqCoDel {
        /// Parameters of each queue.
        settings: CoDelSettings,
        /// What all hold together.
        limit: Capacity,
        /// Number of queues.
        flows: u16,
        /// Bytes of a flow's turn.
        quantum: u32,
    },
}

impl Default for Queue {
    /// Drop-tail with 1000 frames.
    fn default() -> Queue {
        Queue::DropTail { limit: Capacity::Frames(1000), mark: None }
    }
}

impl Queue {
    fn limit(&self) -> Capacity {
        match self {
            Queue::DropTail { limit, .. }
            | Queue::Red { limit, .. }
            | Queue::CoDel { limit, .. }
            | Queue::FqCoDel { limit, .. } => *limit,
        }
    }

    pub(crate) fn check(&self, has_rate: bool) -> Result<(), ProfileError> {
        match self.limit() {
            Capacity::Frames(0) | Capacity::Bytes(0) => return Err(ProfileError::Queue),
            Capacity::BandwidthDelay(_) if !has_rate => return Err(ProfileError::NoRate),
            Capacity::BandwidthDelay(units) if !(units > 0.0 && units <= 1e6) => {
                return Err(ProfileError::Queue);
            }
            _ => {}
        }
        match self {
            Queue::Red { min, max, .. } if min >= max => Err(ProfileError::Thresholds),
            Queue::Red { probability: share, .. } => probability(*share),
            Queue::FqCoDel { flows: 0, .. } | Queue::FqCoDel { quantum: 0, .. } => Err(ProfileError::Queue),
            _ => Ok(()),
        }
    }
}

/// A frame in a queue.
#[derive(Debug)]
pub(crate) struct Waiting<F> {
    pub frame: F,
    /// When the frame entered the queue.
    pub arrived: u64,
}

/// Frames in order, and their bytes.
#[derive(Debug)]
pub(crate) struct Fifo<F> {
    frames: VecDeque<Waiting<F>>,
    bytes: usize,
}

impl<F: Frame> Fifo<F> {
    fn new() -> Fifo<F> {
        Fifo { frames: VecDeque::new(), bytes: 0 }
    }

    fn push(&mut self, waiting: Waiting<F>) {
        self.bytes += waiting.frame.len();
        self.frames.push_back(waiting);
    }

    fn pop(&mut self) -> Option<Waiting<F>> {
        let waiting = self.frames.pop_front()?;
        self.bytes -= waiting.frame.len();
        Some(waiting)
    }

    fn len(&self) -> usize {
        self.frames.len()
    }
}

/// Largest numbers of frames and bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    frames: usize,
    bytes: usize,
}

impl Limit {
    fn of(profile: &Profile) -> Limit {
        match profile.queue.limit() {
            Capacity::Frames(frames) => Limit { frames, bytes: usize::MAX },
            Capacity::Bytes(bytes) => Limit { frames: usize::MAX, bytes },
            Capacity::BandwidthDelay(units) => {
                Limit { frames: usize::MAX, bytes: (units * profile.bandwidth_delay()) as usize }
            }
        }
    }

    /// Whether `frames` of `bytes` have room for one more frame; an empty queue always has.
    fn has_room(&self, frames: usize, bytes: usize, frame: usize) -> bool {
        frames == 0 || frames < self.frames && bytes.saturating_add(frame) <= self.bytes
    }
}

/// A queue at work.
#[derive(Debug)]
pub(crate) struct Line<F> {
    limit: Limit,
    state: State<F>,
}

/// The state of each discipline, with its parameters.
#[derive(Debug)]
enum State<F> {
    /// Frames that find more bytes than this are marked.
    DropTail(Fifo<F>, Option<usize>),
    Red(red::Red<F>),
    CoDel(Fifo<F>, codel::CoDel),
    FqCoDel(fq_codel::FqCoDel<F>),
}

impl<F: Frame> Line<F> {
    /// `key`: a secret for hashing flows.
    pub fn new(profile: &Profile, key: u64) -> Line<F> {
        let state = match profile.queue {
            Queue::DropTail { mark, .. } => State::DropTail(Fifo::new(), mark),
            Queue::Red { min, max, probability, ecn, .. } => {
                State::Red(red::Red::new(min, max, probability, ecn, profile))
            }
            Queue::CoDel { settings, .. } => State::CoDel(Fifo::new(), codel::CoDel::new(settings)),
            Queue::FqCoDel { settings, flows, quantum, .. } => {
                State::FqCoDel(fq_codel::FqCoDel::new(settings, flows, quantum, key))
            }
        };
        Line { limit: Limit::of(profile), state }
    }

    /// Moves to another profile with the same queue: frames stay, beyond a smaller limit too.
    pub fn adapt(&mut self, profile: &Profile) {
        self.limit = Limit::of(profile);
        if let State::Red(red) = &mut self.state {
            red.adapt(profile);
        }
    }

    /// Moves to a profile with another queue; frames keep their order and arrival as far as they have room.
    pub fn change(&mut self, profile: &Profile, random: &mut impl Rng, counters: &mut Counters) {
        let mut former = core::mem::replace(self, Line::new(profile, random.next_u64()));
        for waiting in former.drain() {
            self.enqueue(waiting, random, counters);
        }
    }

    fn drain(&mut self) -> Vec<Waiting<F>> {
        match &mut self.state {
            State::DropTail(fifo, _) | State::CoDel(fifo, _) => fifo.frames.drain(..).collect(),
            State::Red(red) => red.fifo.frames.drain(..).collect(),
            State::FqCoDel(flows) => flows.drain(),
        }
    }

    pub fn enqueue(&mut self, waiting: Waiting<F>, random: &mut impl Rng, counters: &mut Counters) {
        let limit = self.limit;
        match &mut self.state {
            State::DropTail(fifo, mark) => drop_tail::enqueue(fifo, waiting, limit, *mark, counters),
            State::Red(red) => red.enqueue(waiting, limit, random, counters),
            State::CoDel(fifo, _) => drop_tail::enqueue(fifo, waiting, limit, None, counters),
            State::FqCoDel(flows) => flows.enqueue(waiting, limit, counters),
        }
    }

    /// The next frame to serialize at `now`.
    pub fn dequeue(&mut self, now: u64, counters: &mut Counters) -> Option<F> {
        let waiting = match &mut self.state {
            State::DropTail(fifo, _) => fifo.pop(),
            State::Red(red) => red.dequeue(now),
            State::CoDel(fifo, codel) => codel.dequeue(fifo, now, counters),
            State::FqCoDel(flows) => flows.dequeue(now, counters),
        };
        waiting.map(|waiting| waiting.frame)
    }

    /// Frames and bytes in the queue.
    #[inline]
    pub fn backlog(&self) -> (usize, usize) {
        match &self.state {
            State::DropTail(fifo, _) | State::CoDel(fifo, _) => (fifo.len(), fifo.bytes),
            State::Red(red::Red { fifo, .. }) => (fifo.len(), fifo.bytes),
            State::FqCoDel(flows) => flows.backlog(),
        }
    }
}
