//! Starts, watches, restarts and stops the fabric's functions.

mod keep;
mod moving;
mod starts;
mod view;

pub use view::{Late, Phase};

use crate::api::{Departure, SnapshotView};
use crate::engine::{Answer, Inbox};
use crate::events::EventKind;
use crate::file::Fabric;
use crate::function::runner::{self, Ended, Runner, What as Said};
use crate::function::spare::Spares;
use crate::function::{FunctionMessage, handlers};
use crate::keeper::Keeper;
use crate::snapshots::{SnapshotError, Snapshots, Taken, function_of};
use ringway_fabric::proto::FunctionReport;
use ringway_host::{SocketFile, SocketRights};
use ringway_spec::{Configuration, Function, Isolation, printable_lines};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a function may take to end.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// Delays before restarting a function, in milliseconds: longer each time, up to the last value.
const RESTARTS: [u64; 5] = [10, 100, 500, 2_000, 10_000];
/// If a function ran for this long, the next restart uses the first delay again.
const STABLE: Duration = Duration::from_secs(60);

/// Why an operation on a function failed.
#[derive(Debug, thiserror::Error)]
pub enum FunctionError {
    /// No function has this name.
    #[error("there is no function \"{0}\"; `ringway function list` shows those there are")]
    Unknown(String),
    /// The function is in a chain, which needs it.
    #[error("function {0} is in chain {1}; take it out of the file's [chain.{1}] and apply that")]
    Chained(String, String),
    /// The function is new, and does not start.
    #[error("function {0} does not start, and nothing is changed: {1}")]
    Unready(String, String),
    /// The function is running.
    #[error("function {0} runs already")]
    Already(String),
    /// The function ended, and waits for its restart.
    #[error("function {0} does not run: {1}; it is tried again")]
    Ended(String, String),
    /// The function is not running.
    #[error("function {0} does not run; start it with `ringway function start {0}`")]
    NotRunning(String),
    /// The function does not answer before it starts.
    #[error("function {0} waits for its turn to start")]
    Queued(String),
    /// The function's configuration is not up yet.
    #[error("function {0} is starting; try again once `ringway function list` shows it as running")]
    Starting(String),
    /// The function is suspended, and so does not answer.
    #[error("function {0} is suspended; `ringway function resume {0}` lets it go on")]
    Suspended(String),
    /// The function is not suspended.
    #[error("function {0} is not suspended")]
    NotSuspended(String),
    /// The function was requested at run time, and does not start.
    #[error("function {0} is not created: {1}")]
    Stillborn(String, String),
    /// The function's socket can't be created.
    #[error("function {name}: {path}: {error}")]
    Socket {
        /// The function.
        name: String,
        /// The socket.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// An operation on a snapshot failed.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The function has a program's image, and so no configuration.
    #[error("function {0} is a program, which has no configuration and no handlers")]
    Program(String),
    /// The running function refused a new configuration, and keeps the old one.
    #[error("function {0} goes on as it was: {1}")]
    Refused(String, String),
}

/// Errors reported by `hotconfig`, with the file's name in place of Click's `config`.
fn in_file(message: &str, title: &str) -> String {
    let lines = message.lines().filter(|line| *line != "Write handler 'hotconfig' error:");
    let lines = lines.map(|line| match line.strip_prefix("config:") {
        Some(rest) => format!("{title}:{rest}"),
        None => line.to_string(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The message for a configuration that a running function refused with `why`.
pub fn refusal(name: &str, why: &str) -> String {
    FunctionError::Refused(name.into(), in_file(why, name)).to_string()
}

/// Longest reason in bytes that is kept and shown in tables. Attack: a guest whose reason fills the terminal.
const REASON: usize = 4096;

/// A reason as one line that is not too long.
fn shortened(reason: &str) -> String {
    let reason = reason.trim();
    let shown = &reason[..reason.floor_char_boundary(REASON)];
    let more = reason.len() - shown.len();
    let shown = shown.replace('\n', "; ");
    if more == 0 { shown } else { format!("{shown}... ({more} bytes more)") }
}

enum Life {
    Stopped,
    /// The function starts when it is its turn.
    Queued,
    /// The function starts with the first frame for it.
    Dormant,
    Running {
        runner: Box<dyn Runner>,
        /// Whether the configuration runs.
        up: bool,
        suspended: bool,
    },
    /// The function ended, and is restarted after a delay.
    Waiting,
}

struct Record {
    function: Function,
    /// Its ports' sockets.
    port_sockets: Vec<PathBuf>,
    /// Listening socket for its handlers. It outlives the function's processes, so that a client that connects during a
    /// restart waits.
    listener: SocketFile,
    socket: PathBuf,
    life: Life,
    /// Number of its current process; events of earlier ones are ignored.
    turn: u64,
    /// How often it was launched.
    launches: u64,
    started: Instant,
    restarts: u64,
    quick: usize,
    /// Its last starts failed, so that nobody should wait for the next one.
    failing: bool,
    reason: String,
    /// Why its former process ended; empty if it was started by an order.
    past: String,
    /// Why it runs as a process instead of a virtual machine; empty if it does not.
    fallback: String,
    /// The requests that wait for the first start, which decides whether the function stays.
    awaited: Option<Answer<()>>,
    /// The snapshot from which the function resumes.
    origin: Option<Arc<Taken>>,
    /// The snapshot that is being taken.
    pending_snapshot: Option<PendingSnapshot>,
    /// The memory of a stopped function, which resumes in another fabric.
    leaving: Option<OwnedFd>,
    /// Whether the function is an instance that gets no new flows.
    draining: bool,
    /// How long it may take to start if it was requested at run time.
    start_limit: Duration,
}

impl Record {
    /// The error of what needs a function that ended.
    fn ended(&self) -> FunctionError {
        let why = if self.reason.is_empty() { &self.past } else { &self.reason };
        FunctionError::Ended(self.function.name.clone(), printable_lines(why).into_owned())
    }

    /// Reports that the pending snapshot won't be taken, since the function has ended.
    fn abandon_snapshot(&mut self) {
        if let Some(PendingSnapshot { then, .. }) = self.pending_snapshot.take() {
            let why = SnapshotError::Failed(self.function.name.clone(), "it has ended".into());
            then.fail(why.into());
        }
    }
}

/// A snapshot that is being taken.
struct PendingSnapshot {
    memory: OwnedFd,
    then: Then,
}

/// What a snapshot is for, and the request that waits for it.
enum Then {
    /// The snapshot is kept by this name.
    Keep(String, Answer<()>),
    /// The function moves.
    Leave(Answer<Departure>),
}

impl Then {
    fn fail(self, why: FunctionError) {
        // The client that asked may be gone.
        match self {
            Then::Keep(_, answer) => drop(answer.send(Err(why.into()))),
            Then::Leave(answer) => drop(answer.send(Err(why.into()))),
        }
    }
}

/// An event of a running function.
#[derive(Debug)]
pub struct FunctionEvent {
    name: String,
    turn: u64,
    what: What,
}

impl FunctionEvent {
    /// What happened to the start `number` of function `name`.
    pub fn of(name: &str, number: u64, what: Said) -> FunctionEvent {
        FunctionEvent { name: name.into(), turn: number, what: What::Runner(what.printable()) }
    }

    /// The start `number` of function `name` failed.
    pub fn failed(name: &str, number: u64, error: impl std::fmt::Display) -> FunctionEvent {
        let ended = Ended { status: error.to_string(), last: String::new() };
        FunctionEvent::of(name, number, Said::Ended(ended))
    }
}

#[derive(Debug)]
enum What {
    Runner(Said),
    /// The function is due to start again.
    Again,
    /// The time limit of this start, the function's first, expired.
    Late(Duration),
    /// Functions that wait may have their turn; the event belongs to no function.
    Look,
}

/// All functions of a fabric.
pub struct Functions {
    records: BTreeMap<String, Record>,
    /// The fabric's name.
    fabric: String,
    /// Arguments that make this program a function's process.
    arguments: Vec<OsString>,
    inbox: Inbox,
    turn: u64,
    snapshots: Snapshots,
    /// For functions in virtual machines, while there are any.
    spares: Spares,
    /// Functions that wait for their turn to start, and some that need none any more.
    queue: VecDeque<String>,
    /// Whether [`What::Look`] comes.
    looks: bool,
    /// A start that takes longer does not keep others waiting any more.
    slow: Duration,
    keeper: Keeper,
    /// Functions whose state the keeper does not have yet.
    changed: BTreeSet<String>,
}

impl Functions {
    /// Creates an empty set.
    pub fn new(fabric: &str, arguments: Vec<OsString>, inbox: Inbox, keeper: Keeper) -> Functions {
        Functions {
            records: BTreeMap::new(),
            fabric: fabric.into(),
            arguments,
            inbox,
            turn: 0,
            snapshots: Snapshots::new(keeper.clone()),
            spares: Spares::default(),
            queue: VecDeque::new(),
            looks: false,
            slow: starts::SLOW,
            keeper,
            changed: BTreeSet::new(),
        }
    }

    /// Adds a function whose ports are in `fabric`, and starts it if its `start` is set.
    pub fn add(&mut self, function: &Function, fabric: &Fabric, folder: &Path) -> Result<(), FunctionError> {
        let socket = folder.join(format!("{}.sock", function.file_name()));
        let listener = listen(folder, &socket).map_err(|error| FunctionError::Socket {
            name: function.name.clone(),
            path: socket.clone(),
            error,
        })?;
        self.insert(function, fabric, (socket, listener));
        match function {
            Function { start: true, first_frame: true, .. } => {
                self.record(&function.name)?.life = Life::Dormant;
                Ok(())
            }
            Function { start: true, .. } => self.start(&function.name),
            _ if function.is_further_instance() => {
                self.record(&function.name)?.life = Life::Dormant;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn insert(&mut self, function: &Function, fabric: &Fabric, (socket, listener): (PathBuf, SocketFile)) {
        self.keep_listener(&function.name, &listener);
        let port_socket = |port: &String| Some(fabric.port(port)?.socket.as_ref()?.path.clone());
        let record = Record {
            function: function.clone(),
            port_sockets: function.fabric_ports().iter().filter_map(port_socket).collect(),
            listener,
            socket,
            life: Life::Stopped,
            turn: 0,
            launches: 0,
            started: Instant::now(),
            restarts: 0,
            quick: 0,
            failing: false,
            reason: String::new(),
            past: String::new(),
            fallback: String::new(),
            awaited: None,
            origin: None,
            pending_snapshot: None,
            leaving: None,
            draining: false,
            start_limit: fabric.start_limit,
        };
        self.changed.insert(function.name.clone());
        self.records.insert(function.name.clone(), record);
        if function.isolation == Isolation::Vm {
            self.spares.refill(&self.arguments);
        }
    }

    /// Adds and starts a function requested at run time. It stays only if its configuration starts; the answer then
    /// follows.
    pub fn create(
        &mut self,
        function: &Function,
        fabric: &Fabric,
        folder: &Path,
        answer: Answer<()>,
    ) -> bool {
        self.create_from(None, function, fabric, folder, answer)
    }

    /// Creates a function, from a snapshot if there is one.
    fn create_from(
        &mut self,
        origin: Option<Arc<Taken>>,
        function: &Function,
        fabric: &Fabric,
        folder: &Path,
        answer: Answer<()>,
    ) -> bool {
        if let Err(error) = self.add(&Function { start: false, ..function.clone() }, fabric, folder) {
            let _ = answer.send(Err(error.into()));
            return false;
        }
        self.keep_origin(&function.name, origin.as_deref());
        let Some(record) = self.get(&function.name) else { return false };
        (record.origin, record.awaited, record.function.start) = (origin, Some(answer), true);
        self.launch(&function.name);
        self.abandon_failed(&function.name).is_none()
    }

    /// Removes a function whose first start failed. Returns its name.
    fn abandon(&mut self, name: &str, reason: String) -> Option<String> {
        let answer = self.get(name)?.awaited.take()?;
        let _ = self.remove(name);
        let reason = printable_lines(&reason).into_owned();
        self.inbox.event_log().note(EventKind::FunctionEnded, name, &format!("it is not created: {reason}"));
        let _ = answer.send(Err(FunctionError::Stillborn(name.into(), reason).into()));
        Some(name.into())
    }

    /// A function that is about to change.
    fn get(&mut self, name: &str) -> Option<&mut Record> {
        let record = self.records.get_mut(name)?;
        self.changed.insert(name.into());
        Some(record)
    }

    fn record(&mut self, name: &str) -> Result<&mut Record, FunctionError> {
        self.get(name).ok_or_else(|| FunctionError::Unknown(name.into()))
    }

    /// Starts a function.
    pub fn start(&mut self, name: &str) -> Result<(), FunctionError> {
        let record = self.record(name)?;
        match record.life {
            Life::Stopped | Life::Dormant => {}
            Life::Waiting => return Err(record.ended()),
            _ => return Err(FunctionError::Already(name.into())),
        }
        (record.quick, record.restarts, record.failing) = (0, 0, false);
        record.reason.clear();
        record.past.clear();
        self.launch(name);
        Ok(())
    }

    /// An event of a running function. Returns the name of a function that was requested at run time and removed,
    /// because it did not start.
    fn happened(&mut self, event: FunctionEvent) -> Option<String> {
        let FunctionEvent { name, turn, what } = event;
        let events = self.inbox.event_log().clone();
        let record = self.get(&name).filter(|record| record.turn == turn)?;
        match (what, &mut record.life) {
            (What::Runner(Said::Message(FunctionMessage::Up)), Life::Running { up, .. }) => {
                tracing::info!(function = name, "up");
                events.note(EventKind::FunctionUp, &name, "");
                *up = true;
                record.failing = false;
                record.reason.clear();
                // Its memory changes from now on.
                let is_spent = record.origin.take_if(|origin| origin.moved).is_some();
                if let Some(answer) = record.awaited.take() {
                    let _ = answer.send(Ok(()));
                }
                if is_spent {
                    self.keep_origin(&name, None);
                }
            }
            (What::Runner(Said::Message(FunctionMessage::Fallback(why))), _) => {
                tracing::warn!(function = name, reason = why, "it runs as a process instead of a VM");
                record.fallback = shortened(&why);
            }
            (What::Runner(Said::Message(FunctionMessage::Snapshot(result))), _) => {
                if let Some(pending_snapshot) = record.pending_snapshot.take() {
                    self.taken(&name, pending_snapshot, result);
                }
            }
            (What::Late(limit), _) => {
                return self.abandon(&name, format!("it did not start within {} s", limit.as_secs_f64()));
            }
            (What::Runner(Said::Message(FunctionMessage::Wrong(why))), _) if record.awaited.is_some() => {
                return self.abandon(&name, why.trim().into());
            }
            (What::Runner(Said::Message(FunctionMessage::Wrong(why))), _) => {
                record.reason = shortened(&why);
            }
            (What::Runner(Said::Ended(Ended { status, last })), Life::Running { .. }) => {
                record.abandon_snapshot();
                record.leaving = None;
                let reason = if last.is_empty() { status } else { format!("{status}: {last}") };
                let reason = shortened(&reason);
                if record.awaited.is_some() {
                    return self.abandon(&name, reason);
                }
                self.again(&name, reason);
            }
            (What::Again, Life::Waiting) => {
                record.restarts += 1;
                self.launch(&name);
            }
            _ => {}
        }
        None
    }

    /// A report of `data` about the start `number` of a function. Returns what [`Functions::handle_event`] returns.
    pub fn reported(&mut self, number: u64, report: FunctionReport) -> Vec<String> {
        let mut records = self.records.iter();
        match records.find(|(_, record)| record.turn == number).map(|(name, _)| name.clone()) {
            Some(name) => self.handle_event(FunctionEvent::of(&name, number, runner::report(report))),
            None => Vec::new(),
        }
    }

    /// The `data` process ended, and every function in it. Returns those that were requested at run time and removed,
    /// because they did not start.
    pub fn data_ended(&mut self) -> Vec<String> {
        let in_data = |record: &&Record| record.function.isolation == Isolation::Worker;
        let turns: Vec<u64> = self.records.values().filter(in_data).map(|record| record.turn).collect();
        let end = || FunctionReport::Ended("the data process ended".into());
        turns.into_iter().flat_map(|turn| self.reported(turn, end())).collect()
    }

    /// Stops the threads of a running function, which keeps its state, or lets them go on.
    pub fn suspend(&mut self, name: &str, suspend: bool) -> Result<(), FunctionError> {
        let record = self.record(name)?;
        match &mut record.life {
            Life::Running { runner, suspended, .. } if *suspended != suspend => {
                tracing::info!(function = name, suspend, "suspended or resumed");
                if suspend {
                    runner.suspend()
                } else {
                    runner.resume()
                }
                *suspended = suspend;
                record.leaving = None;
                Ok(())
            }
            Life::Running { .. } if suspend => Err(FunctionError::Suspended(name.into())),
            Life::Running { .. } => Err(FunctionError::NotSuspended(name.into())),
            Life::Stopped | Life::Dormant | Life::Queued | Life::Waiting => {
                Err(FunctionError::NotRunning(name.into()))
            }
        }
    }

    /// Records a configuration that a function has taken over in the launch of this number, of which
    /// [`Functions::socket`] tells; its restarts use it. In launch 0 it did not run.
    pub fn updated(
        &mut self,
        name: &str,
        launch: u64,
        new: Configuration,
    ) -> Result<Configuration, FunctionError> {
        let record = self.record(name)?;
        record.function.configuration = new;
        if let Life::Running { runner, .. } = &record.life
            && record.launches != launch
        {
            // The process ended behind its answer, and was started with the former configuration. That is no failure
            // of its own: the next start is not delayed.
            record.quick = 0;
            runner.kill();
        }
        Ok(record.function.configuration.clone())
    }

    /// Stops a function, without waiting for its end.
    pub fn stop(&mut self, name: &str) -> Result<(), FunctionError> {
        let record = self.record(name)?;
        record.reason.clear();
        record.abandon_snapshot();
        record.leaving = None;
        if let Some(answer) = record.awaited.take() {
            let _ = answer.send(Err(FunctionError::Stillborn(name.into(), "it was stopped".into()).into()));
        }
        // Ignores all further events of its runner.
        record.turn = 0;
        if let Life::Running { runner, .. } = std::mem::replace(&mut record.life, Life::Stopped) {
            tracing::info!(function = name, "stopping");
            self.inbox.event_log().note(EventKind::FunctionStopped, name, "");
            runner.ask_to_end();
            tokio::spawn(async move {
                // Dropping the process kills it.
                tokio::time::sleep(STOP_TIMEOUT).await;
                drop(runner);
            });
        }
        Ok(())
    }

    /// The function that a clone of a snapshot would be.
    pub fn clone_of(
        &self,
        snapshot: &str,
        name: &str,
        ports: Vec<String>,
    ) -> Result<Function, FunctionError> {
        let taken = self.snapshots.get(snapshot)?;
        Ok(function_of(&taken, name, ports)?)
    }

    /// Adds and starts a clone as [`Functions::create`] does.
    pub fn create_clone(
        &mut self,
        snapshot: &str,
        function: &Function,
        fabric: &Fabric,
        folder: &Path,
        answer: Answer<()>,
    ) -> bool {
        match self.snapshots.get(snapshot) {
            Ok(origin) => self.create_from(Some(origin), function, fabric, folder, answer),
            Err(error) => {
                let _ = answer.send(Err(FunctionError::from(error).into()));
                false
            }
        }
    }

    /// All snapshots.
    pub fn snapshots(&self) -> Vec<SnapshotView> {
        self.snapshots.view()
    }

    /// Removes a snapshot.
    pub fn forget(&mut self, snapshot: &str) -> Result<(), FunctionError> {
        Ok(self.snapshots.forget(snapshot)?)
    }

    /// Stops a function and forgets it.
    pub fn remove(&mut self, name: &str) -> Result<(), FunctionError> {
        let stopped = self.stop(name);
        self.records.remove(name);
        self.forget_kept(name);
        if !self.records.values().any(|record| record.function.isolation == Isolation::Vm) {
            self.spares.clear();
        }
        stopped
    }

    /// Stops all functions at the same time.
    pub fn stop_all(&mut self) {
        for name in self.records.keys().cloned().collect::<Vec<_>>() {
            // Can't fail: the function exists.
            let _ = self.remove(&name);
        }
    }

    /// Begins to replace a function's configuration; packets and the state of its elements are kept. The returned
    /// future lets a running function take the new one over; [`Functions::swapped`] gets its result.
    pub fn swap(
        &mut self,
        name: &str,
        to: &Configuration,
    ) -> Result<impl Future<Output = Result<(), FunctionError>> + use<>, FunctionError> {
        let record = self.record(name)?;
        if record.leaving.is_some() {
            // The function would go on here, while the other fabric takes it over.
            return Err(FunctionError::Suspended(name.into()));
        }
        let title = Function { configuration: to.clone(), ..record.function.clone() }.title().to_string();
        let running = match &record.life {
            Life::Running { up: true, runner, suspended } => {
                // A suspended process would not answer.
                if *suspended {
                    runner.resume();
                }
                Some(record.socket.clone())
            }
            _ => None,
        };
        let (name, text) = (name.to_string(), to.text.clone());
        Ok(async move {
            let Some(socket) = running else { return Ok(()) };
            let written = handlers::write(&socket, "hotconfig", text.as_bytes()).await;
            written.map_err(|why| FunctionError::Refused(name, in_file(&why.to_string(), &title)))
        })
    }

    /// Ends replacing a function's configuration. If the function refused the new one, nothing changes.
    pub fn swapped(
        &mut self,
        name: &str,
        to: &Configuration,
        taken_over: Result<(), FunctionError>,
    ) -> Result<(), FunctionError> {
        let record = self.record(name)?;
        if let Life::Running { up: true, runner, suspended: true } = &record.life {
            runner.suspend();
        }
        taken_over?;
        record.function.configuration = to.clone();
        match &record.life {
            // The process was started with the old configuration; its restart uses the new one.
            Life::Running { up: false, runner, .. } => {
                runner.kill();
                record.quick = 0;
            }
            // A function whose last configuration failed is restarted without delay.
            Life::Waiting => {
                record.reason.clear();
                record.failing = false;
                self.launch(name);
            }
            Life::Running { .. } | Life::Queued | Life::Stopped | Life::Dormant => {}
        }
        Ok(())
    }

    /// Path of the socket for a running function's handlers, and the number of the launch that answers there.
    pub fn socket(&mut self, name: &str) -> Result<(PathBuf, u64), FunctionError> {
        let record = self.record(name)?;
        match record.life {
            _ if record.function.program.is_some() => Err(FunctionError::Program(name.into())),
            Life::Stopped | Life::Dormant => Err(FunctionError::NotRunning(name.into())),
            // What is written would wait in the socket, and be executed once nobody waits for the answer any more.
            Life::Queued => Err(FunctionError::Queued(name.into())),
            Life::Waiting | Life::Running { up: false, .. } if record.failing => Err(record.ended()),
            Life::Running { suspended: true, .. } => Err(FunctionError::Suspended(name.into())),
            Life::Running { .. } => Ok((record.socket.clone(), record.launches)),
            // The function answers once it is restarted.
            Life::Waiting => Ok((record.socket.clone(), record.launches + 1)),
        }
    }

    /// Stops a function until it is needed again.
    pub fn rest(&mut self, name: &str) {
        if self.stop(name).is_ok()
            && let Some(record) = self.get(name)
        {
            (record.life, record.draining) = (Life::Dormant, false);
        }
    }

    /// When a function was last started.
    pub fn started(&self, name: &str) -> Option<Instant> {
        self.records.get(name).map(|record| record.started)
    }

    /// Records whether an instance gets no new flows.
    pub fn set_draining(&mut self, name: &str, draining: bool) {
        self.get(name).into_iter().for_each(|record| record.draining = draining);
    }

    /// A frame for a function waits, or there is more to do than other instances can: it starts if that is what it
    /// starts with.
    pub fn wanted(&mut self, name: &str) {
        if self.records.get(name).is_some_and(|record| matches!(record.life, Life::Dormant)) {
            tracing::info!(function = name, "it is needed");
            // The function can't run already.
            let _ = self.start(name);
        }
    }
}

/// Creates the folder and the socket in it; a stale socket is replaced.
fn listen(folder: &Path, socket: &Path) -> io::Result<SocketFile> {
    std::fs::DirBuilder::new().recursive(true).mode(0o755).create(folder)?;
    let rights = SocketRights { owner: None, group: None, mode: 0o600 };
    SocketFile::bind(socket, rights).map_err(io::Error::other)
}
