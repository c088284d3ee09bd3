//! The effect of each notification policy: request and response between two threads over a ring in memory,
//! with eventfds signalled as [`ringway_ring::Notifier`] decides.

use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::harness::{LOAD, Pinned, WORKER};
use crate::plan::Plan;
use ringway_host::{Clock, EventFd, wait_readable};
use ringway_ring::{Notifier, Policy, View};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

const SLICE: Duration = Duration::from_millis(100);
/// Slots of a ring, of 64 bytes each.
const SLOTS: usize = 1024;
/// Largest number of unanswered frames.
const WINDOW: u32 = 256;
/// Frames handled at once.
const BURST: u32 = 32;
/// Time window of moderation in nanoseconds, and the longest delay of an answer.
const MODERATE: u64 = 20_000;
const COMBINE: u64 = 20_000;
/// Longest sleep in nanoseconds, so that the threads notice the end.
const ROUND: u64 = 10_000_000;

const NONE: Policy = Policy::NONE;
const ALL: Policy = Policy { batch: true, combine: COMBINE, moderate: MODERATE, suppress: true, poll: true };

const ALONE: [Policy; 6] = [
    NONE,
    Policy { batch: true, ..NONE },
    Policy { combine: COMBINE, ..NONE },
    Policy { moderate: MODERATE, ..NONE },
    Policy { suppress: true, ..NONE },
    Policy { poll: true, ..NONE },
];

/// The policies, added one after the other.
const LADDER: [(&str, Policy); 6] = [
    ("none", NONE),
    ("+ batch", Policy { batch: true, ..NONE }),
    ("+ suppress", Policy { batch: true, suppress: true, ..NONE }),
    ("+ poll", Policy { batch: true, suppress: true, poll: true, ..NONE }),
    ("+ combine", Policy { moderate: 0, ..ALL }),
    ("+ moderate", ALL),
];

/// One policy of [`ALONE`].
pub fn alone(plan: &Plan, policy: usize) -> Result<Entry, Failure> {
    measure(&plan.part(0.5), ALONE[policy]).map(|(frames, notifications)| row(&frames, &notifications))
}

/// All policies, and the ladder.
pub fn all(plan: &Plan) -> Result<Entry, Failure> {
    let plan = plan.part(0.5);
    let (frames, notifications) = measure(&plan, ALL)?;
    ladder(&plan, row(&frames, &notifications))
}

fn row(frames: &Slices, notifications: &Slices) -> Entry {
    let notifications = notifications.entry("", Better::Less).ours.unwrap_or(f64::NAN);
    frames.entry("Mpps", Better::More).with("notifications a second", notifications)
}

fn ladder(plan: &Plan, mut entry: Entry) -> Result<Entry, Failure> {
    for (name, policy) in LADDER {
        let (frames, notifications) = measure(plan, policy)?;
        let frames = frames.entry("", Better::More).ours.unwrap_or(f64::NAN);
        let notifications = notifications.entry("", Better::Less).ours.unwrap_or(f64::NAN);
        entry = entry.step(name, &[("Mpps", frames), ("notifications a second", notifications)]);
    }
    Ok(entry
        .note("steps: each policy in addition to those above; requests and responses, at most 256 in flight"))
}

/// One direction.
struct Half {
    tail: AtomicU32,
    /// Whether its reader wants to be notified.
    wanted: AtomicBool,
    bell: EventFd,
    notifications: AtomicU64,
    slots: Vec<[AtomicU64; 8]>,
}

impl Half {
    fn new() -> Result<Half, Failure> {
        let slots = (0..SLOTS).map(|_| Default::default()).collect();
        let (tail, wanted, notifications) = (AtomicU32::new(0), AtomicBool::new(true), AtomicU64::new(0));
        Ok(Half { tail, wanted, bell: EventFd::new()?, notifications, slots })
    }
}

/// One side with both of its directions.
struct Side<'r> {
    notifier: Notifier,
    clock: Clock,
    ends: Ends<'r>,
    /// Whether the other side will answer frames published here.
    asks: bool,
}

struct Ends<'r> {
    from: &'r Half,
    to: &'r Half,
    taken: u32,
    written: u32,
}

impl View for Ends<'_> {
    fn pending(&mut self) -> bool {
        self.from.tail.load(Ordering::Acquire) != self.taken
    }

    fn set_flag(&mut self, wanted: bool) {
        self.from.wanted.store(wanted, Ordering::Relaxed);
    }

    fn notify(&mut self, ask: bool) -> bool {
        if ask && !self.to.wanted.load(Ordering::Relaxed) {
            return false;
        }
        self.to.bell.signal();
        ringway_frame::add(&self.to.notifications, 1);
        true
    }
}

impl<'r> Side<'r> {
    fn new(from: &'r Half, to: &'r Half, policy: Policy, asks: bool) -> Side<'r> {
        let mut side = Side {
            notifier: Notifier::new(policy),
            clock: Clock::new(),
            ends: Ends { from, to, taken: 0, written: 0 },
            asks,
        };
        side.notifier.disarm(&mut side.ends);
        side
    }

    /// Takes at most a burst of available frames.
    #[inline]
    fn take(&mut self) -> u32 {
        let Ends { from, taken, .. } = &mut self.ends;
        let count = from.tail.load(Ordering::Acquire).wrapping_sub(*taken).min(BURST);
        let mut sum = 0;
        for _ in 0..count {
            for word in &from.slots[*taken as usize % SLOTS] {
                sum ^= word.load(Ordering::Relaxed);
            }
            *taken = taken.wrapping_add(1);
        }
        std::hint::black_box(sum);
        if count > 0 && self.asks {
            self.notifier.answered(self.clock.now(), &mut self.ends);
        }
        count
    }

    /// Publishes `count` frames according to the policy.
    #[inline]
    fn put(&mut self, count: u32) {
        for left in (0..count).rev() {
            let Ends { to, written, .. } = &mut self.ends;
            for word in &to.slots[*written as usize % SLOTS] {
                word.store(u64::from(*written), Ordering::Relaxed);
            }
            *written = written.wrapping_add(1);
            if left == 0 || !self.notifier.batches() {
                to.tail.store(*written, Ordering::Release);
                let now = self.clock.now();
                self.notifier.published(now, &mut self.ends);
                if self.asks {
                    self.notifier.expect_answer(now);
                }
            }
        }
    }

    /// Enables notifications and sleeps.
    fn rest(&mut self) -> Result<(), Failure> {
        let now = self.clock.now();
        self.notifier.due(now, &mut self.ends);
        if self.notifier.arm(&mut self.ends) {
            let due = self.notifier.next_due().map_or(ROUND, |due| due.saturating_sub(now).min(ROUND));
            wait_readable(&[self.ends.from.bell.as_fd()], Some(due))?;
            self.ends.from.bell.clear();
            self.notifier.disarm(&mut self.ends);
            self.notifier.due(self.clock.now(), &mut self.ends);
        }
        Ok(())
    }
}

/// Millions of answered frames a second, and notifications a second of both sides.
fn measure(plan: &Plan, policy: Policy) -> Result<(Slices, Slices), Failure> {
    let (questions, answers) = (Half::new()?, Half::new()?);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| -> Result<(), Failure> {
            ringway_host::pin(WORKER)?;
            let mut side = Side::new(&questions, &answers, policy, false);
            while !stop.load(Ordering::Relaxed) {
                match side.take() {
                    0 => side.rest()?,
                    count => side.put(count),
                }
            }
            Ok(())
        });
        let pinned = Pinned::to(LOAD)?;
        let mut side = Side::new(&answers, &questions, policy, true);
        let (mut frames, mut notifications) = (Slices::default(), Slices::default());
        let mut all = || -> Result<(), Failure> {
            for _ in 0..plan.slices(SLICE) {
                let count = || {
                    questions.notifications.load(Ordering::Relaxed)
                        + answers.notifications.load(Ordering::Relaxed)
                };
                let (before, begin) = (count(), std::time::Instant::now());
                let done = ask(&mut side, SLICE)?;
                let seconds = begin.elapsed().as_secs_f64();
                frames.ours.push(done as f64 / seconds / 1e6);
                notifications.ours.push((count() - before) as f64 / seconds);
            }
            Ok(())
        };
        let result = all();
        stop.store(true, Ordering::Relaxed);
        questions.bell.signal();
        drop(pinned);
        answering.join().map_err(|_| "the answering side failed")??;
        result.map(|()| (frames, notifications))
    })
}

/// Sends requests for `time`; returns the number answered.
fn ask(side: &mut Side<'_>, time: Duration) -> Result<u64, Failure> {
    let end = side.clock.now() + time.as_nanos() as u64;
    let mut done = 0;
    while side.clock.now() < end {
        let answered = side.take();
        done += u64::from(answered);
        let under_way = side.ends.written.wrapping_sub(side.ends.taken);
        let room = (WINDOW - under_way.min(WINDOW)).min(BURST);
        side.put(room);
        if answered == 0 && room == 0 {
            side.rest()?;
        }
    }
    Ok(done)
}
