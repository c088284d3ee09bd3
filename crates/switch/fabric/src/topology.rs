//! The fabric as workers see it: ports, their RX queues, switches. Immutable; a change makes a new topology.

use crate::capture::CapturePoint;
use crate::instances::{Ends, InstanceSide};
use crate::mirror::{MirrorRule, MirrorTarget, Missed};
use crate::policy::PortPolicy;
use crate::wait_limit::WaitLimit;
use ringway_frame::{CountersRef, RxQueue};
use ringway_host::{Budget, EventFd};
use ringway_switch::snooping::Snooping;
use ringway_switch::{Lookup, PortId};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// The fabric's state as published to the workers.
#[derive(Clone, Default)]
pub struct Topology {
    /// Ports by their number.
    pub ports: Vec<Option<Arc<Port>>>,
    /// Every RX queue; those of one port are adjacent.
    pub rx: Vec<Arc<RxSlot>>,
    /// The ports of switches with flow tables, by their number, as they get copies of frames.
    pub receivers: Vec<Option<Arc<MirrorTarget>>>,
    /// Whether any port is captured.
    pub has_captures: bool,
    /// Whether any port is captured or mirrored.
    pub is_observed: bool,
}

impl Topology {
    /// The port with this number.
    #[inline]
    pub fn port(&self, id: PortId) -> Option<&Port> {
        self.ports.get(usize::from(id))?.as_deref()
    }
}

/// A port.
pub struct Port {
    /// Its name.
    pub name: Arc<str>,
    /// The destination of its frames.
    pub target: Target,
    /// Its first RX queue in [`Topology::rx`].
    pub first: u32,
    /// Number of its RX queues.
    pub queues: u32,
    /// How long its frames wait for a full destination, in nanoseconds.
    pub hold: u64,
    /// Set while its frames stay where they are.
    pub held: Option<Arc<Held>>,
    /// The queue that each flow last came from; only with several queues.
    pub steer: Option<Arc<Steer>>,
    /// Budget of its peer; only if the peer shares memory.
    pub budget: Option<Arc<Budget>>,
    /// Its place, if it is an end of a function that multiplies.
    pub place: Option<InstanceSide>,
    /// Whether its frames are copied to our own memory before a destination is locked.
    pub is_suspect: bool,
    /// What its switch lets it send and receive, if not everything.
    pub policy: Option<Arc<PortPolicy>>,
    /// The captures of its frames, if there are any.
    pub captures: Option<Arc<CapturePoint>>,
    /// Where its frames are mirrored to, if they are.
    pub mirrors: Option<Arc<[MirrorRule]>>,
}

impl Port {
    /// Whether no frame is taken from its peer. This process may end before its frames go on, and what it had taken
    /// into memory of its own would be lost.
    #[inline]
    pub fn rests(&self) -> bool {
        // Where the first frame is waited for, it is looked for.
        self.held.as_ref().is_some_and(|held| held.alarm.is_none())
    }
}

/// A port whose frames stay where they are for now.
#[derive(Debug, Default)]
pub struct Held {
    alarm: Option<Arc<EventFd>>,
    /// Whether a frame waits that was not reported.
    pub news: AtomicBool,
    /// Whether there was a frame.
    came: AtomicBool,
}

impl Held {
    /// Signals `alarm` at the first frame, if there is one.
    pub fn new(alarm: Option<Arc<EventFd>>) -> Arc<Held> {
        Arc::new(Held { alarm, ..Held::default() })
    }

    /// A frame waits.
    #[cold]
    pub fn wait(&self) {
        if let Some(alarm) = &self.alarm
            && !self.came.swap(true, Relaxed)
        {
            self.news.store(true, Relaxed);
            alarm.signal();
        }
    }
}

/// Whether a port's peer exceeded its budget; its memory is then not accessed.
#[inline]
pub fn is_closed(budget: &Option<Arc<Budget>>) -> bool {
    budget.as_ref().is_some_and(|budget| budget.is_spent())
}

/// The destination of a port's frames.
#[derive(Clone)]
pub enum Target {
    /// Frames go to a switch.
    Switch(Arc<Switch>),
    /// Frames go to another port.
    Patch(PortId),
    /// Frames go to an end of a function that multiplies.
    Instances(Ends),
    /// Nowhere: the other end of its patch does not exist.
    Nowhere,
}

/// A switch and its member ports.
pub struct Switch {
    /// Finds a frame's port.
    pub lookup: Arc<dyn Lookup>,
    /// Its ports, for flooding.
    pub members: Vec<PortId>,
    /// Whether any of them has a policy, or frames are looked up by flow tables.
    pub has_policies: bool,
    /// What is known of groups and their members, if that is of interest.
    pub snooping: Option<Arc<Snooping>>,
}

impl Switch {
    /// Removes what is known of a port that is removed.
    pub fn forget(&self, port: PortId) {
        self.lookup.remove_port(port);
        self.snooping.iter().for_each(|snooping| snooping.forget_port(port));
    }
}

/// An RX queue: locked by one worker at a time; no worker blocks on its lock.
pub struct RxSlot {
    /// The queue.
    pub queue: Mutex<Box<dyn RxQueue>>,
    /// Its port.
    pub port: PortId,
    /// Its counters.
    pub counters: CountersRef,
    /// Budget of its port's peer; only if the peer shares memory.
    pub budget: Option<Arc<Budget>>,
    /// Whether senders wait while it is full.
    pub wait_limit: WaitLimit,
    /// Whether senders no longer wait for the worker that has the queue locked now.
    pub given_up: AtomicBool,
    /// The place of its port, if that is an end of a function that multiplies.
    pub place: Option<InstanceSide>,
    /// Copies for it that were dropped and are not in its counters yet.
    pub missed: Missed,
}

impl RxSlot {
    /// A slot for `queue` of a port.
    pub fn new(
        queue: Box<dyn RxQueue>,
        port: PortId,
        counters: CountersRef,
        budget: Option<Arc<Budget>>,
    ) -> RxSlot {
        let (wait_limit, given_up) = (WaitLimit::default(), AtomicBool::new(false));
        let queue = Mutex::new(queue);
        let missed = Missed::default();
        RxSlot { queue, port, counters, budget, wait_limit, given_up, place: None, missed }
    }
}

/// Remembers the queue on which a flow arrived, so that replies leave on the same queue (virtio 1.3, 5.1.5.6.1).
pub struct Steer {
    flows: [AtomicU8; 256],
    /// Number of the port's queues on which its peer receives now.
    open: AtomicU32,
}

impl Default for Steer {
    fn default() -> Steer {
        Steer { flows: [const { AtomicU8::new(u8::MAX) }; 256], open: AtomicU32::new(u32::MAX) }
    }
}

impl Steer {
    /// The number of the queue for a flow, whose hash `hash` computes, of a port with so many.
    #[inline]
    pub fn queue(steer: Option<&Arc<Steer>>, queues: u32, hash: impl FnOnce() -> u32) -> u32 {
        steer.filter(|_| queues > 1).map_or(0, |steer| steer.pick(hash(), queues))
    }

    /// Records that flow `hash` arrived on `queue`.
    #[inline]
    pub fn record_flow(&self, hash: u32, queue: u16) {
        let slot = &self.flows[(hash & 255) as usize];
        let queue = u8::try_from(queue).unwrap_or(u8::MAX);
        if slot.load(Relaxed) != queue {
            slot.store(queue, Relaxed);
        }
    }

    /// Records that the peer receives on the first `queues` of its queues only.
    pub fn limit(&self, queues: u32) {
        self.open.store(queues.max(1), Relaxed);
    }

    /// The queue of `queues` for flow `hash`.
    #[inline]
    pub fn pick(&self, hash: u32, queues: u32) -> u32 {
        let queues = queues.min(self.open.load(Relaxed));
        let noted = u32::from(self.flows[(hash & 255) as usize].load(Relaxed));
        if noted < queues { noted } else { ((u64::from(hash) * u64::from(queues)) >> 32) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_use_only_open_queues() {
        let steer = Steer::default();
        steer.record_flow(7, 3);
        assert_eq!(steer.pick(7, 4), 3);
        steer.limit(2);
        for hash in (0..u32::MAX - 0x0100_0000).step_by(0x00ff_0001) {
            assert!(steer.pick(hash, 4) < 2);
        }
        assert!(steer.pick(7, 4) < 2);
        steer.limit(0);
        assert_eq!(steer.pick(7, 4), 0);
    }
}
