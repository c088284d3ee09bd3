//! Running ports: adding them to `data`, attaching and detaching their peers, removing them.

use super::{Engine, EngineError, Message, later};
use crate::data::DataError;
use crate::events::EventKind;
use crate::file::Fabric;
use crate::keeper::Keeper;
use crate::kinds::{self, PortControl};
use crate::open::{self, Adopted, OpenError, Opener, PeerEvent, What};
use crate::pages;
use ringway_fabric::proto::{ArrivalStep, DepartureStep, Event, PortState, Reply, Request};
use ringway_fabric::{LogLimit, committed_tables, table_slot};
use ringway_host::{BackgroundClose, on_node};
use ringway_spec::{Port, To};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// A reply of `data` that has not come yet.
type PendingReply = Pin<Box<dyn Future<Output = Result<Reply, DataError>> + Send>>;

/// Descriptors in a peer's records: of memory, channels and the log, and for each queue's two rings. A peer with more
/// can't go on after a restart of `data`.
const MEMORY_DESCRIPTORS: usize = 72;
const RING_DESCRIPTORS: usize = 6;
/// How long all ports wait until peers are attached to a restarted `data`. Attack: a peer whose memory blocks.
const RESUME_TIMEOUT: Duration = Duration::from_secs(2);
/// Most ends of `data` in a row, each soon after its start, until peers must connect again.
const MAX_QUICK_ENDS: usize = 3;
/// Delay before the request that lets frames pass is repeated.
const HOLD_RETRY: Duration = Duration::from_millis(100);

/// Ports that were added to another `data` process.
pub(super) struct ResumingPorts {
    names: Vec<String>,
    /// The replies to the requests, by port.
    added: Vec<(String, PendingReply)>,
}

/// Run-time state of a port, in addition to its configuration.
pub struct RunningPort {
    name: String,
    keeper: Keeper,
    /// Index of its first entry in the counters page.
    pub counters: u32,
    /// Number of its entries in the counters page.
    pub queues: u16,
    /// The task that accepts or connects its peers.
    opener: Option<Opener>,
    /// Number of that opener; events of earlier openers are ignored.
    epoch: u64,
    /// Serial number of its peer; 0 if it has none.
    serial: u64,
    /// Duplicates of the descriptors that `data` has, if a restarted `data` can continue with them.
    peer_descriptors: Vec<OwnedFd>,
    closer: BackgroundClose,
    /// The state that `data` last reported.
    pub state: Option<PortState>,
    /// Why it has no peer, or lost its last one.
    pub reason: String,
    /// Whether `data` has its peer.
    pub attached: bool,
    /// Number of programs connected to a pipe.
    pub programs: usize,
    /// The last peer was detached because it used too much time; the next peer is admitted after a delay.
    is_delayed: bool,
    /// Rate limit of its log messages, except for those about faults.
    log: LogLimit,
    /// Rate limit of log messages about faults of its peers.
    faults: LogLimit,
}

impl RunningPort {
    /// A port without a peer and without an opener yet; `entries` are those of the counters page.
    pub(super) fn new(
        name: &str,
        (counters, queues): (u32, u16),
        epoch: u64,
        keeper: &Keeper,
    ) -> RunningPort {
        RunningPort {
            name: name.into(),
            keeper: keeper.clone(),
            counters,
            queues,
            opener: None,
            epoch,
            serial: 0,
            peer_descriptors: Vec::new(),
            closer: BackgroundClose::default(),
            state: None,
            reason: String::new(),
            attached: false,
            programs: 0,
            is_delayed: false,
            log: LogLimit::of_port(),
            faults: LogLimit::of_faults(),
        }
    }

    /// Whether a restarted `data` can't go on with its peer; `resumes`: ports of its kind can.
    pub(super) fn loses_peer(&self, resumes: bool) -> bool {
        self.queues > 0 && self.serial != 0 && (self.peer_descriptors.is_empty() || !resumes)
    }

    /// Goes on with what a former `control` had, and a peer that stays if there are descriptors.
    pub(super) fn adopt(&mut self, opener: Option<Opener>, peer: Option<Vec<OwnedFd>>) {
        (self.opener, self.attached, self.serial) = (opener, peer.is_some(), peer.is_some().into());
        self.peer_descriptors = peer.unwrap_or_default();
        self.store();
    }

    /// Stops the opener, which closes its sockets.
    pub async fn close(mut self) {
        self.close_descriptors();
        if let Some(opener) = self.opener {
            opener.stop().await;
        }
    }

    /// Closes the peer's descriptors. Attack: as in [`ringway_host::Duplicates`].
    fn close_descriptors(&mut self) {
        let all = std::mem::take(&mut self.peer_descriptors);
        if !all.is_empty() {
            self.closer.close(all);
        }
        self.keeper.close(&self.name);
    }

    /// Stores with the keeper what another `control` needs to go on with the port.
    fn store(&self) {
        let kept = KeptPort { counters: self.counters, queues: self.queues, has_peer: self.serial != 0 };
        self.keeper.put_value(&kept_port(&self.name), &kept, &self.peer_descriptors);
    }

    /// Records that the peer is gone, and lets the opener bring the next one.
    fn peer_gone(&mut self, reason: &str) {
        self.reason = reason.into();
        (self.is_delayed, self.attached) = (false, false);
        self.close_descriptors();
        if let Some(opener) = &self.opener {
            opener.gone(self.serial);
        }
        self.serial = 0;
        self.store();
    }
}

/// What the keeper holds of a port, with the descriptors of its peer.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeptPort {
    /// Index of its first entry in the counters page.
    pub counters: u32,
    /// Number of its entries.
    pub queues: u16,
    /// Whether it has a peer.
    pub has_peer: bool,
}

/// The name of [`KeptPort`].
pub fn kept_port(port: &str) -> String {
    format!("port/{port}")
}

/// Adds what `data` needs for a new peer besides `descriptors`.
fn complete(
    fabric: &Fabric,
    more: &'static [&'static dyn PortControl],
    name: &str,
    descriptors: &mut Vec<OwnedFd>,
) -> io::Result<()> {
    let kind = |port: &Port| kinds::find(port.kind.name(), more);
    match fabric.port(name).and_then(|port| Some((port, kind(port)?))) {
        Some((port, kind)) => on_node(fabric.node_of(port), || kind.complete(port, descriptors)),
        None => Ok(()),
    }
}

impl Engine {
    /// Adds a port and opens it as described by `owned`: the same port with the owner that its socket must have.
    pub(super) async fn add_port(&mut self, port: &Port, owned: &Port) -> Result<(), EngineError> {
        let unknown = || EngineError::Kind(port.name.clone(), port.kind.name().into());
        let kind = kinds::find(port.kind.name(), self.host.kinds).ok_or_else(unknown)?;
        if let Some(To::Switch(switch)) = &port.to {
            self.number_port(switch, &port.name).await?;
        }
        let queues = if kind.is_in_data() { port.queues } else { 0 };
        // Of the queues whose counters share a page, the first one decides.
        let take = || if queues > 0 { self.page.take(u32::from(queues)) } else { Ok(0) };
        let counters = on_node(self.fabric.node_of(port), take)?;
        self.epoch += 1;
        let mut live = RunningPort::new(&port.name, (counters, queues), self.epoch, &self.keeper);
        if queues > 0 {
            let request = Request::AddPort { port: port.clone(), counters };
            if let Err(error) = self.call(&port.name, request).await {
                self.page.give(counters);
                return Err(error);
            }
        }
        self.make_folder(owned);
        let begun = self.begun(port);
        match self.open(owned, kind, begun) {
            Ok(opener) => live.opener = opener,
            Err(error) => {
                if queues > 0 {
                    // The error to report is the one from opening, not one from this clean-up.
                    let _ = self.call(&port.name, Request::RemovePort { name: port.name.clone() }).await;
                    self.page.give(counters);
                }
                return Err(error.into());
            }
        }
        live.store();
        self.running_ports.insert(port.name.clone(), live);
        if let Some(end) = &port.instance {
            self.forget_assignment(Some(&end.of));
        }
        Ok(())
    }

    pub(super) fn open(
        &self,
        port: &Port,
        kind: &dyn PortControl,
        adopted: Adopted,
    ) -> Result<Option<Opener>, OpenError> {
        let memory = (pages::choice(self.fabric.huge_pages), self.fabric.node_of(port));
        let engine = (self.epoch, &self.inbox, &self.keeper);
        Opener::start(port, kind, engine, memory, adopted)
    }

    /// Makes the folder of functions' sockets if the port's socket is there; opening the port reports an error.
    fn make_folder(&self, port: &Port) {
        let folder = self.run.functions();
        if port.socket.as_ref().is_some_and(|socket| socket.path.parent() == Some(&*folder)) {
            let _ = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(folder);
        }
    }

    pub(super) async fn remove_port(&mut self, name: &str) {
        let Some(live) = self.running_ports.remove(name) else { return };
        if live.queues > 0 {
            if !self.suspects.forget(name)
                && let Err(error) = self.call(name, Request::RemovePort { name: name.into() }).await
            {
                tracing::warn!(%error, "removing port {name}");
            }
            self.page.give(live.counters);
        }
        live.close().await;
        self.keeper.remove(&kept_port(name));
        open::forget(&self.keeper, name);
        // An interface of this name may come again.
        self.keeper.flush();
    }

    /// Whether `data` has a port.
    fn is_in_service(&self, name: &str) -> bool {
        self.running_ports.get(name).is_some_and(|live| live.queues > 0) && !self.suspects.has(name)
    }

    /// Moves a port to another worker.
    pub(super) async fn move_port(&mut self, port: &Port) -> Result<(), EngineError> {
        if !self.is_in_service(&port.name) {
            return Ok(());
        }
        let (name, worker) = (port.name.clone(), port.worker.clone());
        self.call(&port.name, Request::MovePort { name, worker }).await.map(drop)
    }

    /// Changes settings of a port that its peer need not know.
    pub(super) async fn change_port(&mut self, port: &Port) -> Result<(), EngineError> {
        if !self.is_in_service(&port.name) {
            return Ok(());
        }
        self.call(&port.name, Request::ChangePort { port: port.clone() }).await.map(drop)
    }

    /// Adds the ports to a restarted `data` process, and then their peers, if their descriptors were kept.
    pub(super) async fn resume_ports(&mut self) {
        let resuming = self.add_ports_again();
        self.attach_peers_again(resuming).await;
    }

    /// Adds the ports to another `data` process, without peers. Frames wait until all are there: none finds its
    /// destination missing. Requests are sent without waiting for each reply.
    pub(super) fn add_ports_again(&mut self) -> ResumingPorts {
        let ports = self.fabric.ports.clone();
        let is_there = |port: &Port| {
            self.running_ports.get(&port.name).is_some_and(|live| live.queues > 0)
                && !self.suspects.has(&port.name)
        };
        let ports: Vec<Port> = ports.into_iter().filter(is_there).collect();
        let names: Vec<String> = ports.iter().map(|port| port.name.clone()).collect();
        let mut added = Vec::new();
        // Attack: a peer with which `data` ends as soon as it goes on.
        let gives_up = self.quick_ends > MAX_QUICK_ENDS;
        for port in ports {
            let Some(live) = self.running_ports.get_mut(&port.name) else { continue };
            live.state = None;
            if live.serial != 0 && (live.peer_descriptors.is_empty() || gives_up) {
                live.peer_gone("the data process was started again");
            }
            let (name, counters) = (port.name.clone(), live.counters);
            added.push((name, self.ask(Request::AddPort { port, counters }, Vec::new())));
        }
        let hold = Request::Hold { ports: names.clone(), held: true, watched: false };
        added.push(("all".into(), self.ask(hold, Vec::new())));
        ResumingPorts { names, added }
    }

    /// Attaches the peers of ports that were added again, and lets frames go on.
    pub(super) async fn attach_peers_again(&mut self, ResumingPorts { names, added }: ResumingPorts) {
        let resumed: Vec<_> = names.iter().map(|name| (name.clone(), self.resume_peer(name))).collect();
        for (name, answer) in added {
            if let Err(error) = self.await_with_queries(answer).await {
                tracing::error!(%error, "port {name} is lost");
            }
        }
        let until = Instant::now() + RESUME_TIMEOUT;
        for (name, mut answer) in resumed {
            match self.await_with_queries(timeout_at(until, answer.as_mut())).await {
                Ok(Ok(_)) => {}
                // `data` ended again; its successor gets the same requests.
                Ok(Err(DataError::Gone)) => return,
                Ok(Err(error)) => {
                    tracing::warn!(port = name, %error, "the peer can't go on");
                    self.peer_lost(&name, &error.to_string());
                }
                Err(_) => self.resume_later(name, answer),
            }
        }
        for ports in self.arriving_ports.values().cloned().collect::<Vec<_>>() {
            self.post(Request::Arrival { ports, step: ArrivalStep::Keep }, Vec::new(), drop);
        }
        for ports in self.leaving_ports.values().cloned().collect::<Vec<_>>() {
            self.post(Request::Departure { ports, step: DepartureStep::Watch }, Vec::new(), drop);
        }
        self.restore_tables();
        let free: Vec<String> = names.into_iter().filter(|name| !self.blocked_ports.contains(name)).collect();
        loop {
            let hold = Request::Hold { ports: free.clone(), held: false, watched: false };
            match self.call("ports", hold).await {
                Err(EngineError::Data(_, error @ (DataError::Silent | DataError::Refused(_)))) => {
                    tracing::error!(%error, "no frame passes; trying again");
                    tokio::time::sleep(HOLD_RETRY).await;
                }
                Err(error) => return tracing::error!(%error, "no frame passes"),
                Ok(_) => return,
            }
        }
    }

    /// Gives another `data` process what its predecessor's switches had learned. The keeper holds that until this
    /// process has kept what it knows, since it may end before.
    fn restore_tables(&mut self) {
        for switch in self.fabric.switches.clone() {
            let slot = table_slot(&switch.name);
            let records = self.keeper.records(&slot).into_iter().map(|(key, bytes, _)| (key, bytes));
            for bytes in committed_tables(records.collect()) {
                // What is refused is learned again from frames.
                drop(self.ask(Request::RestoreTable { switch: switch.name.clone(), bytes }, Vec::new()));
            }
        }
    }

    /// Handles the answer about a peer that was attached again once it comes.
    fn resume_later(&self, name: String, answer: PendingReply) {
        let Some(RunningPort { epoch, serial, .. }) = self.running_ports.get(&name) else { return };
        let (inbox, epoch, serial) = (self.inbox.clone(), *epoch, *serial);
        tracing::warn!(port = name, "the peer goes on later than others");
        tokio::spawn(async move {
            let attached = answer.await.map(drop);
            let _ = inbox.send(Message::Attached { port: name, epoch, serial, attached });
        });
    }

    /// Sends a request to `data`; returns what waits for its reply.
    fn ask(&mut self, request: Request, descriptors: Vec<OwnedFd>) -> PendingReply {
        match self.data.as_mut().ok_or(DataError::Gone).and_then(|data| data.call(request, descriptors)) {
            Ok(answer) => Box::pin(answer),
            Err(error) => Box::pin(std::future::ready(Err(error))),
        }
    }

    /// Attaches a port's peer to a restarted `data`, if its descriptors were kept.
    fn resume_peer(&mut self, name: &str) -> PendingReply {
        let Some(live) = self.running_ports.get(name).filter(|live| !live.peer_descriptors.is_empty()) else {
            return Box::pin(std::future::ready(Ok(Reply::Done)));
        };
        let copy = |all: &[OwnedFd]| all.iter().map(OwnedFd::try_clone).collect::<io::Result<Vec<_>>>();
        let kept = match copy(&live.peer_descriptors) {
            Ok(kept) => kept,
            Err(error) => return Box::pin(std::future::ready(Err(DataError::Refused(error.to_string())))),
        };
        for (key, bytes, held) in self.keeper.records(name) {
            // If it is refused, so is the peer.
            drop(self.ask(Request::Restore { port: name.into(), key, bytes }, held));
        }
        self.ask(Request::Attach { port: name.into(), resumed: true }, kept)
    }

    /// Attaches the peer that a port has, which `data` did not have for a while.
    pub(super) async fn attach_kept(&mut self, name: &str) {
        let Some(live) = self.running_ports.get_mut(name).filter(|live| live.serial != 0) else { return };
        if live.peer_descriptors.is_empty() {
            return live.peer_gone("it was out of service");
        }
        let attached = match live.attached {
            true => self.resume_peer(name).await.map(drop),
            false => {
                let copies: io::Result<Vec<_>> =
                    live.peer_descriptors.iter().map(OwnedFd::try_clone).collect();
                let request = Request::Attach { port: name.into(), resumed: false };
                match copies {
                    Ok(copies) => self.ask(request, copies).await.map(drop),
                    Err(error) => Err(DataError::Refused(error.to_string())),
                }
            }
        };
        let Some(live) = self.running_ports.get(name) else { return };
        let (epoch, serial) = (live.epoch, live.serial);
        self.attached(name, epoch, serial, attached);
    }

    /// Handles an event from a port's opener.
    pub(super) async fn peer(&mut self, event: PeerEvent) {
        let PeerEvent { port: name, epoch, what } = event;
        let is_suspected = self.suspects.has(&name);
        let Some(live) = self.running_ports.get_mut(&name).filter(|live| live.epoch == epoch) else { return };
        match what {
            What::Failed(reason) => {
                if live.log.allows(&name) {
                    tracing::info!(port = name, reason);
                }
                live.reason = reason;
            }
            What::Noted(text) => {
                if live.log.allows(&name) {
                    tracing::info!(port = name, "{text}");
                }
            }
            What::Programs(count) => live.programs = count,
            What::Over => self.program_left(&name),
            What::Left { .. } if live.is_delayed => {}
            What::Left { serial, reason } if serial == live.serial => {
                if live.log.allows(&name) {
                    tracing::info!(port = name, reason);
                    self.inbox.event_log().note(EventKind::PeerDetached, &name, &reason);
                }
                if is_suspected {
                    self.peer_lost(&name, &reason);
                } else {
                    self.detach_left((name, epoch, serial), reason);
                }
            }
            // An earlier peer, which is detached already.
            What::Left { .. } => {}
            What::Arrived { serial, mut descriptors, keep } => {
                live.serial = serial;
                live.reason.clear();
                if let Err(error) = complete(&self.fabric, self.host.kinds, &name, &mut descriptors) {
                    return live.peer_gone(&error.to_string());
                }
                if keep {
                    live.peer_descriptors =
                        descriptors.iter().filter_map(|held| held.try_clone().ok()).collect();
                    let most = MEMORY_DESCRIPTORS + RING_DESCRIPTORS * usize::from(live.queues);
                    live.keeper.open(&name, most);
                }
                live.store();
                // The peer is attached when the port is restored.
                if is_suspected {
                    return;
                }
                let (inbox, request) =
                    (self.inbox.clone(), Request::Attach { port: name.clone(), resumed: false });
                self.post(request, descriptors, move |attached| {
                    // Once nobody listens, the fabric is going down.
                    let _ = inbox.send(Message::Attached { port: name, epoch, serial, attached });
                });
            }
        }
    }

    /// Handles the result of attaching a peer in `data`.
    pub(super) fn attached(&mut self, name: &str, epoch: u64, serial: u64, attached: Result<(), DataError>) {
        let is_it = |live: &&mut RunningPort| live.epoch == epoch && live.serial == serial;
        let Some(live) = self.running_ports.get_mut(name).filter(is_it) else { return };
        let is_logged = live.log.allows(name);
        live.attached = attached.is_ok();
        match attached {
            Ok(()) if is_logged => {
                tracing::info!(port = name, "a peer is there");
                self.inbox.event_log().note(EventKind::PeerAttached, name, "");
            }
            Ok(()) => {}
            // The peer is attached again when `data` has been restarted.
            Err(DataError::Gone) if !live.peer_descriptors.is_empty() => {}
            Err(error) => {
                if is_logged {
                    tracing::warn!(port = name, %error, "the peer is sent away");
                }
                live.peer_gone(&error.to_string());
            }
        }
    }

    /// Makes `data` detach a port's peer, before the next one is attached.
    fn detach(&mut self, name: &str) {
        let port = name.to_string();
        self.post(Request::Detach { port: port.clone() }, Vec::new(), move |detached| {
            let _ = detached.inspect_err(|error| tracing::warn!(port, %error, "detaching its peer"));
        });
    }

    /// Detaches a peer that has left. Until `data` has done that, it may write to the peer's buffers: only then is the
    /// peer told that its ring is closed, and the next one admitted.
    fn detach_left(&mut self, (port, epoch, serial): (String, u64, u64), reason: String) {
        let inbox = self.inbox.clone();
        self.post(Request::Detach { port: port.clone() }, Vec::new(), move |detached| {
            let _ = inbox.send(Message::PeerDetached { port, epoch, serial, reason, detached });
        });
    }

    pub(super) fn peer_detached(
        &mut self,
        (port, epoch, serial): (&str, u64, u64),
        reason: &str,
        detached: Result<(), DataError>,
    ) {
        let is_current = |live: &&mut RunningPort| live.epoch == epoch && live.serial == serial;
        let Some(live) = self.running_ports.get_mut(port).filter(is_current) else { return };
        live.peer_gone(reason);
        if detached.is_err() {
            // Another `data` process may have got the peer meanwhile.
            self.detach(port);
        }
    }

    fn peer_lost(&mut self, name: &str, reason: &str) {
        if let Some(live) = self.running_ports.get_mut(name) {
            live.peer_gone(reason);
        }
    }

    /// Handles an event from `data`.
    pub(super) async fn handle_event(&mut self, event: Event) {
        match event {
            Event::Changed(state) => {
                let Some(live) = self.running_ports.get_mut(&state.name) else { return };
                if live.log.allows(&state.name) {
                    tracing::info!(port = state.name, state = state.state, detail = state.detail);
                }
                live.state = Some(state);
            }
            Event::Wanted { port } => self.wanted(&port),
            Event::FlowsExpired { switch, revision, flows, count } => {
                self.flows_expired(&switch, (revision, count), &flows).await;
            }
            Event::Pressed { function } => self.handle_overload(&function),
            Event::Worker { worker, thread } => self.watch(worker, thread).await,
            Event::Function { number, report } => {
                let gone = self.functions.reported(number, report);
                self.forget_functions(gone);
            }
            Event::Detached { port, reason, fault, rest } => {
                // The port was removed in the meantime, and its peer with it.
                let Some(live) = self.running_ports.get_mut(&port) else { return };
                let is_logged = if fault { live.faults.allows(&port) } else { live.log.allows(&port) };
                match fault {
                    _ if !is_logged => {}
                    true => tracing::warn!(port, reason, "the peer broke its protocol"),
                    false => tracing::info!(port, reason, "the peer is gone"),
                }
                if is_logged {
                    self.inbox.event_log().note(EventKind::PeerDetached, &port, &reason);
                }
                // `data` must release the rest of the peer's state before the next peer is attached.
                self.detach(&port);
                if rest > 0 {
                    self.delay_next_peer(&port, &reason, Duration::from_nanos(rest));
                } else {
                    self.peer_lost(&port, &reason);
                }
            }
        }
    }

    /// Records that a port's peer was detached, and admits the next one only after `time`.
    ///
    /// Attack: a peer that is detached because it uses too much time, and reconnects at once.
    fn delay_next_peer(&mut self, name: &str, reason: &str, time: Duration) {
        let Some(live) = self.running_ports.get_mut(name) else { return };
        live.reason = format!("{reason}; the next may come {} s later", time.as_millis().div_ceil(1000));
        live.close_descriptors();
        live.is_delayed = true;
        let admission = Message::PeerAdmission { port: name.into(), epoch: live.epoch };
        later(&self.inbox, time, admission);
    }

    /// Ends the delay of a port after an expensive peer: the next peer may come.
    pub(super) fn admit_next_peer(&mut self, port: &str, epoch: u64) {
        if let Some(live) =
            self.running_ports.get_mut(port).filter(|live| live.epoch == epoch && live.is_delayed)
        {
            let reason = live.reason.clone();
            live.peer_gone(&reason);
        }
    }

    /// Opens the files that `data` reads about a worker's thread, and passes them to `data`.
    async fn watch(&mut self, worker: String, thread: i32) {
        let Some(pid) = self.data.as_ref().map(|data| data.pid) else { return };
        let watched = match ringway_host::open_thread_files(pid, thread) {
            Ok(files) => {
                let request = Request::Watch { worker: worker.clone(), thread };
                self.call_with(&worker, request, files.into())
                    .await
                    .map(drop)
                    .map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = watched {
            tracing::warn!(worker, error, "a peer that blocks this worker by its memory can't be detected");
        }
    }
}
