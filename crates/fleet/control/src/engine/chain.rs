//! Chains while they run: what a change waits for.

use super::{Engine, EngineError, Envelope, Message};
use crate::change::Join;
use crate::functions::{FunctionError, Late, Phase};
use ringway_fabric::proto::{Reply, Request};
use ringway_spec::{Function, Isolation, Port, To};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long the frames of a chain's ports wait until the frames in the chain have left it. A function that has frames
/// for longer, such as a shaper, may then send them in another order, or past a function.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(100);
/// Time between two checks of a chain that is not empty.
const POLL_INTERVAL: Duration = Duration::from_micros(200);
/// How long a chain must be empty, at every check: a frame may leave one port unseen while another one is checked, and
/// frames that a process has taken off its ring are not seen before it passes them on.
const QUIET_TIME: Duration = Duration::from_millis(2);
/// The subject of requests to `data` in messages.
const SUBJECT: &str = "joining ports";

impl Engine {
    /// Joins ports to others: once new functions run, and once the frames in the chains that change have passed, so
    /// that each frame passes the functions of either the former or the new chain, in order. Meanwhile frames wait
    /// where they come from.
    pub(super) async fn join(&mut self, join: &Join) -> Result<(), EngineError> {
        self.await_functions(&join.awaited).await?;
        // Whether they wait for first frames is looked at again.
        self.held_ports.retain(|port| !join.held.contains(port));
        self.joining_ports = join.held.iter().cloned().collect();
        let joined = self.hold_and_join(join).await;
        self.joining_ports.clear();
        joined
    }

    async fn hold_and_join(&mut self, join: &Join) -> Result<(), EngineError> {
        let hold = |ports, held| Request::Hold { ports, held, watched: false };
        if !join.held.is_empty() {
            self.call(SUBJECT, hold(join.held.clone(), true)).await?;
        }
        let joined = self.drain_and_join(join).await;
        if joined.is_err() && !join.held.is_empty() {
            let late = self.late_ports();
            let ports = join.held.iter().filter(|port| !self.is_for(&late, port, &[])).cloned().collect();
            // The error to report is the first one.
            let _ = self.call(SUBJECT, hold(ports, false)).await;
        }
        joined
    }

    async fn drain_and_join(&mut self, join: &Join) -> Result<(), EngineError> {
        self.drain(&join.drained).await?;
        // Frames for functions that start with them wait, or wait on.
        let late = self.late_ports();
        let goes = |port: &&String| !self.is_for(&late, port, &join.ports);
        let released = join.held.iter().filter(goes).cloned().collect();
        let waits = join.ports.iter().filter(|(port, next)| late.contains(next) && !join.held.contains(port));
        let waits: Vec<String> = waits.map(|(port, _)| port.clone()).collect();
        if !waits.is_empty() {
            let request = Request::Hold { ports: waits.clone(), held: true, watched: true };
            self.call(SUBJECT, request).await?;
            self.held_ports.extend(waits);
        }
        self.call(SUBJECT, Request::Join { ports: join.ports.clone(), held: released }).await.map(drop)
    }

    /// Waits until no frames are in the functions of a chain that have these ports.
    async fn drain(&mut self, ports: &[String]) -> Result<(), EngineError> {
        let last = Instant::now() + self.fabric.start_limit;
        let (mut end, mut since) = (Instant::now() + DRAIN_TIMEOUT, None::<Instant>);
        while !ports.is_empty() && Instant::now() < end {
            let reply = self.call(SUBJECT, Request::Quiet { ports: ports.into() }).await?;
            let now = Instant::now();
            since = (reply == Reply::Quiet(true)).then(|| since.unwrap_or(now));
            if since.is_some_and(|since| now.duration_since(since) >= QUIET_TIME) {
                break;
            }
            // Frames in the chain may start its next function.
            self.step(POLL_INTERVAL).await;
            if now.elapsed() >= QUIET_TIME {
                // The step took so long that frames may have passed since the chain was found quiet.
                since = None;
            }
            if self.starts(ports) {
                end = last.min(Instant::now() + DRAIN_TIMEOUT);
            }
        }
        Ok(())
    }

    /// Whether the frames of a port go to one of the `late` ports, once these ports are joined to others.
    fn is_for(&self, late: &BTreeSet<String>, port: &str, joined: &[(String, String)]) -> bool {
        let new = joined.iter().find(|(own, _)| own == port).map(|(_, next)| next);
        new.or_else(|| self.partner(port)).is_some_and(|to| late.contains(to))
    }

    /// Whether a function with one of these ports starts, for a frame.
    fn starts(&self, ports: &[String]) -> bool {
        let its = |function: &&Function| {
            function.first_frame && function.fabric_ports().iter().any(|port| ports.contains(port))
        };
        let mut functions = self.fabric.functions.iter().filter(its);
        functions.any(|function| self.functions.phase(&function.name) == Phase::Starting)
    }

    /// The port that a port of a patch is joined to.
    pub(super) fn partner(&self, port: &str) -> Option<&String> {
        match &self.fabric.port(port)?.to {
            Some(To::Patch(partner)) => Some(partner),
            _ => None,
        }
    }

    /// The ports of functions for which frames wait.
    fn late_ports(&self) -> BTreeSet<String> {
        self.fabric
            .functions
            .iter()
            .filter(|one| self.is_late(one))
            .flat_map(Function::fabric_ports)
            .chain(self.announced_ports.iter().cloned())
            .collect()
    }

    /// Makes the frames of ports wait that go to functions which start with them and do not run yet, and lets those of
    /// others go on.
    pub(super) fn hold_first_frames(&mut self) {
        let is_needed = !self.announced_ports.is_empty()
            || self.fabric.functions.iter().any(|function| function.first_frame);
        if self.data.is_none() || !is_needed && self.held_ports.is_empty() {
            return;
        }
        let late = self.late_ports();
        let waits = |port: &&Port| match &port.to {
            Some(To::Patch(partner)) => late.contains(partner) && !self.joining_ports.contains(&port.name),
            _ => false,
        };
        let held: BTreeSet<String> =
            self.fabric.ports.iter().filter(waits).map(|port| port.name.clone()).collect();
        let differ = |one: &BTreeSet<String>, other| one.difference(other).cloned().collect::<Vec<_>>();
        for (ports, is_held) in
            [(differ(&held, &self.held_ports), true), (differ(&self.held_ports, &held), false)]
        {
            if !ports.is_empty() {
                let request = Request::Hold { ports, held: is_held, watched: is_held };
                // `data` was restarted if it fails, and nothing is held then.
                self.post(request, Vec::new(), drop);
            }
        }
        self.held_ports = held;
    }

    /// Whether frames wait for a function.
    fn is_late(&self, function: &Function) -> bool {
        let has_peer = |port: &String| self.running_ports.get(port).is_some_and(|live| live.attached);
        let in_data = function.isolation == Isolation::Worker;
        let is_up =
            |one: &Function| one.name != function.name && self.functions.phase(&one.name) == Phase::Up;
        function.first_frame
            // Other instances pass frames on while this one is restarted.
            && !self.fabric.members(&function.name).any(is_up)
            && match self.functions.is_late(&function.name) {
                Late::Yes => true,
                Late::No => false,
                Late::Runs => !in_data && !function.fabric_ports().iter().all(has_peer),
            }
    }

    /// A frame waits at a held port: the function that it goes to starts.
    pub(super) fn wanted(&mut self, port: &str) {
        let Some(to) = self.partner(port).cloned() else { return };
        let mut functions = self.fabric.functions.iter();
        if let Some(function) = functions.find(|one| one.first_frame && one.fabric_ports().contains(&to)) {
            self.functions.wanted(&function.name);
        }
    }

    /// Waits until these functions run. While the fabric comes up, nothing is waited for.
    pub(super) async fn await_functions(&mut self, names: &[String]) -> Result<(), EngineError> {
        let limit = self.fabric.start_limit;
        let mut end = Instant::now() + limit;
        for name in names {
            while self.messages.is_some() && !self.functions.is_up(name)? {
                if self.functions.is_queued(name) {
                    // Its start has not begun.
                    end = Instant::now() + limit;
                }
                let rest = end.saturating_duration_since(Instant::now());
                if rest.is_zero() {
                    let why = format!("it needs more than {} s", limit.as_secs_f64());
                    return Err(FunctionError::Unready(name.clone(), why).into());
                }
                self.step(rest).await;
            }
        }
        Ok(())
    }

    /// Handles the next message that is not an order, or waits for one; orders, and looks at which functions may go
    /// away, wait until the change is done.
    async fn step(&mut self, time: Duration) {
        let is_order = |envelope: &Envelope| {
            use Message::{CheckIdle, CheckInstances, Down, EngineRequest};
            matches!(envelope.message(), EngineRequest(_) | Down | CheckIdle | CheckInstances)
        };
        let waiting = self.backlog.iter().position(|envelope| !is_order(envelope));
        let envelope = match waiting.and_then(|at| self.backlog.remove(at)) {
            Some(envelope) => envelope,
            None => {
                let Some(messages) = &mut self.messages else { return };
                match tokio::time::timeout(time, messages.recv()).await {
                    Ok(Some(envelope)) => envelope,
                    Ok(None) => return self.messages = None,
                    Err(_) => return,
                }
            }
        };
        match is_order(&envelope) {
            true => self.query(envelope).await,
            false => self.handle_message(envelope.into_message()).await,
        }
        // A function may have come up, begun to wait for a frame, or stayed where it was to go away.
        self.hold_first_frames();
        // An instance may have begun, or ended.
        self.assign_instances();
        self.schedule_idle_check();
    }
}
