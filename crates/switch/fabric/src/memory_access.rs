//! Which peer's memory a worker accesses, and which peer's memory blocked it.
//!
//! Before each access a worker stores whose memory it accesses; the watchdog reads that when the worker makes no
//! progress. Usually only turns are timed. After a turn in which the worker was blocked by an unknown peer, each access
//! is timed for a while, and frames are copied into our own memory first, so that each access is to one peer's memory
//! only.

use crate::profile::Stopwatch;
use crate::worker::Gauges;
use ringway_host::{Clock, ThreadFiles, ThreadTimes};
use ringway_switch::PortId;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Nanoseconds that a turn, or an access, may take before its blocked time is checked.
const SLOW: u64 = 2_000_000;
/// Nanoseconds after which the thread's times are read again even if nothing was slow.
const STALE: u64 = 100_000_000;
/// For how long accesses are timed after a blocked turn: this many times as long as it was blocked, within these
/// bounds.
const CLOSELY: u64 = 16;
/// The least of that time.
pub const CLOSELY_LEAST: u64 = 1_000_000_000;
const CLOSELY_MOST: u64 = 600_000_000_000;

/// Whose memory is accessed, packed into 64 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(pub u64);

impl Access {
    /// No peer's memory.
    pub const NONE: Access = Access(0);

    /// The memory of one port's peer.
    #[inline]
    pub fn of(port: PortId) -> Access {
        Access(u64::from(port) + 1)
    }

    /// Frames are copied from one peer's memory into another's.
    #[inline]
    pub fn copy(from: PortId, to: PortId) -> Access {
        Access((u64::from(to) + 1) | ((u64::from(from) + 1) << 32))
    }

    /// The port whose memory is written or, without a copy, accessed.
    pub fn port(self) -> Option<PortId> {
        PortId::try_from(u64::from(self.0 as u32).checked_sub(1)?).ok()
    }

    /// The port whose memory a copy reads.
    pub fn source(self) -> Option<PortId> {
        PortId::try_from((self.0 >> 32).checked_sub(1)?).ok()
    }
}

/// A worker's measure of its accesses.
pub struct Meter {
    gauges: Arc<Gauges>,
    clock: Clock,
    files: Option<ThreadFiles>,
    /// The thread's times as last read.
    times: Cell<Option<ThreadTimes>>,
    slept: Cell<u64>,
    sleeps: Cell<u64>,
    /// Whether accesses are timed, and until when.
    closely: Cell<bool>,
    closely_until: Cell<u64>,
    /// While accesses are timed: when the current one began.
    since: Cell<u64>,
    /// Ports to be charged, and for how many nanoseconds.
    held: RefCell<Vec<(PortId, u64)>>,
    is_held: Cell<bool>,
    /// Measures the stages of some turns, while somebody asks for it.
    pub stopwatch: Stopwatch,
}

impl Meter {
    /// The meter of the worker with these gauges.
    pub fn new(gauges: Arc<Gauges>) -> Meter {
        Meter {
            gauges,
            clock: Clock::new(),
            files: None,
            times: Cell::new(None),
            slept: Cell::new(0),
            sleeps: Cell::new(0),
            closely: Cell::new(false),
            closely_until: Cell::new(0),
            since: Cell::new(0),
            held: RefCell::new(Vec::new()),
            is_held: Cell::new(false),
            stopwatch: Stopwatch::default(),
        }
    }

    /// Sets the files from which the thread's times are read.
    pub fn watch(&mut self, files: ThreadFiles) {
        self.files = Some(files);
        self.times.set(self.read());
    }

    fn read(&self) -> Option<ThreadTimes> {
        let times = self.files.as_ref()?.times(self.clock.now())?;
        Some(ThreadTimes { slept: self.slept.get(), sleeps: self.sleeps.get(), ..times })
    }

    /// Nanoseconds that the thread was blocked since the last call.
    fn blocked(&self) -> u64 {
        let times = self.read();
        match (self.times.replace(times), times) {
            (Some(before), Some(times)) => times.blocked_since(&before),
            _ => 0,
        }
    }

    /// Whether accesses are timed.
    #[inline]
    pub fn is_close(&self) -> bool {
        self.closely.get()
    }

    /// Begins the next access.
    #[inline]
    pub fn at(&self, access: Access) {
        if self.closely.get() {
            self.judge_access();
        }
        self.gauges.access.store(access.0, Relaxed);
    }

    /// Charges the port of the access that ends now, if it blocked the thread for long.
    #[cold]
    fn judge_access(&self) {
        let now = self.clock.now();
        let took = now.saturating_sub(self.since.get());
        if took > SLOW
            && let Some(port) = Access(self.gauges.access.load(Relaxed)).port()
        {
            let blocked = self.blocked().min(took);
            if blocked > SLOW {
                self.charge(port, blocked);
            }
        }
        self.since.set(self.clock.now());
    }

    fn charge(&self, port: PortId, time: u64) {
        self.held.borrow_mut().push((port, time));
        self.is_held.set(true);
    }

    /// Ends the turn that began at `began`; also called when the worker goes to sleep.
    #[inline]
    pub fn turn_ended(&self, began: u64, now: u64) {
        if now.saturating_sub(began) > SLOW {
            self.judge_turn(now);
        }
    }

    #[cold]
    fn judge_turn(&self, now: u64) {
        let blocked = self.blocked();
        if blocked <= SLOW {
            return;
        }
        // The access that the watchdog saw blocked, if it was in this turn.
        let is_seen = self.gauges.stuck_turn.load(Relaxed) == self.gauges.turns.load(Relaxed);
        let seen = Access(if is_seen { self.gauges.stuck_access.load(Relaxed) } else { 0 });
        match (seen.port(), seen.source()) {
            (Some(port), None) => self.charge(port, blocked),
            _ => {
                let time = blocked.saturating_mul(CLOSELY).clamp(CLOSELY_LEAST, CLOSELY_MOST);
                self.closely_until.set(now.saturating_add(time).max(self.closely_until.get()));
            }
        }
    }

    /// Until when each access is timed.
    pub fn closely_until(&self) -> u64 {
        self.closely_until.get()
    }

    /// Times each access until `until` at least.
    pub fn extend_closely(&self, until: u64) {
        self.closely_until.set(self.closely_until.get().max(until));
    }

    /// Begins a turn.
    #[inline]
    pub fn turn_begins(&self, now: u64) {
        let closely = now < self.closely_until.get();
        if closely || self.closely.get() {
            self.closely.set(closely);
            self.since.set(now);
        }
    }

    /// Rereads stale thread times; called when the worker goes to sleep at `now`, or would.
    pub fn refresh(&self, now: u64) {
        if self.files.is_some() && self.times.get().is_none_or(|times| now.saturating_sub(times.at) > STALE) {
            self.times.set(self.read());
        }
    }

    /// Records that the worker slept for `time` nanoseconds.
    pub fn slept(&self, time: u64) {
        self.slept.set(self.slept.get().wrapping_add(time));
        self.sleeps.set(self.sleeps.get() + 1);
    }

    /// Whether any port is to be charged.
    #[inline]
    pub fn is_held(&self) -> bool {
        self.is_held.get()
    }

    /// Takes the ports to be charged, and for how many nanoseconds.
    pub fn take_held(&self) -> Vec<(PortId, u64)> {
        self.is_held.set(false);
        self.held.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringway_host::{open_thread_files, thread_number};
    use std::time::Duration;

    fn meter() -> Meter {
        let mut meter = Meter::new(Arc::new(Gauges::default()));
        let files = open_thread_files(std::process::id(), thread_number()).unwrap();
        meter.watch(ThreadFiles::new(files));
        meter
    }

    #[test]
    fn an_access_that_blocks_is_charged_once_accesses_are_timed() {
        let (meter, clock) = (meter(), Clock::new());
        let mut charged = Vec::new();
        for _ in 0..2 {
            let began = clock.now();
            meter.turn_begins(began);
            meter.at(Access::of(3));
            meter.at(Access::of(7));
            std::thread::sleep(Duration::from_millis(20));
            meter.at(Access::of(3));
            meter.at(Access::NONE);
            charged.push(meter.take_held());
            meter.turn_ended(began, clock.now());
        }
        assert!(charged[0].is_empty(), "nobody knows yet who it was");
        assert_eq!(charged[1].iter().map(|(port, _)| *port).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn the_watchdog_charges_an_access_of_a_single_port() {
        for (access, charged) in [(Access::of(7), vec![7]), (Access::copy(7, 8), vec![])] {
            let (meter, clock) = (meter(), Clock::new());
            let began = clock.now();
            meter.turn_begins(began);
            meter.at(access);
            meter.gauges.stuck_access.store(access.0, Relaxed);
            std::thread::sleep(Duration::from_millis(20));
            meter.turn_ended(began, clock.now());
            assert_eq!(meter.take_held().iter().map(|(port, _)| *port).collect::<Vec<_>>(), charged);
            assert_eq!(meter.closely_until.get() > 0, charged.is_empty());
        }
    }

    #[test]
    fn sleeping_and_preempted_workers_charge_no_port() {
        let (meter, clock) = (meter(), Clock::new());
        let began = clock.now();
        meter.turn_begins(began);
        meter.at(Access::of(7));
        while clock.now() < began + 3 * SLOW {
            std::hint::spin_loop();
        }
        meter.turn_ended(began, clock.now());
        let before = clock.now();
        std::thread::sleep(Duration::from_millis(20));
        meter.slept(clock.now() - before);
        meter.turn_ended(began, clock.now());
        assert!(meter.take_held().is_empty());
        assert_eq!(meter.closely_until.get(), 0);
    }

    #[test]
    fn an_access_word_encodes_both_ports() {
        assert_eq!((Access::NONE.port(), Access::NONE.source()), (None, None));
        assert_eq!((Access::of(0).port(), Access::of(0).source()), (Some(0), None));
        let copy = Access::copy(5, 4095);
        assert_eq!((copy.port(), copy.source()), (Some(4095), Some(5)));
    }
}
