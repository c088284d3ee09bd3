//! The side of a migration that leads it: where the guest runs. Its thread blocks.

use super::check;
use super::limit::Limit;
use super::remote::{MemoryStream, Remote, RemoteError};
use super::ssh::Ssh;
use super::{
    ASKING, Activation, ArrivalView, GuestArrival, MigrationEnd, MigrationError, MovingPort, Progress,
};
use crate::engine::{Answer, EngineRequest, Inbox, MigrationRequest};
use crate::events::EventKind;
use ringway_linux_guests::{Facts, Guest, Monitor, steady_now};
use serde_json::{Value, json};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// QEMU's name of the descriptor for a guest's memory.
pub const WAY: &str = "ringway-way";
/// The permitted pause of the guest in milliseconds: QEMU stops it once what is left can be sent in this time.
const DOWNTIME_MS: u64 = 300;
/// Bytes of memory in a second, if there is no limit: more than any connection takes.
const UNLIMITED: u64 = 1 << 40;
/// How often QEMU is asked how far it is. The guest stands still for as long at the switch-over.
const POLL: Duration = Duration::from_millis(4);
/// How long the other fabric may take to prepare, to load the rest of the guest and activate it, and to answer.
const PREPARE: Duration = Duration::from_secs(90);
const ACTIVATE: Duration = Duration::from_secs(90);
const ANSWER: Duration = Duration::from_secs(10);
/// How often it is looked whether the connection to another host was silent, and how long that may take to answer.
const KEEP: Duration = Duration::from_secs(2);
/// How long the rest of the memory may take, while the guest stands still.
const STOPPING: Duration = Duration::from_secs(30);
/// How long the source's QEMU may take to let its guest go on.
const RECOVER: Duration = Duration::from_secs(30);
/// How long it takes at first, and at most, until the other fabric is asked again whether it has activated the guest.
const ASK_AGAIN: Duration = Duration::from_secs(1);
const SELDOM: Duration = Duration::from_secs(30);
/// How long a guest that is to go on here, and whose QEMU does not do so, is told again.
const STUCK: Duration = Duration::from_secs(600);

/// A guest that is migrated.
#[derive(Debug)]
pub struct Departing {
    /// The guest.
    pub guest: Arc<Guest>,
    /// Its ports.
    pub ports: Vec<MovingPort>,
    /// How far it is.
    pub progress: Arc<Progress>,
    /// The attempt.
    pub ticket: String,
    /// Most bytes a second while the guest runs.
    pub bandwidth: Option<u64>,
}

/// What became of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It runs there.
    Gone,
    /// It runs here.
    Stays,
}

/// What the other fabric says about a guest that it was asked to activate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    /// It has activated it.
    Active,
    /// It is about to, or finds out that it can't.
    Begun,
    /// It has not, and never will.
    Never,
}

/// The leader of a migration.
pub struct Source {
    departing: Departing,
    there: Arc<Remote>,
    inbox: Inbox,
    engine: Handle,
}

impl Source {
    /// A leader for a guest, which has not begun. Called by a task of the engine's runtime.
    pub fn new(departing: Departing, there: Remote, inbox: Inbox) -> Source {
        Source { departing, there: Arc::new(there), inbox, engine: Handle::current() }
    }

    fn name(&self) -> &str {
        &self.departing.guest.spec().name
    }

    fn path(&self, what: &str) -> String {
        format!("/v1/guest-arrivals/{}/{}{what}", self.name(), self.departing.ticket)
    }

    /// Lets the other fabric check and prepare the guest. Nothing has changed here if it fails.
    pub fn prepare(&self) -> Result<ArrivalView, MigrationError> {
        let Departing { guest, ports, ticket, .. } = &self.departing;
        if let Some(why) = ports.iter().find_map(check::stays) {
            return Err(MigrationError::Ended(why));
        }
        let mut monitor = guest.monitor()?;
        let status = monitor.status()?;
        if status != "running" {
            return Err(MigrationError::State(status));
        }
        let folder = guest.console().parent().map(PathBuf::from).unwrap_or_default();
        let facts = Facts::read(&folder).map_err(MigrationError::Facts)?;
        let arrival = GuestArrival {
            name: self.name().into(),
            ticket: ticket.clone(),
            machine: monitor.machine()?,
            qemu: facts.qemu,
            accelerator: facts.accelerator,
            processor: facts.processor,
            memory: facts.memory,
            processors: facts.processors,
            kernel: facts.kernel,
            initrd: facts.initrd,
            command_line: facts.command_line,
            macs: facts.macs,
            ports: ports.clone(),
        };
        let body = serde_json::to_value(&arrival).unwrap_or_default();
        let progress = &self.departing.progress;
        let limit = Limit::or_cancelled(PREPARE, progress);
        let prepared = self.there.ask_first(("POST", "/v1/guest-arrivals"), &body, limit);
        let prepared = prepared.map_err(|error: RemoteError| match progress.is_cancelled() {
            true => MigrationError::Cancelled,
            false => error.into(),
        })?;
        // The other fabric has read them. Without the engine, the fabric is going down.
        let macs = arrival.macs.iter().filter_map(|mac| mac.parse().ok()).collect();
        let _ = self.tell(|name, _, answer| MigrationRequest::Leaving(name, macs, answer));
        Ok(prepared)
    }

    /// Migrates a guest that the other fabric has prepared, and records the outcome.
    pub fn run(self, arrival: &ArrivalView) {
        let mut carrier = None;
        let keeps = self.keep();
        let copied = self.copy(arrival, &mut carrier);
        drop(keeps);
        let outcome = match copied {
            Ok(stopped) => self.activate(stopped),
            Err(error) => {
                self.give_up(&error);
                Outcome::Stays
            }
        };
        // Only now: it may have memory that is on its way.
        drop(carrier);
        self.end(outcome);
    }

    /// Ends a migration that could not be prepared.
    pub fn abandon(self, error: &MigrationError) {
        self.departing.progress.fail(error);
        // It may have prepared it, and its answer was lost.
        if self.there.was_reached() {
            let _ = self.there.ask::<Value>(("DELETE", &self.path("")), &Value::Null, ANSWER);
        }
        self.end(Outcome::Stays);
    }

    /// Ends a migration that a former process led, which may have asked the other fabric to activate the guest.
    pub fn resolve(self, error: &MigrationError, asked: bool) {
        let outcome = if asked {
            self.settle(error)
        } else {
            self.give_up(error);
            Outcome::Stays
        };
        self.end(outcome);
    }

    /// Keeps the connection for requests to another host, by a thread of its own, until what this returns is dropped:
    /// the leader looks after a guest that may stand still, and waits for no other host meanwhile.
    fn keep(&self) -> mpsc::Sender<()> {
        let (keeps, ended) = mpsc::channel();
        let (there, path) = (self.there.clone(), self.path(""));
        if !there.is_here() {
            // It may wait for an answer for a moment after the end; nobody waits for it.
            std::thread::spawn(move || {
                while ended.recv_timeout(KEEP) == Err(mpsc::RecvTimeoutError::Timeout) {
                    there.keep(&path, KEEP);
                }
            });
        }
        keeps
    }

    fn end(&self, outcome: Outcome) {
        // Without the engine, the fabric is going down.
        let _ = self.tell(|name, ticket, answer| MigrationRequest::Departed(name, ticket, outcome, answer));
    }

    /// Tells the engine something about the guest and its ticket; returns the answer, if it was done.
    fn tell<T>(&self, what: impl FnOnce(String, String, Answer<T>) -> MigrationRequest) -> Option<T> {
        let (name, ticket) = (self.name().to_string(), self.departing.ticket.clone());
        let ask = |answer| EngineRequest::Migration(what(name, ticket, answer));
        self.engine.block_on(self.inbox.ask(ask)).ok()
    }

    /// Copies the guest's memory, and stops the guest; returns when, if that is known. `carrier` is what brings the
    /// memory to another host.
    fn copy(&self, arrival: &ArrivalView, carrier: &mut Option<Ssh>) -> Result<Option<u64>, MigrationError> {
        let Departing { guest, progress, bandwidth, .. } = &self.departing;
        let mut monitor = guest.monitor()?;
        let way = self.there.memory(arrival, progress).map_err(|error| match progress.is_cancelled() {
            true => MigrationError::Cancelled,
            false => MigrationError::Way(error),
        })?;
        let MemoryStream { descriptor, carrier: by } = way;
        *carrier = by;
        monitor.give(WAY, descriptor.as_fd())?;
        drop(descriptor);
        let on = |name: &str| json!({ "capability": name, "state": true });
        let capabilities = [on("pause-before-switchover"), on("auto-converge")];
        monitor.ask("migrate-set-capabilities", &json!({ "capabilities": capabilities }))?;
        let pace = json!({
            "max-bandwidth": bandwidth.unwrap_or(UNLIMITED),
            "downtime-limit": DOWNTIME_MS,
        });
        monitor.ask("migrate-set-parameters", &pace)?;
        progress.enter("copying");
        monitor.ask("migrate", &json!({ "uri": format!("fd:{WAY}") }))?;
        self.until(&mut monitor, "pre-switchover")?;
        // From here on the guest stands still, until it goes on here or there.
        progress.enter("stopping");
        if progress.is_cancelled() {
            return Err(MigrationError::Cancelled);
        }
        // What is left is sent as fast as possible.
        monitor.ask("migrate-set-parameters", &json!({ "max-bandwidth": UNLIMITED }))?;
        monitor.ask("migrate-continue", &json!({ "state": "pre-switchover" }))?;
        self.until(&mut monitor, "completed")?;
        Ok(monitor.stopped())
    }

    /// Waits until QEMU's migration has this status.
    fn until(&self, monitor: &mut Monitor, wanted: &str) -> Result<(), MigrationError> {
        let progress = &self.departing.progress;
        let end = Instant::now() + STOPPING;
        loop {
            let state = monitor.ask("query-migrate", &json!({}))?;
            {
                let mut view = progress.lock();
                let ram = &state["ram"];
                let number = |value: &Value, before: u64| value.as_u64().unwrap_or(before);
                view.transferred = number(&ram["transferred"], view.transferred);
                view.remaining = number(&ram["remaining"], view.remaining);
                view.total = number(&ram["total"], view.total);
                view.rounds = number(&ram["dirty-sync-count"], view.rounds);
                view.downtime = number(&state["downtime"], view.downtime);
            }
            match state["status"].as_str().unwrap_or_default() {
                status if status == wanted => return Ok(()),
                status @ ("failed" | "cancelled" | "completed") => {
                    let why = state["error-desc"].as_str().unwrap_or("the other QEMU is gone, or refuses it");
                    return Err(MigrationError::Ended(format!("{status}: {why}")));
                }
                // Also while the rest is sent: the other fabric was not asked to activate it.
                _ if progress.is_cancelled() => return Err(MigrationError::Cancelled),
                _ if wanted == "completed" && Instant::now() >= end => {
                    return Err(MigrationError::Ended("the rest of its memory takes too long".into()));
                }
                _ => std::thread::sleep(POLL),
            }
        }
    }

    /// Asks the other fabric, once, to let the guest go on there.
    fn activate(&self, stopped: Option<u64>) -> Outcome {
        self.departing.progress.enter("activating");
        let path = self.path("/activate");
        let fabric = self.there.expected().cloned();
        let asking = |name, ticket, answer| MigrationRequest::Asking(name, ticket, fabric, stopped, answer);
        let Some(got) = self.tell(asking) else {
            // No successor would know that it may run there.
            self.give_up(&MigrationError::Down);
            return Outcome::Stays;
        };
        // Not between the clock and the request.
        self.there.connect(ANSWER);
        // The other host's clock is another one.
        let (stopped, stopped_ago) = match self.there.is_here() {
            true => (stopped, None),
            false => (None, stopped.map(|stopped| steady_now().saturating_sub(stopped))),
        };
        let (known, delivered) = got.map_or((None, Vec::new()), |got| (Some(got.known), got.frames));
        let activation = Activation { stopped, stopped_ago, known, delivered };
        let body = serde_json::to_value(activation).unwrap_or_default();
        match self.there.ask::<Value>(("POST", &path), &body, ACTIVATE) {
            Ok(_) => {
                self.departing.progress.enter("done");
                Outcome::Gone
            }
            Err(error) => self.settle(&error.into()),
        }
    }

    /// Finds out whether the other fabric has activated the guest, and lets it go on here if it has not and never will.
    /// It stands still for as long as that is not known, and no operator decides.
    fn settle(&self, error: &MigrationError) -> Outcome {
        let Departing { guest, progress, .. } = &self.departing;
        progress.enter(ASKING);
        let mut pause = ASK_AGAIN;
        loop {
            // Before it is asked, so that it is asked once more.
            let decision = progress.decision();
            match self.activated() {
                Ok(Activity::Active) => {
                    progress.enter("done");
                    return Outcome::Gone;
                }
                Ok(Activity::Never) => {
                    self.give_up(error);
                    return Outcome::Stays;
                }
                Ok(Activity::Begun) => {
                    // Its answer counts, and will soon be another one.
                    if progress.forget_decision() {
                        tracing::warn!(guest = self.name(), "it is being activated: no decision counts");
                    }
                    std::thread::sleep(ASK_AGAIN);
                    continue;
                }
                Err(unknown) => tracing::warn!(guest = self.name(), %unknown, "whether it runs there"),
            }
            if let Some(end) = decision {
                return self.resolved(end);
            }
            let until = Instant::now() + pause;
            while Instant::now() < until && progress.decision().is_none() {
                if guest.ended().is_some() {
                    progress.fail(error);
                    return Outcome::Stays;
                }
                std::thread::sleep(ASK_AGAIN.min(pause));
            }
            pause = (pause * 2).min(SELDOM);
        }
    }

    /// Does what an operator has decided about a guest of which nobody can say where it runs.
    fn resolved(&self, end: MigrationEnd) -> Outcome {
        let progress = &self.departing.progress;
        let there = self.there.name();
        let text = format!(
            "an operator decided that it runs at the {}; the fabric of {there} does not say where it runs",
            end.name()
        );
        tracing::warn!(guest = self.name(), text, "migration");
        self.inbox.event_log().note(EventKind::GuestResolved, self.name(), &text);
        progress.resolved(end);
        match end {
            MigrationEnd::Source => {
                // A successor of this process lets it go on too. Without the engine, the fabric is going down.
                let _ = self.tell(MigrationRequest::Staying);
                self.give_up(&MigrationError::Resolved);
                Outcome::Stays
            }
            MigrationEnd::Destination => {
                progress.enter("done");
                Outcome::Gone
            }
        }
    }

    /// Whether the other fabric has activated the guest.
    fn activated(&self) -> Result<Activity, RemoteError> {
        match self.there.ask::<Value>(("DELETE", &self.path("")), &Value::Null, ANSWER) {
            // It had the ticket.
            Ok(_) => Ok(Activity::Never),
            // It prepared the guest, and does not have it any more. Of an attempt that an older version made, it is not
            // known which fabric did: this may be another one.
            Err(error) if error.is_unknown() && self.there.expected().is_some() => Ok(Activity::Never),
            Err(error) if error.is_unknown() => Err(error),
            // It is being activated, or was.
            Err(error) if error.is_refusal() => {
                let view: ArrivalView = self.there.ask(("GET", &self.path("")), &Value::Null, ANSWER)?;
                match &*view.state {
                    "active" => Ok(Activity::Active),
                    "activating" => Ok(Activity::Begun),
                    _ => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Lets the guest go on here. The other fabric has not been asked to activate it, or never will.
    fn give_up(&self, error: &MigrationError) {
        let end = Instant::now() + STUCK;
        let mut pause = POLL;
        while let Err(why) = self.go_on() {
            let guest = &self.departing.guest;
            if guest.ended().is_some() || Instant::now() >= end {
                tracing::error!(guest = self.name(), %why, "it does not go on");
                break;
            }
            tracing::warn!(guest = self.name(), %why, "it does not go on; it is told again");
            std::thread::sleep(pause);
            pause = (pause * 2).min(SELDOM);
        }
        // If it does not answer now, it gives the guest up by itself.
        let limit = Limit::from(ANSWER);
        let view = self.there.ask::<ArrivalView>(("GET", &self.path("")), &Value::Null, limit);
        let _ = self.there.ask::<Value>(("DELETE", &self.path("")), &Value::Null, limit);
        match (error, view) {
            // The cause may be there, and be seen here as a broken connection.
            (MigrationError::Ended(what), Ok(view)) if !view.reason.is_empty() => {
                let both = format!("{what}; there: {}", view.reason);
                self.departing.progress.fail(&MigrationError::Ended(both));
            }
            _ => self.departing.progress.fail(error),
        }
    }

    fn go_on(&self) -> Result<(), MigrationError> {
        let mut monitor = self.departing.guest.monitor()?;
        let end = Instant::now() + RECOVER;
        loop {
            let state = monitor.ask("query-migrate", &json!({}))?;
            match state["status"].as_str().unwrap_or_default() {
                "" | "none" | "completed" | "failed" | "cancelled" => break,
                status if Instant::now() >= end => return Err(MigrationError::State(status.into())),
                "cancelling" => {}
                // Refused if it has just ended.
                _ => _ = monitor.ask("migrate_cancel", &json!({})),
            }
            std::thread::sleep(POLL);
        }
        while monitor.status()? != "running" {
            if Instant::now() >= end {
                return Err(MigrationError::State(monitor.status()?));
            }
            monitor.ask("cont", &json!({}))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
