//! The side of a migration where the guest arrives.

use super::source::WAY;
use super::{Activation, ArrivalView, MigrationError};
use crate::engine::{EngineRequest, Inbox, MigrationRequest};
use ringway_fabric::proto::DeliveredFrames;
use ringway_host::wait_readable;
use ringway_linux_guests::{Guest, steady_now};
use serde_json::json;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};

/// How long its QEMU may take until it answers.
const START: Duration = Duration::from_secs(60);
/// How long the source may take to connect.
const CONNECT: Duration = Duration::from_secs(60);
/// How long a loaded guest waits to be activated, before it is given up. The source finds out when it asks.
const DECIDE: Duration = Duration::from_secs(120);
/// How long the rest of a guest may take to be loaded after the source has sent it.
const LOAD: Duration = Duration::from_secs(60);
/// First, longest and added milliseconds between announcements of a guest's place, and their number: QEMU's own ones.
const ANNOUNCE: [u32; 4] = [50, 550, 100, 5];
/// How often QEMU is asked how far it is.
const POLL: Duration = Duration::from_millis(4);

/// Told the guest once its QEMU runs, or why it does not.
pub type Starter = oneshot::Sender<Result<Arc<Guest>, String>>;

/// How far a guest that arrives is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Stage {
    /// Its memory comes.
    Receiving,
    /// All of it is here, and the guest stands still.
    Loaded,
    /// It is told to go on.
    Activating,
    /// It runs here.
    Active,
    /// It was given up, for this reason.
    Failed(String),
}

/// A guest that arrives.
#[derive(Debug)]
pub struct Arriving {
    /// Its name.
    pub name: String,
    /// The attempt.
    pub ticket: String,
    stage: Mutex<Stage>,
    changed: Condvar,
    /// Told the guest once its QEMU runs, or why it does not.
    started: Mutex<Option<Starter>>,
    /// When it stopped, in nanoseconds of CLOCK_MONOTONIC; 0 if that is not known.
    stopped: AtomicU64,
    /// What it had got where it was.
    delivered: OnceLock<DeliveredFrames>,
    /// The socket for its memory, once there is one.
    stream: OnceLock<PathBuf>,
    /// Whether its QEMU is being ended, and whether it has ended.
    ends: AtomicBool,
    ended: watch::Sender<bool>,
}

impl Arriving {
    /// A guest that is to arrive; `started` is told once its QEMU runs.
    pub fn new(name: &str, ticket: &str, started: Starter) -> Arriving {
        Arriving {
            name: name.into(),
            ticket: ticket.into(),
            stage: Mutex::new(Stage::Receiving),
            changed: Condvar::new(),
            started: Mutex::new(Some(started)),
            stopped: AtomicU64::new(0),
            delivered: OnceLock::new(),
            stream: OnceLock::new(),
            ends: AtomicBool::new(false),
            ended: watch::Sender::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Moves on from a stage in `from`; returns the stage it is in otherwise.
    fn enter(&self, from: &[Stage], to: Stage) -> Result<(), Stage> {
        let mut stage = self.lock();
        if !from.contains(&stage) {
            return Err(stage.clone());
        }
        *stage = to;
        self.changed.notify_all();
        Ok(())
    }

    /// Nanoseconds since it stopped at the source; 0 if that is not known: nothing that came before is delivered. Its
    /// rings were given back a little earlier, so that no frame that is younger has reached it there.
    pub fn stopped_ago(&self) -> u64 {
        match self.stopped.load(Ordering::Acquire) {
            0 => 0,
            at => steady_now().saturating_sub(at),
        }
    }

    /// What it had got where it was, if that is known.
    pub fn delivered(&self) -> Option<DeliveredFrames> {
        self.delivered.get().cloned()
    }

    /// Its QEMU runs, or could not be started.
    pub fn started(&self, result: Result<Arc<Guest>, String>) {
        if let Err(why) = &result {
            let _ = self.enter(&[Stage::Receiving], Stage::Failed(why.clone()));
        }
        let sender = self.started.lock().unwrap_or_else(PoisonError::into_inner).take();
        // Who asked may be gone.
        sender.map(|sender| sender.send(result));
    }

    /// Gives it up, unless it is active or about to be.
    ///
    /// # Errors
    /// It is.
    pub fn give_up(&self, why: &str) -> Result<(), String> {
        let from = [Stage::Receiving, Stage::Loaded];
        match self.enter(&from, Stage::Failed(why.into())) {
            Ok(()) | Err(Stage::Failed(_)) => Ok(()),
            Err(_) => Err(format!("guest {} was activated here, or is about to be", self.name)),
        }
    }

    /// Says that its QEMU is being ended from now on; `false` if it is already.
    pub fn begin_to_end(&self) -> bool {
        !self.ends.swap(true, Ordering::AcqRel)
    }

    /// Its QEMU has ended.
    pub fn set_ended(&self) {
        self.ended.send_replace(true);
    }

    /// Waits until its QEMU has ended, which was given up.
    pub async fn until_ended(&self) {
        // It has the sender itself.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    /// How far it is.
    pub fn view(&self) -> ArrivalView {
        let (state, reason) = match &*self.lock() {
            Stage::Receiving => ("receiving", String::new()),
            Stage::Loaded => ("loaded", String::new()),
            Stage::Activating => ("activating", String::new()),
            Stage::Active => ("active", String::new()),
            Stage::Failed(why) => ("failed", why.clone()),
        };
        let stream = self.stream.get().map_or(String::new(), |path| path.display().to_string());
        ArrivalView {
            guest: self.name.clone(),
            ticket: self.ticket.clone(),
            state: state.into(),
            stream,
            reason,
        }
    }

    /// Waits until all of it is here.
    fn loaded(&self) -> Result<(), String> {
        let end = Instant::now() + LOAD;
        let mut stage = self.lock();
        loop {
            match &*stage {
                Stage::Loaded => return Ok(()),
                Stage::Receiving => {}
                Stage::Failed(why) => return Err(why.clone()),
                Stage::Activating | Stage::Active => return Err("it was activated already".into()),
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err("the rest of its memory does not come".into());
            }
            stage = self.changed.wait_timeout(stage, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until it is decided whether the loaded guest goes on; gives it up if that takes too long.
    fn decided(&self) {
        let end = Instant::now() + DECIDE;
        let mut stage = self.lock();
        while *stage == Stage::Loaded {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                *stage = Stage::Failed("the source did not ask to activate it".into());
                return;
            }
            stage = self.changed.wait_timeout(stage, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Waits until the QEMU of a guest that arrives answers. Blocks.
///
/// # Errors
/// It has ended, or does not answer.
pub fn ready(guest: &Guest) -> Result<(), String> {
    let end = Instant::now() + START;
    loop {
        let error = match guest.monitor() {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
        if let Some(why) = guest.reason() {
            return Err(format!("its QEMU ended: {why}"));
        }
        if Instant::now() >= end {
            return Err(error.to_string());
        }
        std::thread::sleep(POLL);
    }
}

/// Receives the memory of a guest whose QEMU waits for it, through a socket in `folder`. It goes on by a thread. Called
/// by a task of the engine's runtime.
///
/// # Errors
/// The socket can't be made.
pub fn receive(guest: Arc<Guest>, arriving: Arc<Arriving>, folder: &Path, inbox: Inbox) -> io::Result<()> {
    let path = folder.join("arrival.sock");
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
    // There is one attempt to receive it.
    let _ = arriving.stream.set(path.clone());
    let (engine, socket) = (Handle::current(), path);
    tokio::task::spawn_blocking(move || {
        match load(&guest, &arriving, &listener) {
            Ok(()) => arriving.decided(),
            Err(error) => {
                let why =
                    guest.reason().map_or_else(|| error.to_string(), |end| format!("{error}; QEMU: {end}"));
                tracing::warn!(guest = arriving.name, why, "arriving");
                // It was given up already if it can't be now.
                let _ = arriving.give_up(&why);
            }
        }
        // Whoever connects from now on is too late.
        let _ = std::fs::remove_file(&socket);
        if matches!(*arriving.lock(), Stage::Failed(_)) {
            let (name, ticket) = (arriving.name.clone(), arriving.ticket.clone());
            let ask = |answer| EngineRequest::Migration(MigrationRequest::Abandon(name, ticket, answer));
            // Without the engine, the fabric is going down; or it was abandoned already.
            let _ = engine.block_on(inbox.ask(ask));
        }
    });
    Ok(())
}

/// Loads a guest.
fn load(guest: &Guest, arriving: &Arriving, listener: &UnixListener) -> Result<(), MigrationError> {
    let end = Instant::now() + CONNECT;
    // Looks now and then whether it was given up.
    let way = loop {
        let ready = wait_readable(&[listener.as_fd()], Some(100_000_000))
            .map_err(|error| MigrationError::Way(io::Error::other(error)))?;
        if ready.contains(&true) {
            break listener.accept().map_err(MigrationError::Way)?.0;
        }
        if let Stage::Failed(why) = &*arriving.lock() {
            return Err(MigrationError::Ended(why.clone()));
        }
        if Instant::now() >= end {
            return Err(MigrationError::Way(io::ErrorKind::TimedOut.into()));
        }
    };
    let mut monitor = guest.monitor()?;
    monitor.give(WAY, way.as_fd())?;
    drop(way);
    monitor.ask("migrate-incoming", &json!({ "uri": format!("fd:{WAY}") }))?;
    loop {
        let state = monitor.ask("query-migrate", &json!({}))?;
        match state["status"].as_str().unwrap_or_default() {
            "completed" if monitor.status()? != "inmigrate" => break,
            "failed" | "cancelled" => return Err(MigrationError::Ended("it could not be loaded".into())),
            _ => std::thread::sleep(POLL),
        }
        if let Stage::Failed(why) = &*arriving.lock() {
            return Err(MigrationError::Ended(why.clone()));
        }
    }
    let to = arriving.enter(&[Stage::Receiving], Stage::Loaded);
    to.map_err(|stage| MigrationError::Ended(format!("{stage:?}")))
}

/// Lets a guest go on here, once all of it has arrived. Blocks.
///
/// # Errors
/// It can't, and never will.
pub fn activate(
    guest: &Guest,
    arriving: &Arriving,
    activation: Activation,
    (inbox, engine): (&Inbox, &Handle),
) -> Result<(), String> {
    // Before the rest is waited for.
    let stopped = activation.stopped_at(steady_now());
    arriving.loaded()?;
    let begun = arriving.enter(&[Stage::Loaded], Stage::Activating);
    begun.map_err(|stage| format!("it is {stage:?} already"))?;
    arriving.stopped.store(stopped, Ordering::Release);
    if let Some(known) = activation.known {
        // It is activated once.
        let _ = arriving.delivered.set(DeliveredFrames { known, frames: activation.delivered });
    }
    let ask = |make: fn(String, String, crate::engine::Answer<()>) -> MigrationRequest| {
        let (name, ticket) = (arriving.name.clone(), arriving.ticket.clone());
        engine.block_on(inbox.ask(|answer| EngineRequest::Migration(make(name, ticket, answer))))
    };
    // From here on the guest is wanted, even if this process ends.
    let done = ask(MigrationRequest::Decide).map_err(|failure| failure.reason()).and_then(|()| go_on(guest));
    match done {
        Ok(()) => {
            guest.arrived();
            let _ = arriving.enter(&[Stage::Activating], Stage::Active);
            // Without the engine, the fabric is going down.
            let _ = ask(MigrationRequest::Arrived);
            // The guest runs, whether or not it announces itself.
            if let Err(error) = announce(guest) {
                tracing::warn!(guest = arriving.name, %error, "it is not announced");
            }
            Ok(())
        }
        Err(why) => {
            let _ = arriving.enter(&[Stage::Activating], Stage::Failed(why.clone()));
            let _ = ask(MigrationRequest::Abandon);
            Err(why)
        }
    }
}

/// Makes a guest announce where it is. QEMU does so once it is loaded, when its ports send nothing yet.
fn announce(guest: &Guest) -> Result<(), MigrationError> {
    let [initial, max, step, rounds] = ANNOUNCE;
    let pace = json!({ "initial": initial, "max": max, "step": step, "rounds": rounds });
    guest.monitor()?.ask("announce-self", &pace)?;
    Ok(())
}

/// Lets a guest that has arrived go on, if it does not run.
pub fn go_on(guest: &Guest) -> Result<(), String> {
    let told = || {
        let mut monitor = guest.monitor()?;
        if monitor.status()? == "paused" {
            monitor.ask("cont", &json!({}))?;
        }
        match monitor.status()?.as_str() {
            "running" => Ok(()),
            status => Err(MigrationError::State(status.into())),
        }
    };
    told().map_err(|error: MigrationError| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_either_activated_or_given_up() {
        let arriving = || Arriving::new("vm", "t", oneshot::channel().0);
        let one = arriving();
        assert_eq!(one.view().state, "receiving");
        one.enter(&[Stage::Receiving], Stage::Loaded).unwrap();
        one.loaded().unwrap();
        one.enter(&[Stage::Loaded], Stage::Activating).unwrap();
        assert!(one.give_up("late").is_err());
        one.enter(&[Stage::Activating], Stage::Active).unwrap();
        assert!(one.give_up("later").is_err() && one.loaded().is_err());
        let other = arriving();
        other.give_up("cancelled").unwrap();
        other.give_up("again").unwrap();
        assert_eq!(other.enter(&[Stage::Receiving], Stage::Loaded), Err(Stage::Failed("cancelled".into())));
        assert_eq!(other.loaded(), Err("cancelled".into()));
    }

    #[tokio::test]
    async fn who_waits_for_the_start_is_told_why_it_fails() {
        let (sender, started) = oneshot::channel();
        let arriving = Arriving::new("vm", "t", sender);
        arriving.started(Err("no QEMU".into()));
        assert_eq!(started.await.unwrap().unwrap_err(), "no QEMU");
        assert_eq!(arriving.view().reason, "no QEMU");
    }
}
