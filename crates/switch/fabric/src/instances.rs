//! The instances of a function that multiplies, as workers see them: which flows each has, and whether it keeps up.

use crate::topology::Target;
use ringway_frame::Burst;
use ringway_host::EventFd;
use ringway_spec::InstanceEnd;
use ringway_switch::{FlowHash, INSTANCES, NOWHERE, PortId, Spread, Tick, Verdicts, flow_key};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// How long, in nanoseconds, frames must wait at every instance until another instance is needed: half of the room is
/// taken. A burst of frames is shorter.
pub const PRESSED: u64 = 40_000_000;
/// Nanoseconds without waiting frames after which that begins anew.
const GAP: u64 = 20_000_000;
/// Nanoseconds after which what was last seen of an instance says nothing about it any more.
const STALE: u64 = 50_000_000;
/// Nanoseconds between two reports. Attack: a load that makes `control` read reports all the time.
const REPORTS: u64 = 10_000_000;

/// What was seen at an end of an instance when frames were put there.
#[derive(Debug, Default)]
struct Gauge {
    /// When frames were last put.
    last: AtomicU64,
    /// When frames last waited.
    waited: AtomicU64,
    /// Since when they wait again and again.
    since: AtomicU64,
}

impl Gauge {
    /// `long`: since when they wait, if that is known.
    fn see(&self, now: u64, waits: bool, long: Option<u64>) {
        self.last.store(now, Relaxed);
        if waits {
            if now.saturating_sub(self.waited.load(Relaxed)) > GAP {
                self.since.store(now, Relaxed);
            }
            self.waited.store(now, Relaxed);
        }
        if let Some(long) = long {
            self.since.store(self.since.load(Relaxed).min(long), Relaxed);
        }
    }

    /// Whether frames waited when some were last put.
    fn waits(&self, now: u64) -> bool {
        let (last, waited) = (self.last.load(Relaxed), self.waited.load(Relaxed));
        last == waited && now.saturating_sub(last) <= STALE
    }

    /// Whether they have waited for a while.
    fn is_pressed(&self, now: u64) -> bool {
        let (waited, since) = (self.waited.load(Relaxed), self.since.load(Relaxed));
        now.saturating_sub(waited) <= STALE && waited.saturating_sub(since) >= PRESSED
    }
}

/// The instances of a function.
pub struct Instances {
    /// The function's name.
    pub function: String,
    spread: Spread,
    gauges: [[Gauge; 2]; INSTANCES],
    alarm: Arc<EventFd>,
    /// Whether another instance is needed, and was not reported.
    news: AtomicBool,
    /// When that was last reported.
    reported: AtomicU64,
    /// When an instance was last seen pressed.
    pressed: AtomicU64,
    /// With so many instances no other one is reported as needed.
    most: AtomicU32,
}

impl Instances {
    /// The instances of the function of which `end` is one's end. `alarm` is signalled when it needs more.
    pub fn new(end: &InstanceEnd, alarm: Arc<EventFd>, now: u64) -> Arc<Instances> {
        Arc::new(Instances {
            function: end.of.clone(),
            spread: Spread::new(end.flows, end.idle, end.drain),
            gauges: Default::default(),
            alarm,
            news: AtomicBool::new(false),
            reported: AtomicU64::new(0),
            pressed: AtomicU64::new(now),
            most: AtomicU32::new(u32::MAX),
        })
    }

    /// Changes the instances that get new flows, and those that keep the ones that they have.
    pub fn assign(&self, open: u32, there: u32, now: u64) {
        self.spread.assign(open, there, Tick::at(now));
    }

    /// Sets the number of instances with which no other one is reported as needed: that of the workers, if workers run
    /// them.
    pub fn limit(&self, most: u32) {
        self.most.store(most, Relaxed);
    }

    /// Number of flows of each instance.
    pub fn flows(&self, now: u64) -> [u32; INSTANCES] {
        self.spread.flows(Tick::at(now))
    }

    /// Nanoseconds since an instance was last pressed.
    pub fn calm(&self, now: u64) -> u64 {
        now.saturating_sub(self.pressed.load(Relaxed))
    }

    /// Whether another instance is needed that was not reported.
    pub fn take_news(&self) -> bool {
        self.news.swap(false, Relaxed)
    }

    /// Called when frames for an end of an instance were reserved, with the end's queue locked. `half`: at least half
    /// of its room is taken. `long`: since when its worker has not kept up.
    #[inline]
    pub fn see(&self, instance: usize, side: usize, now: u64, half: bool, long: Option<u64>) {
        let Some(gauge) = self.gauges.get(instance).and_then(|both| both.get(side)) else { return };
        let waits = half || long.is_some();
        gauge.see(now, waits, long);
        if waits && gauge.is_pressed(now) {
            self.press(now);
        }
    }

    /// An instance is pressed: another one is needed if all are.
    #[cold]
    fn press(&self, now: u64) {
        self.pressed.store(now, Relaxed);
        let open = self.spread.open();
        let all = (0..INSTANCES)
            .filter(|instance| open >> instance & 1 != 0)
            .all(|instance| self.gauges[instance].iter().any(|gauge| gauge.is_pressed(now)));
        let helps = open.count_ones() < self.most.load(Relaxed);
        if all && helps && now.saturating_sub(self.reported.load(Relaxed)) >= REPORTS {
            self.reported.store(now, Relaxed);
            self.news.store(true, Relaxed);
            self.alarm.signal();
        }
    }

    /// The instance for a new flow: the one of its bucket, or while frames wait there one where none do.
    #[cold]
    fn lighter(&self, own: usize, now: u64) -> usize {
        let waits = |instance: usize| self.gauges[instance].iter().any(|gauge| gauge.waits(now));
        if own >= INSTANCES || !waits(own) {
            return own;
        }
        let open = self.spread.open();
        let mut others = (0..INSTANCES).filter(|instance| open >> instance & 1 != 0);
        others.find(|other| !waits(*other)).unwrap_or(own)
    }
}

/// Where the frames for one end of a function go: the instances, and the port of each.
#[derive(Clone)]
pub struct Ends {
    /// The instances.
    pub instances: Arc<Instances>,
    /// Their ports.
    pub ports: Arc<[PortId; INSTANCES]>,
    /// The instances of each worker, as a mask.
    near: Arc<[u32]>,
}

impl Ends {
    /// The target of frames for an end: the ports of the instances, each with its instance's worker, of `workers`.
    pub fn target(
        instances: Arc<Instances>,
        ports: impl Iterator<Item = (u16, PortId, Option<usize>)>,
        workers: usize,
    ) -> Target {
        let (mut ends, mut near, mut all) = ([NOWHERE; INSTANCES], vec![0; workers], 0);
        for (number, port, worker) in ports {
            let Some(slot) = ends.get_mut(usize::from(number)) else { continue };
            *slot = port;
            all |= 1 << number;
            worker.and_then(|worker| near.get_mut(worker)).into_iter().for_each(|near| *near |= 1 << number);
        }
        // Where all instances share a worker, another one takes no work off it.
        near.iter_mut().filter(|near| **near == all).for_each(|near| *near = 0);
        Target::Instances(Ends { instances, ports: Arc::new(ends), near: near.into() })
    }

    /// The instances that run on a worker, as a mask; none if no other worker has any.
    #[inline]
    pub fn near(&self, worker: usize) -> u32 {
        self.near.get(worker).copied().unwrap_or(0)
    }

    /// Finds the port of each frame of a burst.
    pub fn look_up(&self, burst: &Burst<'_>, hash: FlowHash, now: u64, verdicts: &mut Verdicts) {
        let (tick, instances) = (Tick::at(now), &*self.instances);
        for (index, verdict) in verdicts.iter_mut().enumerate().take(burst.len()) {
            let key = flow_key(hash, burst, index);
            let instance = instances.spread.to(key, tick, |own| instances.lighter(own, now));
            *verdict = self.ports.get(instance).copied().unwrap_or(NOWHERE);
        }
    }

    /// As [`Ends::look_up`] of a burst of one frame, without a change of what is known.
    pub fn preview(&self, burst: &Burst<'_>, hash: FlowHash, now: u64) -> PortId {
        let instances = &*self.instances;
        let key = flow_key(hash, burst, 0);
        let instance = instances.spread.preview(key, Tick::at(now), |own| instances.lighter(own, now));
        self.ports.get(instance).copied().unwrap_or(NOWHERE)
    }
}

/// The place of a port among a function's ends.
#[derive(Clone)]
pub struct InstanceSide {
    /// The function's instances.
    pub instances: Arc<Instances>,
    /// The instance.
    pub number: usize,
    /// The instance's end.
    pub side: usize,
}

impl InstanceSide {
    /// Remembers the flows of frames that the instance sent.
    pub fn sent(&self, burst: &Burst<'_>, hash: FlowHash, now: u64) {
        let tick = Tick::at(now);
        for index in 0..burst.len() {
            self.instances.spread.sent(flow_key(hash, burst, index), self.number, tick);
        }
    }

    /// Frames for the end were reserved, as [`Instances::see`] needs it.
    #[inline]
    pub fn see(&self, now: u64, half: bool, long: Option<u64>) {
        self.instances.see(self.number, self.side, now, half, long);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn instances() -> Arc<Instances> {
        let end = InstanceEnd {
            of: "fw".into(),
            number: 0,
            side: 0,
            flows: 64,
            idle: 60_000 * MS,
            drain: 60_000 * MS,
        };
        Instances::new(&end, Arc::new(EventFd::new().unwrap()), 0)
    }

    #[test]
    fn another_instance_is_needed_once_all_are_pressed_for_a_while() {
        let own = instances();
        let see = |instance, from: u64, to: u64, half| {
            (from..to).for_each(|at| own.see(instance, 0, at * MS, half, None));
            own.take_news()
        };
        assert!(!see(0, 100, 139, true), "a burst");
        assert!(see(0, 139, 142, true));
        assert!(!see(0, 142, 145, true), "it was reported just now");
        assert!(see(0, 145, 160, true), "it is reported again");
        assert_eq!(own.calm(165 * MS), 6 * MS);
        assert!(!see(0, 160, 185, false) && !see(0, 185, 224, true), "there was room meanwhile");
        own.assign(0b11, 0b11, 0);
        assert!(!see(0, 224, 260, true), "the second instance has nothing to do");
        assert_eq!((own.lighter(0, 259 * MS), own.lighter(1, 259 * MS)), (1, 1));
        for at in 260..310 {
            own.see(0, 0, at * MS, true, None);
            own.see(1, 1, at * MS, true, None);
        }
        assert!(own.take_news());
        assert_eq!(own.lighter(0, 309 * MS), 0, "frames wait at both");
        assert!(!see(0, 370, 371, true), "what was seen long ago does not count");
        // A worker's function may have long turns.
        own.assign(0b1, 0b1, 0);
        own.see(0, 0, 439 * MS, false, Some(400 * MS));
        assert!(!own.take_news());
        own.see(0, 0, 479 * MS, false, Some(400 * MS));
        assert!(own.take_news());
    }
}
