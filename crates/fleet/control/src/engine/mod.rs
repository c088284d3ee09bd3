//! The engine of `control`: one task that owns the running fabric and handles every event that concerns it.

mod adopt;
mod capture;
mod chain;
mod command;
mod flows;
mod host;
mod idle;
mod inbox;
mod instances;
mod link;
mod migration;
mod objects;
mod opened;
mod program;
mod replace;
mod running_port;
mod save;
mod show;
mod suspect;
mod trace;
mod upgrade;

pub use adopt::{KeptFabric, descriptor};
pub use command::{Answer, EngineRequest, Failure};
pub use flows::FlowRequest;
pub use inbox::{Envelope, Inbox, Messages, Undelivered, inbox, later};
pub use migration::MigrationRequest;
pub use objects::ObjectOrder;
pub use running_port::{KeptPort, kept_port};
pub use trace::{NextHop, Step, TracedStep};

use crate::change::{self, Change};
use crate::control::Program;
use crate::data::{Data, DataError, Page, PageError, Spawned, Standby};
use crate::events::EventKind;
use crate::file::{Added, Fabric, Host};
use crate::functions::{FunctionError, FunctionEvent, Functions, Phase};
use crate::guests::{self, GuestError, GuestEvent, Guests};
use crate::hosts::{HostFailure, Hosts};
use crate::keeper::Keeper;
use crate::open::switch::OpenRequest;
use crate::open::{OpenError, PeerEvent};
use crate::programs::{ProgramFailure, Programs};
use crate::run_dir::{self, RunDir};
use capture::Captures;
use flows::FlowSwitches;
use idle::TrafficCount;
use instances::MultipliedFunction;
use opened::OpenPorts;
use ringway_fabric::proto::{self, Event, Request};
use ringway_fabric::table_slot;
use ringway_scheduler::Placer;
use ringway_spec::{Function, MacAddress};
use running_port::RunningPort;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use suspect::Suspects;

/// Messages to the engine.
#[derive(Debug)]
pub enum Message {
    /// A request of the API.
    EngineRequest(EngineRequest),
    /// An event from `data`.
    FromData(Event),
    /// A `data` process ended.
    DataEnded {
        /// Number of the process since the start of `control`.
        generation: u64,
        /// Its exit status.
        status: ExitStatus,
    },
    /// The delay before a restart of `data` has expired.
    StartData,
    /// A `data` process is to wait for the end of the running one.
    PrepareData,
    /// The one that waits may have ended.
    LookAtStandby,
    /// An event from a port's opener.
    Peer(PeerEvent),
    /// The delay after a peer that used too much time has expired: the port's next peer is admitted.
    PeerAdmission {
        /// The port.
        port: String,
        /// Number of its opener.
        epoch: u64,
    },
    /// Result of attaching a port's new peer in `data`.
    Attached {
        /// The port.
        port: String,
        /// Number of its opener.
        epoch: u64,
        /// Serial number of the peer.
        serial: u64,
        /// The result.
        attached: Result<(), DataError>,
    },
    /// Result of detaching a port's peer that has left.
    PeerDetached {
        /// The port.
        port: String,
        /// Number of its opener.
        epoch: u64,
        /// Serial number of the peer.
        serial: u64,
        /// Why it left.
        reason: String,
        /// The result.
        detached: Result<(), DataError>,
    },
    /// Result of starting a guest.
    Guest(GuestEvent),
    /// An event from a function's process.
    Function(FunctionEvent),
    /// A request to `data` about a function.
    ForFunction {
        /// The function.
        name: String,
        /// The number of its start.
        number: u64,
        /// The request.
        request: Box<Request>,
        /// Its descriptors.
        descriptors: Vec<OwnedFd>,
    },
    /// A program opens a port on a switch.
    OpenPort(Box<OpenRequest>),
    /// Check whether functions have more instances than they need.
    CheckInstances,
    /// Check whether functions are idle.
    CheckIdle,
    /// Shut the fabric down.
    Down,
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// A port can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// `data` failed or refused to do it.
    #[error("{0}: {1}")]
    Data(String, #[source] DataError),
    /// The folder of switches' sockets can't be made.
    #[error("{}: {error}; use a run directory that this user may write to", .folder.display())]
    SwitchFolder {
        /// The folder.
        folder: PathBuf,
        /// The operating system's error.
        #[source]
        error: io::Error,
    },
    /// The counters page is full or unavailable.
    #[error(transparent)]
    Page(#[from] PageError),
    /// A function can't be added or changed.
    #[error(transparent)]
    Function(#[from] FunctionError),
    /// This program has no such kind of port.
    #[error("port {0}: this program has no kind of port \"{1}\"; use the one that the file is for")]
    Kind(String, String),
    /// A guest can't be added.
    #[error(transparent)]
    Guest(#[from] GuestError),
    /// A host can't be added, or its programs can't run.
    #[error(transparent)]
    Host(#[from] HostFailure),
    /// A program can't be added.
    #[error(transparent)]
    Program(#[from] ProgramFailure),
    /// The rules of a switch's flow tables are wrong.
    #[error("switch {0}: {1}")]
    Flows(String, String),
    /// A setting that can't change while the fabric is up.
    #[error("{0} can't change while the fabric is up; use `ringway down` and `ringway up`")]
    Fixed(&'static str),
}

/// Delays before restarting `data`, in milliseconds: the first restart is immediate, later ones take longer, up to the
/// last value.
const RESTART_DELAYS: [u64; 5] = [0, 100, 500, 2_000, 10_000];
/// If `data` ran for this long, the next restart is immediate again.
const STABLE_RUN: Duration = Duration::from_secs(1);
/// When the next `data` process is started after the one before: its start must not delay the ports of that.
const PREPARE_AFTER: Duration = Duration::from_secs(1);
/// How often it is looked whether that one still waits.
const LOOK_INTERVAL: Duration = Duration::from_secs(30);

/// What an engine is made of.
pub struct EngineParts {
    /// Properties of the host.
    pub host: Host,
    /// The run directory.
    pub run: RunDir,
    /// This program.
    pub program: Program,
    /// The engine's queue.
    pub inbox: Inbox,
    /// Placement.
    pub place: Placer,
    /// The connection to the keeper, which holds what outlives this process.
    pub keeper: Keeper,
}

/// The running fabric.
pub struct Engine {
    /// The current fabric, updated with each change.
    fabric: Fabric,
    /// The file that describes it, and its text.
    file: String,
    text: String,
    /// Tables of what requests added since then.
    added: Added,
    host: Host,
    keeper: Keeper,
    /// Whether the keeper's description of the fabric is out of date.
    is_changed: bool,
    running_ports: BTreeMap<String, RunningPort>,
    page: Page,
    data: Option<Data>,
    /// The next one.
    standby: Option<Standby>,
    program: Program,
    started: Instant,
    data_started: Instant,
    restarts: u64,
    quick_ends: usize,
    epoch: u64,
    guests: Guests,
    hosts: Hosts,
    programs: Programs,
    functions: Functions,
    run: RunDir,
    inbox: Inbox,
    /// Set once `serve` runs.
    messages: Option<Messages>,
    /// Messages that arrived while the engine waited for `data`.
    backlog: VecDeque<Envelope>,
    /// The state that `data` last reported.
    last_state: proto::State,
    place: Placer,
    /// Ports whose frames wait for functions that start with them.
    held_ports: BTreeSet<String>,
    /// Ports of functions that a change is about to add, and that start with their first frame.
    announced_ports: BTreeSet<String>,
    /// Ports whose frames wait until a chain has changed.
    joining_ports: BTreeSet<String>,
    /// Ports of guests that arrive, which send nothing until they run here.
    blocked_ports: BTreeSet<String>,
    /// The ports of guests that arrive, and the guests' address at each.
    arriving_ports: BTreeMap<String, Vec<(String, MacAddress)>>,
    /// The same of guests that leave.
    leaving_ports: BTreeMap<String, Vec<(String, MacAddress)>>,
    /// Functions that multiply, by name.
    multiplied: BTreeMap<String, MultipliedFunction>,
    /// Whether [`Message::CheckInstances`] is scheduled.
    has_instance_check: bool,
    /// Frames that have passed functions that stop when they are idle, by name.
    traffic: BTreeMap<String, TrafficCount>,
    /// Whether [`Message::CheckIdle`] is scheduled.
    has_idle_check: bool,
    captures: Captures,
    flows: FlowSwitches,
    /// What happened when this program took over another program's fabric, for people.
    notes: Vec<String>,
    suspects: Suspects,
    open_ports: OpenPorts,
}

impl Engine {
    /// Starts `data` with the workers of `fabric`; the fabric has no switches or ports yet.
    pub async fn start(
        fabric: &Fabric,
        (file, text): (String, String),
        own: EngineParts,
    ) -> Result<Engine, EngineError> {
        let page = Page::new()?;
        own.keeper.put("page", "", [&page.share()?]);
        let mut engine = Engine::bare(fabric, (file, text), page, own);
        engine.start_data(1).await?;
        Ok(engine)
    }

    /// An engine whose fabric has nothing, without `data`.
    fn bare(fabric: &Fabric, (file, text): (String, String), page: Page, own: EngineParts) -> Engine {
        let EngineParts { host, run, program, inbox, place, keeper } = own;
        let bare = Fabric {
            switches: Vec::new(),
            openings: BTreeMap::new(),
            ports: Vec::new(),
            guests: Vec::new(),
            hosts: Vec::new(),
            functions: Vec::new(),
            programs: Vec::new(),
            chains: Vec::new(),
            ..fabric.clone()
        };
        let functions = Functions::new(&fabric.name, program.function.clone(), inbox.clone(), keeper.clone());
        Engine {
            fabric: bare,
            file,
            text,
            added: Added::new(),
            is_changed: true,
            guests: Guests::new(inbox.clone(), host.kinds, keeper.clone()),
            hosts: Hosts::new(keeper.clone()),
            programs: Programs::new(program.exec.clone(), keeper.clone(), inbox.event_log().clone()),
            keeper,
            host,
            running_ports: BTreeMap::new(),
            page,
            data: None,
            standby: None,
            program,
            started: Instant::now(),
            data_started: Instant::now(),
            restarts: 0,
            quick_ends: 0,
            epoch: 0,
            functions,
            run,
            inbox,
            messages: None,
            backlog: VecDeque::new(),
            last_state: proto::State::default(),
            place,
            held_ports: BTreeSet::new(),
            announced_ports: BTreeSet::new(),
            joining_ports: BTreeSet::new(),
            blocked_ports: BTreeSet::new(),
            arriving_ports: BTreeMap::new(),
            leaving_ports: BTreeMap::new(),
            multiplied: BTreeMap::new(),
            has_instance_check: false,
            traffic: BTreeMap::new(),
            has_idle_check: false,
            captures: Captures::default(),
            flows: FlowSwitches::new(),
            notes: Vec::new(),
            suspects: Suspects::default(),
            open_ports: OpenPorts::default(),
        }
    }

    /// Handles messages until the fabric is shut down, then removes everything.
    pub async fn serve(mut self, messages: Messages) {
        let mut shutdown_answer = None;
        self.messages = Some(messages);
        self.keep_fabric();
        self.look_at_standby();
        while let Some(message) = self.next().await {
            match message {
                Message::EngineRequest(EngineRequest::Shutdown(answer)) => {
                    shutdown_answer = Some(answer);
                    break;
                }
                Message::Down => break,
                Message::EngineRequest(EngineRequest::Upgrade(descriptors, answer)) => {
                    self.leave(&descriptors, answer).await
                }
                Message::EngineRequest(ask) => self.answer(ask).await,
                event => self.handle_message(event).await,
            }
            self.hold_first_frames();
            self.assign_instances();
            self.schedule_idle_check();
            self.tend_open_ports().await;
            self.keep_fabric();
        }
        self.down().await;
        if let Some(answer) = shutdown_answer {
            // The client may have disconnected.
            let _ = answer.send(Ok(()));
        }
    }

    /// Handles a message that is not a request.
    async fn handle_message(&mut self, message: Message) {
        match message {
            Message::FromData(event) => self.handle_event(event).await,
            Message::DataEnded { generation, status } => self.data_ended(generation, status),
            Message::StartData => self.restart_data().await,
            Message::PrepareData => self.prepare_data(),
            Message::LookAtStandby => self.look_at_standby(),
            Message::Peer(event) => self.peer(event).await,
            Message::PeerAdmission { port, epoch } => self.admit_next_peer(&port, epoch),
            Message::Attached { port, epoch, serial, attached } => {
                self.attached(&port, epoch, serial, attached);
            }
            Message::PeerDetached { port, epoch, serial, reason, detached } => {
                self.peer_detached((&port, epoch, serial), &reason, detached);
            }
            Message::Guest(event) => self.guests.started(event),
            Message::Function(event) => {
                let gone = self.functions.handle_event(event);
                self.forget_functions(gone);
            }
            Message::ForFunction { name, number, request, descriptors } => {
                let inbox = self.inbox.clone();
                self.post(*request, descriptors, move |done| {
                    if let Err(error) = done {
                        let event = FunctionEvent::failed(&name, number, error);
                        // Once nobody listens, the fabric is going down.
                        let _ = inbox.send(Message::Function(event));
                    }
                });
            }
            Message::OpenPort(request) => self.program_arrived(*request),
            Message::CheckInstances => self.check_instances().await,
            Message::CheckIdle => self.check_idle().await,
            // `serve` handles requests.
            Message::EngineRequest(_) | Message::Down => {}
        }
    }

    /// Forgets functions that were requested at run time and did not start.
    fn forget_functions(&mut self, gone: impl IntoIterator<Item = String>) {
        for gone in gone {
            self.fabric.functions.retain(|function| function.name != gone);
            self.is_changed = true;
        }
    }

    async fn next(&mut self) -> Option<Message> {
        let envelope = match (self.backlog.pop_front(), &mut self.messages) {
            (None, Some(messages)) => messages.recv().await,
            (envelope, _) => envelope,
        };
        envelope.map(Envelope::into_message)
    }

    /// Removes everything.
    pub async fn down(mut self) {
        tracing::info!("going down");
        self.note(EventKind::Down, "", "");
        self.close_switches().await;
        self.programs.remove_all().await;
        self.functions.stop_all();
        self.guests.stop_all().await;
        // Programs are told that their rings are closed when `data` does not use their buffers any more.
        if let Some(data) = self.data.take() {
            data.stop().await;
        }
        for live in std::mem::take(&mut self.running_ports).into_values() {
            live.close().await;
        }
        self.hosts.remove_all().await;
        drop(self.run);
    }

    /// Changes the fabric to `target`; if that fails, changes it back. Returns the changes in words.
    pub async fn move_to(&mut self, target: &Fabric) -> Result<Vec<String>, EngineError> {
        if let Some(what) = change::fixed(&self.fabric, target) {
            return Err(EngineError::Fixed(what));
        }
        self.describe_flows();
        let before = self.fabric.clone();
        let changes = change::between(&before, target, self.host.kinds);
        self.check_flows(&changes, target)?;
        let moving = changes.iter().find_map(|change| match change {
            Change::RemoveGuest(name) => self.guests.is_moving(name).then(|| name.clone()),
            _ => None,
        });
        if let Some(name) = moving {
            return Err(GuestError::Moving(name).into());
        }
        let added = changes.iter().filter_map(|change| match change {
            Change::AddGuest(guest) => Some(guest),
            Change::StartGuest(guest) => self.guests.running(&guest.name).is_err().then_some(guest),
            _ => None,
        });
        let added: Vec<_> = added.collect();
        self.await_with_queries(guests::check(added.into_iter(), target, self.host.kinds)).await?;
        self.fabric.start_limit = target.start_limit;
        let mut failed = None;
        self.announce_ports(target);
        if let Err(error) = self.make_all(&changes, target).await {
            tracing::error!(%error, "undoing");
            self.announce_ports(&before);
            for change in change::between(&self.fabric, &before, self.host.kinds) {
                if let Err(error) = self.make(&change, &before).await {
                    tracing::error!(%error, "{change} failed");
                }
            }
            failed = Some(error);
        }
        self.announced_ports.clear();
        self.hold_first_frames();
        let now = if failed.is_some() { &before } else { target };
        self.sort_as(now);
        self.guests.forget_users(now);
        failed.map_or_else(|| Ok(changes.iter().map(ToString::to_string).collect()), Err)
    }

    /// Makes all changes, until one fails. A function that they start, and that does not come up, is a failure too.
    async fn make_all(&mut self, changes: &[Change], target: &Fabric) -> Result<(), EngineError> {
        let mut started = Vec::new();
        for change in changes {
            tracing::info!("{change}");
            let function = match change {
                Change::AddFunction(function) => Some(function),
                // A running function has refused a wrong configuration already.
                Change::SwapFunction(function) => {
                    let has_ended = self.functions.phase(&function.name) == Phase::Ended;
                    has_ended.then_some(function)
                }
                _ => None,
            };
            let starts = |function: &&Function| function.start && !function.first_frame;
            started.extend(function.filter(starts).map(|function| function.name.clone()));
            let made = self.make(change, target).await;
            made.inspect_err(|error| tracing::error!(%error, "{change} failed"))?;
        }
        self.await_functions(&started).await
    }

    /// Announces the ports of functions that a change to `target` adds and that start with their first frame: from
    /// then on, frames for them wait.
    fn announce_ports(&mut self, target: &Fabric) {
        let is_new =
            |function: &&Function| function.first_frame && self.fabric.function(&function.name).is_none();
        self.announced_ports =
            target.functions.iter().filter(is_new).flat_map(Function::fabric_ports).collect();
    }

    /// Sorts lists into the order of a file, which is the order in which the API shows them, and takes its chains and
    /// its limit.
    fn sort_as(&mut self, file: &Fabric) {
        let place = |names: Vec<&str>, name: &str| names.iter().position(|other| *other == name);
        self.fabric
            .ports
            .sort_by_key(|port| place(file.ports.iter().map(|p| &*p.name).collect(), &port.name));
        let switches = || file.switches.iter().map(|switch| &*switch.name).collect();
        self.fabric.switches.sort_by_key(|switch| place(switches(), &switch.name));
        self.fabric.chains.clone_from(&file.chains);
        for guest in &mut self.fabric.guests {
            guest.start = file.guest(&guest.name).map_or(guest.start, |own| own.start);
        }
        self.fabric.start_limit = file.start_limit;
        self.is_changed = true;
    }

    async fn make(&mut self, change: &Change, target: &Fabric) -> Result<(), EngineError> {
        match change {
            // An error means that the guest doesn't exist, as wanted.
            Change::RemoveGuest(name) => {
                if let Ok(Some(ending)) = self.guests.remove(name) {
                    // A panic of the task was reported by its thread.
                    let _ = self.await_with_queries(ending).await;
                }
            }
            Change::RemovePort(name) => self.remove_port(name).await,
            Change::RemoveSwitch(name) => {
                self.call(name, Request::RemoveSwitch { name: name.clone() }).await?;
                self.flows.remove(name);
                self.keeper.close(&table_slot(name));
            }
            Change::AddSwitch(switch) => {
                self.keeper.open(&table_slot(&switch.name), 0);
                self.begin_flows(switch, target)?;
                let added = Request::AddSwitch(self.switch_for_data(switch));
                self.call(&switch.name, added).await.map(drop)?;
            }
            Change::SetFlows(switch) => self.set_flows(switch).await?,
            Change::SetOpening(name, open) => self.set_opening(name, open.as_ref()).await?,
            Change::RemoveHost(name) => self.hosts.remove(name),
            Change::AddHost(name) => {
                let namespace = run_dir::namespace(self.run.path(), name);
                self.hosts.add(name, self.run.host(name), namespace)?;
            }
            Change::RunPrograms(host) => self.hosts.run(host)?,
            Change::RemoveProgram(name) => {
                let ending = self.programs.remove(name);
                self.await_with_queries(ending).await;
            }
            Change::AddProgram(program) => self.add_program(program, target)?,
            Change::AddPort(port) => {
                let owned = self.guests.own(port, target)?;
                self.add_port(port, &owned).await?;
            }
            Change::MovePort(port) => self.move_port(port).await?,
            Change::SetPort(port) => self.change_port(port).await?,
            Change::Join(join) => self.join(join).await?,
            Change::StartGuest(guest) => self.guests.start_stopped(&guest.name).await?,
            Change::AddGuest(guest) => self.guests.add(guest, target, self.run.guest(&guest.name))?,
            Change::RemoveFunction(name) => {
                // The function may be added again, with other settings.
                let again = target.function(name).filter(|function| function.first_frame);
                self.announced_ports.extend(again.into_iter().flat_map(Function::fabric_ports));
                self.hold_first_frames();
                drop(self.functions.remove(name));
            }
            Change::AddFunction(function) => {
                self.functions.add(function, target, &self.run.functions())?;
            }
            Change::SwapFunction(function) => {
                let (name, to) = (&function.name, &function.configuration);
                // Attack: a function that does not answer, while others wait for the engine.
                let swapping = self.functions.swap(name, to)?;
                let taken_over = self.await_with_queries(swapping).await;
                self.functions.swapped(name, to, taken_over)?;
            }
        }
        change::apply(&mut self.fabric, change);
        self.note(EventKind::Change, change.name(), &change.to_string());
        // While the fabric comes up, no port has a peer.
        if self.messages.is_some() {
            self.hold_first_frames();
        }
        self.assign_instances();
        Ok(())
    }

    /// Notes what has happened to the object `name`.
    fn note(&self, kind: EventKind, name: &str, text: &str) {
        self.inbox.event_log().note(kind, name, text);
    }

    /// Sends a request about `what` to `data`, and waits for the reply.
    async fn call(&mut self, what: &str, request: Request) -> Result<proto::Reply, EngineError> {
        self.call_with(what, request, Vec::new()).await
    }

    async fn call_with(
        &mut self,
        what: &str,
        request: Request,
        descriptors: Vec<OwnedFd>,
    ) -> Result<proto::Reply, EngineError> {
        let failed = |error| EngineError::Data(what.into(), error);
        let data = self.data.as_mut().ok_or(DataError::Gone).map_err(failed)?;
        let answered = data.call(request, descriptors).map_err(failed)?;
        self.await_with_queries(answered).await.map_err(failed)
    }

    /// Awaits a future during a change. Queries are answered meanwhile; orders and events wait until the change is
    /// done.
    async fn await_with_queries<T>(&mut self, what: impl Future<Output = T>) -> T {
        let mut what = Box::pin(what);
        loop {
            let Some(messages) = &mut self.messages else { return what.await };
            let envelope = tokio::select! {
                biased;
                done = &mut what => return done,
                envelope = messages.recv() => envelope,
            };
            match envelope {
                Some(envelope) => self.query(envelope).await,
                None => self.messages = None,
            }
        }
    }

    /// Answers a query during a change; other messages wait until it is done.
    async fn query(&mut self, envelope: Envelope) {
        let (message, slot) = envelope.into_parts();
        let rest = match message {
            Message::EngineRequest(ask) => self.question(ask).await.map(Message::EngineRequest),
            other => Some(other),
        };
        self.backlog.extend(rest.map(|message| slot.hold(message)));
    }

    /// Sends a request about a port to `data` without waiting; `then` is called with the result.
    fn post(
        &mut self,
        request: Request,
        descriptors: Vec<OwnedFd>,
        then: impl FnOnce(Result<(), DataError>) + Send + 'static,
    ) {
        match self.data.as_mut().ok_or(DataError::Gone).and_then(|data| data.post(request, descriptors)) {
            Ok(posted) => drop(tokio::spawn(async { then(posted.await.map(drop)) })),
            Err(error) => then(Err(error)),
        }
    }

    async fn start_data(&mut self, generation: u64) -> Result<(), EngineError> {
        let (data, own, new) = self.spawn_data(generation)?;
        new.register(&self.keeper);
        self.data = Some(self.begin_data(data, own).await?);
        self.forget_assignment(None);
        Ok(())
    }

    fn spawn_data(&mut self, generation: u64) -> Result<Spawned, EngineError> {
        let program = (self.standby.take(), &*self.program.data);
        let spawned = Data::spawn(generation, program, self.inbox.clone(), &self.keeper);
        spawned.map_err(|error| EngineError::Data("the data process".into(), error))
    }

    /// Starts the next `data` process, which waits, and looks again later whether it does.
    fn look_at_standby(&mut self) {
        self.prepare_data();
        later(&self.inbox, LOOK_INTERVAL, Message::LookAtStandby);
    }

    fn prepare_data(&mut self) {
        self.standby.take_if(|standby| !standby.is_there());
        if self.standby.is_none() && self.data.is_some() {
            let standby = Standby::start(&self.program.data);
            self.standby = standby.inspect_err(|error| tracing::warn!(%error, "no data process waits")).ok();
        }
    }

    /// Gives a new `data` process its first request.
    async fn begin_data(&mut self, mut data: Data, own: [OwnedFd; 2]) -> Result<Data, EngineError> {
        let failed = |error| EngineError::Data("the data process".into(), error);
        self.data_started = Instant::now();
        let workers = self.fabric.workers.clone();
        let start = Request::Start { workers, counters: self.page.entries() };
        let [records, notice] = own;
        let descriptors = vec![self.page.share()?, records, notice];
        data.call(start, descriptors).map_err(failed)?.await.map_err(failed)?;
        tracing::info!(pid = data.pid, "the data process is up");
        later(&self.inbox, PREPARE_AFTER, Message::PrepareData);
        Ok(data)
    }

    fn data_ended(&mut self, generation: u64, status: ExitStatus) {
        if self.data.as_ref().is_none_or(|data| data.generation != generation) {
            return;
        }
        self.quick_ends = if self.data_started.elapsed() > STABLE_RUN {
            0
        } else {
            (self.quick_ends + 1).min(RESTART_DELAYS.len() - 1)
        };
        let wait = RESTART_DELAYS[self.quick_ends.saturating_sub(1)];
        tracing::error!(%status, wait_ms = wait, "the data process ended; starting it again");
        self.note(EventKind::DataEnded, "", &status.to_string());
        self.data = None;
        self.held_ports.clear();
        let gone = self.functions.data_ended();
        self.forget_functions(gone);
        self.find_suspects(status);
        later(&self.inbox, Duration::from_millis(wait), Message::StartData);
    }

    /// Restarts `data` and restores its switches, ports and peers.
    async fn restart_data(&mut self) {
        self.restarts += 1;
        if let Err(error) = self.start_data(self.restarts + 1).await {
            tracing::error!(%error);
            let inbox = self.inbox.clone();
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let _ = inbox.send(Message::StartData);
            });
            return;
        }
        for switch in self.switches_for_data() {
            let name = switch.name.clone();
            if let Err(error) = self.call(&name, Request::AddSwitch(switch)).await {
                tracing::error!(%error, "switch {name} is lost");
            }
        }
        self.resume_ports().await;
        self.resume_captures().await;
        let pid = self.data.as_ref().map_or(0, |data| data.pid);
        self.note(EventKind::DataResumed, "", &format!("process {pid}"));
    }
}
