//! Multicast snooping (RFC 4541): which ports have members of a group, and behind which there are routers, from what
//! IGMP and MLD messages say.
//!
//! Groups are forwarded by their IP address, in each VLAN for itself. Until hosts have answered a general query,
//! members are unknown, and all groups are flooded; so a switch that has just started, or has no querier, loses no
//! packet. A port that was attached since the last general query that was answered gets all groups, and so does one
//! whose reports found no room.
//!
//! Workers never wait for each other here: while another thread changes what is known, groups are flooded, and messages
//! are queued.

mod message;
mod state;
#[cfg(test)]
mod tests;

pub use message::{Packet, Query, Records, is_local};
pub use state::{MEMBERSHIPS, PORT_MEMBERSHIPS, PORT_ROUTERS, ROUTERS};

use crate::PortId;
use state::State;
use std::net::IpAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{
    Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, TryLockResult,
};

const SECOND: u64 = 1_000_000_000;
/// Attempts to lock, before what was heard is queued.
const TRIES: usize = 100;
/// Groups that are changed before others get at the table.
const STEP: usize = 64;
/// Most queries and groups of reports that are queued. Beyond, all groups are flooded until members have answered
/// another query.
const QUEUE: usize = 2048;

/// A group in a VLAN.
pub type Group = (u16, IpAddr);

/// What was heard at a port.
#[derive(Clone, Copy, Debug)]
enum Heard {
    Query(Query),
    /// A host joins a group, or leaves it.
    Record(IpAddr, bool),
}

/// Where something was heard, what, and when.
type Queued = ((u16, PortId), Heard, u64);

/// What is known of groups.
#[derive(Debug)]
pub struct Snooping {
    state: RwLock<State>,
    /// What was heard while others used the state.
    queue: Mutex<Vec<Queued>>,
    is_queued: AtomicBool,
    /// Only general queries from then on count: something was heard before that found no room in the queue.
    since: AtomicU64,
    /// Whether a port has one host, so that no other one is a member if that leaves.
    fast_leave: bool,
}

/// The ports that get a packet to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Every port.
    All,
    /// Those in a part of a list, in order.
    Ports(Range<usize>),
}

impl Scope {
    /// The ports of a list from `start` on, which are sorted now, each once.
    fn sorted(ports: &mut Vec<PortId>, start: usize) -> Scope {
        ports[start..].sort_unstable();
        let mut end = start;
        for at in start..ports.len() {
            if end == start || ports[at] != ports[end - 1] {
                ports[end] = ports[at];
                end += 1;
            }
        }
        ports.truncate(end);
        Scope::Ports(start..end)
    }

    /// Whether a port gets it.
    pub fn has(&self, ports: &[PortId], port: PortId) -> bool {
        match self {
            Scope::All => true,
            Scope::Ports(range) => {
                ports.get(range.clone()).is_some_and(|ports| ports.binary_search(&port).is_ok())
            }
        }
    }
}

/// A group, a port, and for how many more seconds it is a member.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Membership {
    /// The VLAN; 0: none.
    pub vlan: u16,
    /// The group; none of a router's port, which gets all groups.
    pub group: Option<IpAddr>,
    /// The port.
    pub port: PortId,
    /// Seconds.
    pub left: u64,
}

/// What is known, for the packets of one burst: none while another thread changes it.
#[derive(Debug)]
pub struct View<'s>(Option<RwLockReadGuard<'s, State>>, u64);

impl View<'_> {
    /// The ports that get a packet, which are added to `ports`.
    pub fn scope(&self, packet: &Packet, vlan: u16, now: u64, ports: &mut Vec<PortId>) -> Scope {
        match (&self.0, packet) {
            (Some(state), Packet::Data(group)) => state.of_data((vlan, *group), (self.1, now), ports),
            (Some(state), Packet::Report { is_v6 }) => state.of_report(vlan, *is_v6, now, ports),
            _ => Scope::All,
        }
    }
}

impl Snooping {
    /// Nothing is known yet.
    pub fn new(fast_leave: bool) -> Snooping {
        Snooping {
            state: RwLock::default(),
            queue: Mutex::new(Vec::with_capacity(QUEUE)),
            is_queued: AtomicBool::new(false),
            since: AtomicU64::new(0),
            fast_leave,
        }
    }

    /// What is known now.
    pub fn view(&self) -> View<'_> {
        if self.is_queued.load(Relaxed)
            && let Some(state) = self.try_write()
        {
            drop(state);
        }
        View(self.try_read(), self.since.load(Relaxed))
    }

    /// Learns what a message says that arrived at a port in a VLAN; returns the ports that get it, which are added to
    /// `ports`.
    pub fn learn(
        &self,
        (packet, records): (&Packet, &Records),
        at: (u16, PortId),
        now: u64,
        ports: &mut Vec<PortId>,
    ) -> Scope {
        match packet {
            Packet::Query(query) => {
                self.hear(at, &[Heard::Query(*query)], now);
                return Scope::All;
            }
            Packet::Report { is_v6 } => {
                let mut step = [Heard::Record(IpAddr::from([0; 4]), false); STEP];
                for chunk in records.chunks(STEP) {
                    let heard = step.iter_mut().zip(chunk);
                    heard.for_each(|(heard, (group, joins))| *heard = Heard::Record(*group, *joins));
                    self.hear(at, &step[..chunk.len()], now);
                }
                if let Some(state) = tried(|| self.try_read()) {
                    return state.of_report(at.0, *is_v6, now, ports);
                }
                // Hosts that hear it keep theirs back.
                self.lose(now);
            }
            Packet::Data(_) | Packet::Other => {}
        }
        Scope::All
    }

    /// Learns what was heard, or queues it.
    fn hear(&self, at: (u16, PortId), heard: &[Heard], now: u64) {
        if let Some(mut state) = tried(|| self.try_write()) {
            heard.iter().for_each(|heard| self.apply(&mut state, at, heard, now));
            return;
        }
        let queue = tried(|| self.try_queue());
        match queue.filter(|queue| queue.len() + heard.len() <= QUEUE) {
            Some(mut queue) => {
                queue.extend(heard.iter().map(|heard| (at, *heard, now)));
                self.is_queued.store(true, Relaxed);
            }
            None => self.lose(now),
        }
    }

    /// Something that was heard is not known.
    #[cold]
    fn lose(&self, now: u64) {
        self.since.fetch_max(now + 1, Relaxed);
    }

    fn apply(&self, state: &mut State, (vlan, port): (u16, PortId), heard: &Heard, now: u64) {
        match heard {
            Heard::Query(query) => state.query((vlan, port), query, now),
            Heard::Record(group, _) if is_local(*group) => {}
            Heard::Record(group, true) => state.join((vlan, *group), port, now),
            Heard::Record(group, false) if self.fast_leave => state.leave((vlan, *group), port),
            // The querier asks whether there are others.
            Heard::Record(..) => {}
        }
    }

    /// Makes a port get all groups until it has answered a general query: its peer may have memberships that are not
    /// known here, and not notice that it has to report them.
    pub fn attach_port(&self, port: PortId) {
        self.write().attach(port);
    }

    /// Removes what is known of a port, whose peer is gone, or is in other VLANs now. What it receives then is as after
    /// [`Snooping::attach_port`].
    pub fn forget_port(&self, port: PortId) {
        while !self.write().forget(port, STEP) {}
        self.attach_port(port);
    }

    /// Members and routers, in order.
    pub fn memberships(&self, now: u64) -> Vec<Membership> {
        let ports: Vec<PortId> = self.write().ports.keys().copied().collect();
        let mut all = Vec::new();
        for port in ports {
            let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
            state.memberships(port, now, &mut all);
        }
        all.sort();
        all
    }

    fn try_read(&self) -> Option<RwLockReadGuard<'_, State>> {
        unless_locked(self.state.try_read())
    }

    fn try_queue(&self) -> Option<MutexGuard<'_, Vec<Queued>>> {
        unless_locked(self.queue.try_lock())
    }

    /// The state, once it knows all that was heard, unless others use it.
    fn try_write(&self) -> Option<RwLockWriteGuard<'_, State>> {
        unless_locked(self.state.try_write()).map(|state| self.with_queue(state))
    }

    /// As [`Snooping::try_write`]; blocks, so no worker calls it.
    fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.with_queue(self.state.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn with_queue<'s>(&self, mut state: RwLockWriteGuard<'s, State>) -> RwLockWriteGuard<'s, State> {
        if self.is_queued.load(Relaxed)
            && let Some(mut queue) = self.try_queue()
        {
            self.is_queued.store(false, Relaxed);
            queue.drain(..).for_each(|(at, heard, now)| self.apply(&mut state, at, &heard, now));
        }
        state
    }
}

/// What a lock guards, unless another thread has it.
fn unless_locked<T>(attempt: TryLockResult<T>) -> Option<T> {
    match attempt {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// The first result of some attempts.
fn tried<T>(attempt: impl Fn() -> Option<T>) -> Option<T> {
    (0..TRIES).find_map(|_| {
        let found = attempt();
        if found.is_none() {
            std::hint::spin_loop();
        }
        found
    })
}
