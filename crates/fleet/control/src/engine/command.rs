//! Requests of the API to the engine.

use super::{Engine, EngineError, FlowRequest, MigrationRequest, ObjectOrder, Step, TracedStep, opened};
use crate::api::{
    ChainView, Changes, Departure, ErrorBody, ExitsView, FabricView, FunctionView, GroupEntryView,
    GroupsView, GuestView, HostView, LinkChange, LinkView, NewClone, NewFabric, PortView, ProblemView,
    ProgramView, SavedFabric, SnapshotView, StatsView, TableEntryView, TableView,
};
use crate::captures::{Begun, CaptureRequest};
use crate::change;
use crate::events::EventKind;
use crate::file::{self, Described, Fabric, Outside};
use crate::functions::{FunctionError, Functions};
use crate::guests::GuestError;
use crate::kinds;
use crate::programs::Order;
use crate::snapshots::{SnapshotError, Taken};
use crate::upgrade::Running;
use axum::http::StatusCode;
use ringway_fabric::proto::{Profile, Reply, Request};
use ringway_linux_guests::Guest;
use ringway_spec::{Configuration, Function, Port, names};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Why a request failed.
#[derive(Debug)]
pub enum Failure {
    /// The named object does not exist.
    Unknown(ErrorBody),
    /// The request or the fabric file has errors.
    Wrong(ErrorBody),
    /// The request conflicts with the current state.
    Conflict(ErrorBody),
    /// The request is malformed; the HTTP status gives the reason.
    Request(u16, ErrorBody),
    /// The fabric is going down.
    Down,
}

impl Failure {
    /// [`Failure::Unknown`] with this reason.
    pub fn unknown(error: impl ToString) -> Failure {
        Failure::Unknown(ErrorBody::new(error))
    }

    /// [`Failure::Wrong`] with this reason.
    pub fn wrong(error: impl ToString) -> Failure {
        Failure::Wrong(ErrorBody::new(error))
    }

    /// [`Failure::Conflict`] with this reason.
    pub fn conflict(error: impl ToString) -> Failure {
        Failure::Conflict(ErrorBody::new(error))
    }

    /// [`Failure::Request`] with this status and reason.
    pub fn request(status: StatusCode, error: impl ToString) -> Failure {
        Failure::Request(status.as_u16(), ErrorBody::new(error))
    }

    /// The reason, for people.
    pub fn reason(self) -> String {
        match self {
            Failure::Unknown(body)
            | Failure::Wrong(body)
            | Failure::Conflict(body)
            | Failure::Request(_, body) => body.error,
            Failure::Down => "the fabric is going down".into(),
        }
    }
}

/// The channel for a request's answer.
pub type Answer<T> = oneshot::Sender<Result<T, Failure>>;

/// A query or an order, with the channel for its answer.
#[derive(Debug)]
pub enum EngineRequest {
    /// The fabric as a whole.
    Fabric(Answer<FabricView>),
    /// The fabric as it is described now.
    Described(Answer<Box<Fabric>>),
    /// Its ports.
    Ports(Answer<Vec<PortView>>),
    /// Its counters.
    Stats(Answer<StatsView>),
    /// Its emulated links.
    Links(Answer<Vec<LinkView>>),
    /// Change the settings of a link.
    SetLink(String, LinkChange, Answer<LinkView>),
    /// Exits of a port.
    Exits(String, Answer<ExitsView>),
    /// Where the data path's time went; workers measure their stages for so many nanoseconds from now on.
    Profile(u64, Answer<Profile>),
    /// The number of addresses that each switch knows.
    AddressCounts(Answer<BTreeMap<String, u64>>),
    /// The address table of a switch.
    Table(String, Answer<TableView>),
    /// The members of groups that a switch knows.
    Groups(String, Answer<GroupsView>),
    /// The flow tables of a switch.
    Flows(String, FlowRequest),
    /// Its hosts.
    Hosts(Answer<Vec<HostView>>),
    /// Its programs.
    Programs(Answer<Vec<ProgramView>>),
    /// Give a program an order.
    OrderProgram(String, Order, Answer<()>),
    /// Its guests.
    Guests(Answer<Vec<GuestView>>),
    /// Start a guest.
    StartGuest(String, Answer<()>),
    /// Stop a guest.
    StopGuest(String, Answer<()>),
    /// The handle of a running guest.
    Guest(String, Answer<Arc<Guest>>),
    /// Migrate a guest.
    Migration(MigrationRequest),
    /// Its functions.
    Functions(Answer<Vec<FunctionView>>),
    /// Its chains.
    Chains(Answer<Vec<ChainView>>),
    /// Start a function.
    StartFunction(String, Answer<()>),
    /// Stop a function.
    StopFunction(String, Answer<()>),
    /// Create a function and start it.
    CreateFunction(Box<Described>, Answer<()>),
    /// Stop a function and forget it.
    DestroyFunction(String, Answer<()>),
    /// Take a snapshot of a function.
    Snapshot(String, String, Answer<()>),
    /// All snapshots.
    Snapshots(Answer<Vec<SnapshotView>>),
    /// Remove a snapshot.
    Forget(String, Answer<()>),
    /// Stop a function, so that it can go on in another fabric.
    Depart(String, Answer<Departure>),
    /// Let a function of another fabric go on here.
    Arrive(Departure, Box<Function>, Answer<()>),
    /// Create a clone of a snapshot and start it.
    Clone(String, NewClone, Answer<()>),
    /// Suspend a function, or resume it.
    SuspendFunction(String, bool, Answer<()>),
    /// A function has taken over this configuration, in the launch of that number; 0 if it did not run.
    UpdatedFunction(String, u64, Configuration, Answer<()>),
    /// Path of the socket for a running function's handlers, and the number of the launch that answers there.
    Handlers(String, Answer<(PathBuf, u64)>),
    /// Turn a port's carrier on or off.
    SetCarrier(String, bool, Answer<()>),
    /// Add or remove a switch or a port.
    ChangeObjects(ObjectOrder, Answer<()>),
    /// Trace a frame to the next ports.
    Trace(Box<Step>, Answer<TracedStep>),
    /// Begin a capture.
    Capture(Box<CaptureRequest>, Answer<Begun>),
    /// End a capture.
    EndCapture(u64, Answer<()>),
    /// The file that describes what runs.
    Saved(Answer<SavedFabric>),
    /// Change the fabric to this file.
    Become(NewFabric, Answer<Changes>),
    /// What the fabric has, for a program to which it shall move.
    Running(Answer<Box<Running>>),
    /// Leave the fabric to the program in the first descriptor; the second is who waits for it.
    Upgrade([OwnedFd; 2], Answer<()>),
    /// Shut the fabric down.
    Shutdown(Answer<()>),
}

impl Engine {
    /// Answers a query; an order is returned unchanged.
    pub(super) async fn question(&mut self, ask: EngineRequest) -> Option<EngineRequest> {
        // The client may have disconnected before its answer is ready.
        match ask {
            EngineRequest::Fabric(answer) => drop(answer.send(Ok(self.fabric_view().await))),
            EngineRequest::Running(answer) => drop(answer.send(Ok(Box::new(self.running())))),
            EngineRequest::Described(answer) => drop(answer.send(Ok(Box::new(self.fabric.clone())))),
            EngineRequest::Ports(answer) => drop(answer.send(Ok(self.port_views().await))),
            EngineRequest::Stats(answer) => drop(answer.send(self.stats().map_err(Failure::conflict))),
            EngineRequest::Links(answer) => {
                let views = self.link_views().await;
                drop(answer.send(views.map_err(Failure::conflict)));
            }
            EngineRequest::AddressCounts(answer) => drop(answer.send(Ok(self.address_counts().await))),
            EngineRequest::Hosts(answer) => drop(answer.send(Ok(self.host_views().await))),
            EngineRequest::Programs(answer) => drop(answer.send(Ok(self.program_views()))),
            EngineRequest::Guests(answer) => drop(answer.send(Ok(self.guests.view()))),
            EngineRequest::Functions(answer) => drop(answer.send(Ok(self.functions.view()))),
            EngineRequest::Snapshots(answer) => drop(answer.send(Ok(self.functions.snapshots()))),
            EngineRequest::Chains(answer) => drop(answer.send(Ok(self.chain_views()))),
            order => return Some(order),
        }
        None
    }

    pub(super) async fn answer(&mut self, ask: EngineRequest) {
        let Some(order) = self.question(ask).await else { return };
        match order {
            EngineRequest::SetLink(name, change, answer) => {
                drop(answer.send(self.set_link(&name, change).await))
            }
            EngineRequest::Exits(name, answer) => drop(answer.send(self.exits(name).await)),
            EngineRequest::Profile(time, answer) => drop(answer.send(self.profile(time).await)),
            EngineRequest::Table(name, answer) => drop(answer.send(self.table(name).await)),
            EngineRequest::Groups(name, answer) => drop(answer.send(self.groups(name).await)),
            EngineRequest::Flows(name, request) => self.flow_request(name, request).await,
            EngineRequest::Trace(step, answer) => drop(answer.send(self.trace(*step).await)),
            EngineRequest::StartGuest(name, answer) => {
                drop(answer.send(self.guests.start_checked(&name).await.map_err(guest_failure)))
            }
            EngineRequest::StopGuest(..) | EngineRequest::Migration(_) => self.guest_order(order).await,
            EngineRequest::Guest(name, answer) => {
                drop(answer.send(self.guests.running(&name).map_err(guest_failure)))
            }
            EngineRequest::OrderProgram(name, order, answer) => {
                drop(answer.send(self.order_program(&name, order)))
            }
            EngineRequest::SetCarrier(name, carrier, answer) => {
                drop(answer.send(self.set_carrier(&name, carrier).await));
            }
            EngineRequest::ChangeObjects(order, answer) => {
                drop(answer.send(self.change_objects(order).await))
            }
            EngineRequest::Capture(request, answer) => {
                if let Err(Ok(Begun { number, .. })) = answer.send(self.begin_capture(*request).await) {
                    self.end_capture(number).await;
                }
            }
            EngineRequest::EndCapture(number, answer) => {
                self.end_capture(number).await;
                drop(answer.send(Ok(())));
            }
            EngineRequest::Saved(answer) => drop(answer.send(self.saved().await)),
            EngineRequest::Become(new, answer) => {
                let changes = self.apply(new).await;
                let settled = self.hosts.settled();
                // Its client waits until what ran in hosts has ended, which may take seconds; others don't.
                tokio::spawn(async move {
                    settled.await;
                    let _ = answer.send(changes);
                });
            }
            order => self.function_order(order).await,
        }
    }

    /// Carries out an order about a function.
    async fn function_order(&mut self, order: EngineRequest) {
        match order {
            EngineRequest::StartFunction(name, answer) => {
                drop(answer.send(self.functions.start(&name).map_err(Failure::from)))
            }
            EngineRequest::StopFunction(name, answer) => {
                drop(answer.send(self.functions.stop(&name).map_err(Failure::from)))
            }
            EngineRequest::CreateFunction(new, answer) => self.create_function(*new, answer).await,
            EngineRequest::DestroyFunction(name, answer) => drop(answer.send(self.destroy_function(&name))),
            EngineRequest::Snapshot(name, new, answer) => match names::name(&new) {
                Ok(_) => self.functions.snapshot(&name, &new, answer),
                Err((what, fix)) => {
                    drop(answer.send(Err(Failure::wrong(format!("{what}; {fix}")))));
                }
            },
            EngineRequest::Forget(name, answer) => {
                drop(answer.send(self.functions.forget(&name).map_err(Failure::from)))
            }
            EngineRequest::Clone(snapshot, new, answer) => self.create_clone(&snapshot, new, answer),
            EngineRequest::Depart(name, answer) => self.depart(&name, answer),
            EngineRequest::Arrive(departure, function, answer) => self.arrive(departure, *function, answer),
            EngineRequest::SuspendFunction(name, suspend, answer) => {
                drop(answer.send(self.suspend_function(&name, suspend).map_err(Failure::from)))
            }
            EngineRequest::UpdatedFunction(name, launch, new, answer) => {
                drop(answer.send(self.updated_function(&name, launch, new).map_err(Failure::from)))
            }
            EngineRequest::Handlers(name, answer) => {
                drop(answer.send(self.functions.socket(&name).map_err(Failure::from)))
            }
            // `serve` handles `Shutdown` and `Upgrade`, and `question` answered the queries.
            _ => {}
        }
    }

    /// Carries out an order about a guest.
    async fn guest_order(&mut self, order: EngineRequest) {
        match order {
            EngineRequest::StopGuest(name, answer) => {
                drop(answer.send(self.guests.stop_settled(&name).map_err(guest_failure)));
            }
            EngineRequest::Migration(ask) => self.migration(ask).await,
            // Others are carried out elsewhere.
            _ => {}
        }
    }

    pub(super) fn port(&self, name: &str) -> Result<&Port, Failure> {
        let unknown = || Failure::unknown(format!("there is no port \"{name}\"; see `ringway ps`"));
        self.fabric.port(name).ok_or_else(unknown)
    }

    async fn set_carrier(&mut self, name: &str, carrier: bool) -> Result<(), Failure> {
        let port = self.port(name)?.clone();
        if carrier && self.restore_port(&port).await? {
            return Ok(());
        }
        let changed = kinds::find(port.kind.name(), self.host.kinds);
        let changed = changed.and_then(|kind| kind.with_carrier(&port, carrier)).ok_or_else(|| {
            Failure::conflict(format!(
                "port \"{name}\" has no carrier; ports of kinds \"e1000\" and \"vhost-user\" have"
            ))
        })?;
        let mut target = self.fabric.clone();
        target.ports.iter_mut().filter(|port| port.name == name).for_each(|port| port.clone_from(&changed));
        self.move_to(&target).await.map(drop).map_err(Failure::conflict)
    }

    async fn exits(&mut self, name: String) -> Result<ExitsView, Failure> {
        self.port(&name)?;
        let reply = self.call(&name, Request::Exits { port: name.clone() }).await;
        match reply.map_err(Failure::conflict)? {
            Reply::Exits(Some(exits)) => Ok(ExitsView::of(name, exits)),
            _ => Err(Failure::conflict(format!(
                "port \"{name}\" has no registers; ports of kind \"e1000\" have"
            ))),
        }
    }

    async fn profile(&mut self, time: u64) -> Result<Profile, Failure> {
        let reply = self.call("the profile", Request::Profile { time }).await;
        match reply.map_err(Failure::conflict)? {
            Reply::Profile(profile) => Ok(profile),
            _ => Err(Failure::conflict("the data process has no profile")),
        }
    }

    /// Checks that there is a switch.
    pub(super) fn has_switch(&self, name: &str) -> Result<(), Failure> {
        if !self.fabric.switches.iter().any(|switch| switch.name == name) {
            let names: Vec<&str> = self.fabric.switches.iter().map(|switch| &*switch.name).collect();
            let known = if names.is_empty() { "none".into() } else { names.join(", ") };
            return Err(Failure::unknown(format!("there is no switch \"{name}\"; there is {known}")));
        }
        Ok(())
    }

    async fn groups(&mut self, name: String) -> Result<GroupsView, Failure> {
        self.has_switch(&name)?;
        let reply = self.call(&name, Request::Groups { switch: name.clone() }).await;
        let known = match reply.map_err(Failure::conflict)? {
            Reply::Groups(known) => known,
            _ => None,
        };
        let view = |entry: ringway_fabric::proto::GroupEntry| GroupEntryView {
            vlan: entry.vlan,
            group: entry.group.map(|group| group.to_string()),
            port: entry.port,
            left: entry.left,
        };
        let (snooping, known) = (known.is_some(), known.into_iter().flatten());
        Ok(GroupsView { switch: name, snooping, entries: known.map(view).collect() })
    }

    async fn table(&mut self, name: String) -> Result<TableView, Failure> {
        self.has_switch(&name)?;
        let reply = self.call(&name, Request::Table { switch: name.clone() }).await;
        let entries = match reply.map_err(Failure::conflict)? {
            Reply::Table(entries) => entries,
            _ => Vec::new(),
        };
        let view = |entry: ringway_fabric::proto::TableEntry| TableEntryView {
            mac: entry.mac,
            vlan: entry.vlan,
            port: entry.port,
            age: entry.age,
        };
        Ok(TableView { switch: name, entries: entries.into_iter().map(view).collect() })
    }

    async fn create_function(&mut self, described: Described, answer: Answer<()>) {
        let table = described.table().to_string();
        let function = match file::read_function(described, &mut self.fabric, &self.host) {
            Ok(function) => self.loaded(function).await,
            Err(wrong) => Err(wrong),
        };
        let function = match function {
            Ok(function) => function,
            Err(wrong) => return drop(answer.send(Err(Failure::wrong(wrong)))),
        };
        let folder = self.run.functions();
        if function.start && !function.first_frame {
            if self.functions.create(&function, &self.fabric, &folder, answer) {
                self.added.insert(file::table_name("function", &function.name), table);
                self.fabric.functions.push(function);
                self.is_changed = true;
            }
            return;
        }
        let added = self.functions.add(&function, &self.fabric, &folder);
        if added.is_ok() {
            self.added.insert(file::table_name("function", &function.name), table);
            self.fabric.functions.push(function);
            self.is_changed = true;
            self.hold_first_frames();
        }
        // Who asked may be gone.
        drop(answer.send(added.map_err(Failure::from)));
    }

    /// The function with the files that it names, which are relative to the folder of the fabric file.
    async fn loaded(&mut self, function: Function) -> Result<Function, String> {
        if function.file().is_none() {
            return Ok(function);
        }
        let (file, check) = (self.file.clone(), self.program.check);
        let load = move || {
            let folder = Path::new(&file).parent().unwrap_or(Path::new("/"));
            file::load_function(function, &Outside::of_this_host(folder, &check))
        };
        tokio::task::spawn_blocking(load).await.map_err(|error| error.to_string())?
    }

    fn create_clone(&mut self, snapshot: &str, new: NewClone, answer: Answer<()>) {
        let NewClone { name, ports } = new;
        let function = match self.functions.clone_of(snapshot, &name, ports) {
            Ok(function) => function,
            Err(error) => return drop(answer.send(Err(error.into()))),
        };
        if let Err(wrong) = file::check_function(&function, &mut self.fabric, &self.host) {
            return drop(answer.send(Err(Failure::wrong(wrong))));
        }
        let folder = self.run.functions();
        if self.functions.create_clone(snapshot, &function, &self.fabric, &folder, answer) {
            self.fabric.functions.push(function);
            self.is_changed = true;
        }
    }

    fn depart(&mut self, name: &str, answer: Answer<Departure>) {
        match self.fabric.chain_of(name) {
            Some(chain) => {
                let error = FunctionError::Chained(name.into(), chain.name.clone());
                drop(answer.send(Err(error.into())));
            }
            None => self.functions.depart(name, answer),
        }
    }

    fn arrive(&mut self, departure: Departure, function: Function, answer: Answer<()>) {
        let taken = match self.arriving(departure, &function) {
            Ok(taken) => taken,
            Err(wrong) => return drop(answer.send(Err(Failure::wrong(wrong)))),
        };
        let folder = self.run.functions();
        if self.functions.arrive(taken, &function, &self.fabric, &folder, answer) {
            self.fabric.functions.push(function);
            self.is_changed = true;
        }
    }

    /// Checks a function that arrives, before its memory is looked for.
    fn arriving(&mut self, departure: Departure, function: &Function) -> Result<Arc<Taken>, String> {
        file::check_function(function, &mut self.fabric, &self.host)?;
        Functions::arriving(departure, function)
    }

    fn destroy_function(&mut self, name: &str) -> Result<(), Failure> {
        if let Some(chain) = self.fabric.chain_of(name) {
            return Err(FunctionError::Chained(name.into(), chain.name.clone()).into());
        }
        self.functions.remove(name)?;
        self.fabric.functions.retain(|function| function.name != name);
        self.added.remove(&file::table_name("function", name));
        self.is_changed = true;
        Ok(())
    }

    /// Suspends a function, or lets it go on, with all its instances.
    fn suspend_function(&mut self, name: &str, suspend: bool) -> Result<(), FunctionError> {
        self.functions.suspend(name, suspend)?;
        for other in self.fabric.members(name).filter(|other| other.name != name) {
            // The function may not run.
            let _ = self.functions.suspend(&other.name, suspend);
        }
        Ok(())
    }

    fn updated_function(&mut self, name: &str, launch: u64, new: Configuration) -> Result<(), FunctionError> {
        let configuration = self.functions.updated(name, launch, new)?;
        let function = self.fabric.functions.iter_mut().find(|function| function.name == name);
        function.into_iter().for_each(|function| function.configuration = configuration.clone());
        self.is_changed = true;
        Ok(())
    }

    /// The changes that would lead to another state.
    fn differences(&self, target: &Fabric) -> Result<Changes, Failure> {
        if let Some(what) = change::fixed(&self.fabric, target) {
            return Err(Failure::conflict(EngineError::Fixed(what)));
        }
        let changes = change::between(&self.fabric, target, self.host.kinds);
        let mut changes: Vec<String> = changes.iter().map(ToString::to_string).collect();
        changes.extend((self.fabric.placement != target.placement).then(|| "change placement".into()));
        Ok(Changes { changes })
    }

    async fn apply(&mut self, new: NewFabric) -> Result<Changes, Failure> {
        let host = file::Host { run: Some(self.run.path().into()), ..self.host.clone() };
        let (name, text) = (new.file.clone(), new.text.clone());
        let check = self.program.check;
        // Checking the file starts plugin hosts, which blocks for a moment.
        let read = tokio::task::spawn_blocking(move || {
            let folder = Path::new(&name).parent().unwrap_or(Path::new("/"));
            file::read_with(&name, &text, &host, Some(&Outside::of_this_host(folder, &check))).map_err(
                // Finding the lines of many problems in a long file takes a while.
                |problems| ErrorBody { error: problems.to_string(), problems: ProblemView::list(&problems) },
            )
        });
        let read = self.await_with_queries(read).await.map_err(Failure::conflict)?;
        let target = read.map_err(Failure::Wrong)?;
        let folder = Path::new(&new.file).parent().unwrap_or(Path::new("/"));
        let mut target = target.resolve(self.run.path(), folder);
        // Name and run directory were fixed when the fabric came up.
        target.name.clone_from(&self.fabric.name);
        target.run.clone_from(&self.fabric.run);
        opened::keep_opened(&self.fabric, &mut target);
        if new.dry_run {
            return self.differences(&target);
        }
        let changes = self.move_to(&target).await.map_err(Failure::conflict)?;
        (self.file, self.text, self.is_changed) = (new.file, new.text, true);
        self.added.clear();
        self.note(EventKind::Apply, &self.file, &format!("{} changes", changes.len()));
        let mut changes = Changes { changes };
        let (place, placement) = (self.place.clone(), target.placement.clone());
        changes
            .changes
            .extend(self.await_with_queries(async move { place.apply_file(placement).await }).await);
        self.fabric.placement = target.placement;
        Ok(changes)
    }
}

pub(super) fn guest_failure(error: GuestError) -> Failure {
    match error {
        GuestError::Unknown(_) => Failure::unknown(error),
        _ => Failure::conflict(error),
    }
}

impl From<FunctionError> for Failure {
    fn from(error: FunctionError) -> Failure {
        match error {
            FunctionError::Unknown(_) | FunctionError::Snapshot(SnapshotError::Unknown(_)) => {
                Failure::unknown(error)
            }
            FunctionError::Stillborn(..) | FunctionError::Snapshot(SnapshotError::Ports { .. }) => {
                Failure::wrong(error)
            }
            _ => Failure::conflict(error),
        }
    }
}
