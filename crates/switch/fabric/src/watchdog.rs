//! A thread that checks whether the workers make progress, and reports whose memory blocks one.

use crate::memory_access::Access;
use crate::worker::Gauges;
use ringway_host::{Clock, EventFd, HostError, ThreadFiles, wait_readable};
use ringway_switch::PortId;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Nanoseconds between two checks while no worker accesses memory of a peer.
const TICK: u64 = 100_000_000;
/// Nanoseconds between two checks otherwise.
const TICK_BUSY: u64 = 20_000_000;
/// Nanoseconds for which a worker was blocked at least when it is found blocked.
pub const BLOCKED: u64 = TICK_BUSY;

/// A worker that is watched.
struct Watched {
    name: String,
    gauges: Arc<Gauges>,
    files: Option<ThreadFiles>,
    /// The worker's turn and access at the last check.
    last: (u64, Access),
    /// Since when the worker is in that turn and access.
    since: u64,
    is_reported: bool,
}

#[derive(Default)]
struct State {
    workers: Vec<Watched>,
    /// Names of ports.
    ports: BTreeMap<PortId, String>,
    /// Signalled when a worker was found blocked.
    alarm: Option<Arc<EventFd>>,
    /// Called at each check.
    also: Option<Arc<dyn Fn() + Send + Sync>>,
}

/// The watchdog of a fabric's workers. Ends when it is dropped.
pub struct Watchdog {
    state: Arc<Mutex<State>>,
    end: Arc<EventFd>,
}

fn locked(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watchdog {
    /// Starts the watchdog, which watches no worker yet. `alarm` is signalled when it finds one blocked.
    pub fn start(alarm: Arc<EventFd>) -> Result<Watchdog, HostError> {
        let state = State { alarm: Some(alarm), ..State::default() };
        let (state, end) = (Arc::new(Mutex::new(state)), Arc::new(EventFd::new()?));
        let (watched, ended, clock) = (state.clone(), end.clone(), Clock::new());
        let run = move || {
            let mut tick = TICK;
            // An error ends the thread, too.
            while wait_readable(&[ended.as_fd()], Some(tick)).is_ok_and(|ready| !ready.contains(&true)) {
                tick = if locked(&watched).look(clock.now()) { TICK_BUSY } else { TICK };
                let also = locked(&watched).also.clone();
                also.inspect(|also| also());
            }
        };
        ringway_host::spawn("watchdog", None, run)?;
        Ok(Watchdog { state, end })
    }

    /// Makes the watchdog also call `look` at each check, ten times a second at least.
    pub fn at_each_look(&self, look: Arc<dyn Fn() + Send + Sync>) {
        locked(&self.state).also = Some(look);
    }

    /// Watches a worker, in place of an earlier one of that name.
    pub fn watch(&self, name: &str, gauges: &Arc<Gauges>) {
        let mut state = locked(&self.state);
        state.workers.retain(|worker| worker.name != name);
        state.workers.push(Watched::new(name, gauges));
    }

    /// Watches the successor of a worker's thread, which is watched until it ends.
    pub fn succeed(&self, name: &str, gauges: &Arc<Gauges>) {
        locked(&self.state).workers.push(Watched::new(name, gauges));
    }

    /// Sets the files from which a worker's thread times are read.
    pub fn see(&self, name: &str, files: ThreadFiles) {
        let mut state = locked(&self.state);
        if let Some(worker) = state.workers.iter_mut().rev().find(|worker| worker.name == name) {
            worker.files = Some(files);
        }
    }

    /// Sets the name of port `id`, or removes it.
    pub fn name(&self, id: PortId, name: Option<&str>) {
        let mut state = locked(&self.state);
        match name {
            Some(name) => _ = state.ports.insert(id, name.into()),
            None => _ = state.ports.remove(&id),
        }
    }

    /// Text for display: the port whose memory blocks a worker now, and for how long. Empty if none does.
    pub fn held(&self, gauges: &Gauges, now: u64) -> String {
        match gauges.held_since.load(Relaxed) {
            0 => String::new(),
            since => {
                let who = locked(&self.state).who(Access(gauges.stuck_access.load(Relaxed)));
                format!("held by {who} for {}", seconds(now.saturating_sub(since)))
            }
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.end.signal();
    }
}

fn seconds(nanoseconds: u64) -> String {
    format!("{}.{} s", nanoseconds / 1_000_000_000, nanoseconds / 100_000_000 % 10)
}

impl State {
    fn who(&self, access: Access) -> String {
        let name = |id: PortId| self.ports.get(&id).map_or("a port that is gone", |name| name);
        match (access.port(), access.source()) {
            (Some(to), Some(from)) => format!("a copy from port {} to port {}", name(from), name(to)),
            (Some(port), None) => format!("the memory of port {}", name(port)),
            (None, _) => "nobody".into(),
        }
    }

    /// Looks at every worker; returns whether any accesses memory of a peer.
    fn look(&mut self, now: u64) -> bool {
        let mut workers = std::mem::take(&mut self.workers);
        let mut is_blocked = false;
        workers.iter_mut().for_each(|worker| is_blocked |= worker.look(now, |access| self.who(access)));
        let is_superseded = |worker: &Watched| worker.gauges.is_superseded.load(Relaxed);
        workers.retain(|worker| !(is_superseded(worker) && worker.gauges.has_ended.load(Relaxed)));
        if is_blocked {
            self.alarm.iter().for_each(|alarm| alarm.signal());
        }
        self.workers = workers;
        self.workers.iter().any(|worker| worker.last.1 != Access::NONE)
    }
}

impl Watched {
    fn new(name: &str, gauges: &Arc<Gauges>) -> Watched {
        let last = (0, Access::NONE);
        let (name, gauges) = (name.to_string(), gauges.clone());
        Watched { name, gauges, files: None, last, since: 0, is_reported: false }
    }

    /// Looks at the worker; returns whether it was found blocked.
    fn look(&mut self, now: u64, who: impl Fn(Access) -> String) -> bool {
        let gauges = &self.gauges;
        let seen = (gauges.turns.load(Relaxed), Access(gauges.access.load(Relaxed)));
        if seen != self.last || seen.1 == Access::NONE {
            if std::mem::take(&mut self.is_reported) {
                let (who, time) = (who(self.last.1), seconds(now.saturating_sub(self.since)));
                gauges.held_since.store(0, Relaxed);
                gauges.is_blocked.store(false, Relaxed);
                tracing::warn!(worker = self.name, "goes on; it was held by {who} for {time}");
            }
            (self.last, self.since) = (seen, now);
            return false;
        }
        // A worker that waits for a processor is not blocked by a peer.
        let is_blocked = self.files.as_ref().and_then(ThreadFiles::is_blocked).unwrap_or(false);
        let is_found = is_blocked && !self.is_reported;
        if is_found {
            gauges.stuck_access.store(seen.1.0, Relaxed);
            gauges.stuck_turn.store(seen.0, Relaxed);
            gauges.held_since.store(self.since.max(1), Relaxed);
            self.is_reported = true;
            gauges.is_blocked.store(!gauges.is_superseded.load(Relaxed), Relaxed);
            tracing::warn!(worker = self.name, "held by {}", who(seen.1));
        }
        is_found
    }
}
