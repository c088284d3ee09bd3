//! A fabric in one process: its workers, and the changes that can be made while they run.

mod addresses;
mod arrivals;
mod captures;
mod flows;
mod functions;
mod instances;
mod mirrors;
mod nodes;
mod profile;
mod quarantine;
mod switches;
mod takeover;
mod traces;
mod work;

pub use nodes::worker_node;
pub use work::{Done, Job};

use crate::arrival::Arrival;
use crate::capture::CaptureError;
use crate::forward::{SharedSource, Source};
use crate::function::Reports;
use crate::instances::{InstanceSide, Instances};
use crate::log_limit::LogLimit;
use crate::policy::PortPolicy;
use crate::proto::{Event, PortState, State, WorkerState};
use crate::session_limit::SessionLimit;
use crate::topology::{Held, Port, RxSlot, Steer, Switch, Target, Topology};
use crate::trace::Answers;
use crate::wakeup::{Line, QUEUES};
use crate::watchdog::Watchdog;
use crate::worker::{Command, Gauges, Handle, Policy, Worker};
use addresses::KeptTable;
pub use addresses::{committed, slot};
use arrivals::with_arrivals;
use captures::Captures;
use functions::FunctionRecord;
use quarantine::Quarantine;
use ringway_frame::{CountersPage, CountersRef};
use ringway_host::{Budget, Clock, DeferredReclaim, EventFd, HostError, ThreadFiles, TurnsInProgress};
use ringway_mem::Published;
use ringway_port::{Context, Doorbell, Exits, KINDS, Peer, PeerRecord, PeerRecords, PortKind};
use ringway_spec::{self as spec, To};
use ringway_switch::snooping::Snooping;
use ringway_switch::{FlowHash, LookupContext, LookupFactory, PortId};
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum number of ports of a fabric.
pub const PORTS: usize = 4096;

/// Logged for an address of the fabric file that found no room in the table.
const LOST: &str = "the address found no room: frames for it are dropped";

/// Why a change was refused. A refused change has no effect.
#[derive(Debug, thiserror::Error)]
pub enum FabricError {
    /// No such object.
    #[error("there is no {0} `{1}`")]
    Unknown(&'static str, String),
    /// The name is taken.
    #[error("there is a {0} `{1}` already")]
    Exists(&'static str, String),
    /// Something still uses it.
    #[error("switch `{0}` still has ports")]
    InUse(String),
    /// A limit.
    #[error("{0}")]
    Limit(&'static str),
    /// The switch can't be set up.
    #[error("switch `{0}`: {1}")]
    Switch(String, String),
    /// The port can't be set up.
    #[error("port `{0}`: {1}")]
    Port(String, String),
    /// A frame to trace is too long.
    #[error("a frame has {0} bytes at most")]
    LongFrame(u32),
    /// A frame to trace can't have this offload header.
    #[error("the offload header contradicts the frame")]
    Offload,
    /// The worker that should answer has ended.
    #[error("the port's worker ended meanwhile; ask again")]
    WorkerEnded,
    /// A capture can't begin.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The system refused.
    #[error(transparent)]
    Host(#[from] HostError),
}

struct WorkerRecord {
    spec: spec::Worker,
    handle: Handle,
    /// Threads whose queues the present one took over, since peers block them.
    predecessors: Vec<Arc<Gauges>>,
    bits: Vec<bool>,
    /// The worker's thread ID as last reported.
    thread: i32,
}

/// Where one of a port's queues is served.
struct QueueSlot {
    worker: usize,
    bit: usize,
    line: Arc<Line>,
    source: SharedSource,
    /// Whether the queue was requested back from its worker.
    is_taken: bool,
}

struct Record {
    id: PortId,
    spec: spec::Port,
    /// The port's first entry in the counters page.
    counters: u32,
    slots: Vec<QueueSlot>,
    rx: Vec<Arc<RxSlot>>,
    steer: Option<Arc<Steer>>,
    /// `None` while a job has the peer.
    peer: Option<Box<dyn Peer>>,
    /// Jobs to do after that, each with its call.
    jobs: VecDeque<(Job, Option<u64>)>,
    /// Whether the port is being removed.
    leaving: bool,
    /// Set while its frames stay where they are.
    held: Option<Arc<Held>>,
    /// The arrival of its guest from another fabric, if there was one.
    arrival: Option<Arc<Arrival>>,
    /// Readable while its session has messages.
    session: Option<Arc<OwnedFd>>,
    session_limit: SessionLimit,
    /// Limit of the peer's cost; only if it shares memory.
    budget: Option<Arc<Budget>>,
    place: Option<InstanceSide>,
    /// What its switch lets it send and receive, if not everything.
    policy: Option<Arc<PortPolicy>>,
    /// Set once its peer's memory held a worker.
    quarantine: Option<Quarantine>,
    faults: CountersRef,
    /// The port's state as last reported.
    reported: (ringway_port::State, String),
    log: LogLimit,
}

impl Record {
    /// Whether the port has no peer, and that state was reported: a check would find nothing.
    fn is_without_peer(&self) -> bool {
        let waiting = ringway_port::State::Waiting;
        self.reported.0 == waiting && self.peer.as_ref().is_some_and(|peer| peer.state().0 == waiting)
    }

    /// The worker of its first queue.
    fn worker(&self) -> Option<usize> {
        self.slots.first().map(|slot| slot.worker)
    }
}

struct SwitchRecord {
    lookup: Box<dyn LookupFactory>,
    forward_reserved: bool,
    snooping: Option<Arc<Snooping>>,
    /// The switch as last published.
    made: Option<Arc<Switch>>,
    kept: KeptTable,
    /// When it was last looked for flows whose time has ended.
    expired: u64,
}

/// A running fabric.
pub struct Fabric {
    published: Arc<Published<Topology>>,
    workers: Vec<WorkerRecord>,
    ports: BTreeMap<String, Record>,
    switches: BTreeMap<String, SwitchRecord>,
    page: Arc<dyn CountersPage>,
    hash: FlowHash,
    seed: u64,
    clock: Clock,
    wakeup: Arc<EventFd>,
    watchdog: Watchdog,
    /// Ports whose peers exceeded their budget.
    spent: Arc<Mutex<Vec<PortId>>>,
    /// Port kinds defined outside the project.
    more: &'static [PortKind],
    /// Former worlds, not reclaimed yet.
    deferred: DeferredReclaim,
    /// The turns that were in progress when ports were held last, and when that was.
    turns_before_hold: Option<(TurnsInProgress, u64)>,
    /// Functions that run on workers, by number.
    functions: BTreeMap<u64, FunctionRecord>,
    reports: Reports,
    /// Functions that multiply, by name.
    instances: BTreeMap<String, Arc<Instances>>,
    /// Keeps what peers tell.
    keeper: Option<Arc<dyn PeerRecords>>,
    captures: Captures,
    /// What workers found out about frames.
    traces: Answers,
    /// What was kept of peers by a former process, by port, until they are attached again.
    kept: BTreeMap<String, Vec<PeerRecord>>,
}

impl Fabric {
    /// Starts the workers. `seed` is a random number that no peer knows.
    pub fn start(
        workers: &[spec::Worker],
        page: Arc<dyn CountersPage>,
        seed: u64,
        more: &'static [PortKind],
    ) -> Result<Fabric, FabricError> {
        let published = Arc::new(Published::new(Arc::new(Topology::default())));
        let hash = FlowHash::new(seed.rotate_left(17));
        let mut records = Vec::new();
        let wakeup = Arc::new(EventFd::new()?);
        let watchdog = Watchdog::start(wakeup.clone())?;
        for spec in workers {
            let handle = spawn_worker(spec, &published, hash, &wakeup)?;
            watchdog.watch(&spec.name, &handle.gauges);
            let (bits, predecessors) = (Vec::new(), Vec::new());
            records.push(WorkerRecord { spec: spec.clone(), handle, predecessors, bits, thread: 0 });
        }
        if records.is_empty() {
            return Err(FabricError::Limit("a fabric needs a worker"));
        }
        let (ports, switches) = (BTreeMap::new(), BTreeMap::new());
        let clock = Clock::new();
        let (spent, deferred) = (Arc::default(), DeferredReclaim::default());
        let (functions, reports) = (BTreeMap::new(), Reports::new(wakeup.clone()));
        let traces = Answers::new(wakeup.clone());
        Ok(Fabric {
            published,
            workers: records,
            ports,
            switches,
            page,
            hash,
            seed,
            clock,
            wakeup,
            watchdog,
            spent,
            more,
            deferred,
            turns_before_hold: None,
            functions,
            reports,
            instances: BTreeMap::new(),
            keeper: None,
            captures: Captures::default(),
            traces,
            kept: BTreeMap::new(),
        })
    }

    /// Requests the workers to end after their turns.
    pub fn stop_workers(&self) {
        self.workers.iter().for_each(|worker| worker.handle.stop());
    }

    /// Whether all workers have ended, and no job on a port is being done.
    pub fn is_at_rest(&self) -> bool {
        let mut former = self.workers.iter().flat_map(|worker| &worker.predecessors);
        former.all(|gauges| gauges.has_ended.load(SeqCst))
            && self.workers.iter().all(|worker| worker.handle.has_ended())
            && self.ports.values().all(|record| record.peer.is_some())
    }

    /// Keeps what the peers of ports that are added from now on tell.
    pub fn keep_in(&mut self, keeper: Arc<dyn PeerRecords>) {
        self.keeper = Some(keeper);
    }

    /// Adds a port; `null` and `source` work at once, the others wait for their peer. `first` is its first entry of the
    /// counters page; one entry a queue pair.
    pub fn add_port(&mut self, spec: spec::Port, first: u32) -> Result<(), FabricError> {
        if self.ports.contains_key(&spec.name) {
            return Err(FabricError::Exists("port", spec.name));
        }
        self.has_switch_of(&spec)?;
        let id = (0..PORTS as PortId)
            .find(|id| self.ports.values().all(|port| port.id != *id))
            .ok_or(FabricError::Limit("a fabric has 4096 ports at most"))?;
        let kind = KINDS.iter().chain(self.more).find(|kind| kind.name == spec.kind.name());
        let kind = kind.ok_or_else(|| FabricError::Unknown("kind", spec.kind.name().into()))?;
        let queues = usize::from(spec.queues.max(1));
        let counters = self.counters(first as usize, queues)?;
        let lines = self.lines(&spec, queues)?;
        let doorbells = lines.iter().map(|(_, _, line)| line.clone() as Arc<dyn Doorbell>).collect();
        let (check, keeper) = (&self.wakeup, self.keeper.as_ref());
        let context = Context { port: &spec, doorbells, counters: &counters, check, keeper };
        let opened = ringway_host::on_node(self.node_of(&lines), || (kind.open)(context));
        let (peer, queues) = match opened {
            Ok(made) => made,
            Err(error) => {
                self.free_bits(lines.iter().map(|(worker, bit, _)| (*worker, *bit)));
                return Err(FabricError::Port(spec.name, error.to_string()));
            }
        };
        let steer = (counters.len() > 1).then(|| Arc::new(Steer::default()));
        let budget = peer.shares_memory().then(|| self.budget(id));
        let faults = counters.first().cloned().unwrap_or_else(CountersRef::private);
        let place = spec.instance.as_ref().map(|end| self.place_of(end));
        let (mut rx, mut slots) = (Vec::new(), Vec::new());
        let ends = queues.into_iter().zip(counters).zip(lines);
        for (number, ((queue, counters), (worker, bit, line))) in (0..).zip(ends) {
            let slot = RxSlot::new(queue.rx, id, counters.clone(), budget.clone());
            rx.push(Arc::new(RxSlot { place: place.clone(), ..slot }));
            let source = Source::new(queue.tx, id, number, counters);
            let source = Arc::new(Mutex::new(source));
            slots.push(QueueSlot { worker, bit, line, source, is_taken: false });
        }
        let (name, log, reported) = (spec.name.clone(), LogLimit::of_port(), peer.state());
        self.watchdog.name(id, Some(&name));
        let record = Record {
            id,
            policy: PortPolicy::of(&spec.policy),
            spec,
            counters: first,
            slots,
            rx,
            steer,
            peer: Some(peer),
            jobs: VecDeque::new(),
            leaving: false,
            held: None,
            arrival: None,
            session: None,
            session_limit: SessionLimit::default(),
            budget,
            place,
            quarantine: None,
            faults,
            reported,
            log,
        };
        self.ports.insert(name.clone(), record);
        self.snooping_of(&name).iter().for_each(|snooping| snooping.attach_port(id));
        self.publish();
        for slot in self.ports.values().filter(|record| record.id == id).flat_map(|record| &record.slots) {
            let (bit, source) = (slot.bit, slot.source.clone());
            self.workers[slot.worker].handle.send(Command::Add { bit, worker: slot.worker, source });
        }
        Ok(())
    }

    /// Checks that a port's switch exists.
    fn has_switch_of(&self, spec: &spec::Port) -> Result<(), FabricError> {
        match &spec.to {
            Some(To::Switch(name)) if !self.switches.contains_key(name) => {
                Err(FabricError::Unknown("switch", name.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Lines for the queues of a port, each with its worker and its number there.
    fn lines(
        &mut self,
        spec: &spec::Port,
        queues: usize,
    ) -> Result<Vec<(usize, usize, Arc<Line>)>, FabricError> {
        let places = self.take_bits(spec.worker.as_deref(), queues)?.into_iter();
        let wakeup = |worker: usize| self.workers[worker].handle.wakeup.clone();
        let line = |(worker, bit)| (worker, bit, Arc::new(Line::new(wakeup(worker), bit, &spec.name)));
        Ok(places.map(line).collect())
    }

    /// The budget of the peer of port `id`.
    fn budget(&self, id: PortId) -> Arc<Budget> {
        let (spent, wakeup) = (self.spent.clone(), self.wakeup.clone());
        Arc::new(Budget::new(move || {
            // The lock is held only for a push, or to take all entries.
            spent.lock().unwrap_or_else(PoisonError::into_inner).push(id);
            wakeup.signal();
        }))
    }

    fn counters(&self, first: usize, queues: usize) -> Result<Vec<CountersRef>, FabricError> {
        (first..first + queues)
            .map(|index| CountersRef::new(self.page.clone(), index))
            .collect::<Option<_>>()
            .ok_or(FabricError::Limit("the counters page has no room for the port"))
    }

    fn worker(&self, name: &str) -> Result<usize, FabricError> {
        let found = self.workers.iter().position(|worker| worker.spec.name == name);
        found.ok_or_else(|| FabricError::Unknown("worker", name.into()))
    }

    /// Picks a worker for each queue, and the queue's number there: the named worker, else each time the one with the
    /// fewest queues.
    fn take_bits(&mut self, named: Option<&str>, queues: usize) -> Result<Vec<(usize, usize)>, FabricError> {
        let named = named.map(|name| self.worker(name)).transpose()?;
        let mut places = Vec::with_capacity(queues);
        for _ in 0..queues {
            let fewest = || {
                let taken = |worker: &WorkerRecord| worker.bits.iter().filter(|bit| **bit).count();
                let workers = (0..self.workers.len())
                    .filter(|&worker| self.workers[worker].spec.name != quarantine::WORKER);
                workers.min_by_key(|&worker| taken(&self.workers[worker])).unwrap_or(0)
            };
            let worker = named.unwrap_or_else(fewest);
            let bits = &mut self.workers[worker].bits;
            let bit = bits.iter().position(|bit| !bit).unwrap_or(bits.len());
            if bit >= QUEUES {
                self.free_bits(places);
                return Err(FabricError::Limit("a worker has 8192 queues at most; add a worker"));
            }
            if bit == bits.len() {
                bits.push(true);
            }
            bits[bit] = true;
            places.push((worker, bit));
        }
        Ok(places)
    }

    fn free_bits(&mut self, places: impl IntoIterator<Item = (usize, usize)>) {
        places.into_iter().for_each(|(worker, bit)| self.workers[worker].bits[bit] = false);
    }

    /// Session descriptors by port: when one becomes readable, call [`Fabric::serve`]. Ports whose peer is in use by
    /// a job, or that pause, are omitted.
    pub fn sessions(&self) -> impl Iterator<Item = (PortId, &Arc<OwnedFd>)> {
        let now = self.clock.now();
        let idle = self.ports.values().filter(|record| record.peer.is_some());
        let open = idle.filter(move |record| record.session_limit.opens_at(now).is_none());
        open.filter_map(|record| Some((record.id, record.session.as_ref()?)))
    }

    /// Nanoseconds until the first session that pauses can be served again; `None` if none pauses.
    pub fn pause(&self) -> Option<u64> {
        let now = self.clock.now();
        let with_session = self.ports.values().filter(|record| record.session.is_some());
        with_session.filter_map(|record| record.session_limit.opens_at(now)).min().map(|at| at - now)
    }

    /// Makes the watchdog's thread call this ten times a second.
    pub fn at_each_look(&self, look: Arc<dyn Fn() + Send + Sync>) {
        self.watchdog.at_each_look(look);
    }

    /// Signalled when a worker detected a protocol violation of a peer: call [`Fabric::check`] then.
    pub fn wakeup(&self) -> &Arc<EventFd> {
        &self.wakeup
    }

    /// Events for workers whose threads started since the last call.
    fn new_workers(&mut self) -> Vec<Event> {
        let new = self.workers.iter_mut().filter_map(|worker| {
            let thread = worker.handle.gauges.thread.load(Relaxed);
            let is_new = std::mem::replace(&mut worker.thread, thread) != thread;
            is_new.then(|| Event::Worker { worker: worker.spec.name.clone(), thread })
        });
        new.collect()
    }

    /// Sets the files from which the times of a worker's thread are read.
    pub fn watch(&mut self, name: &str, thread: i32, files: [OwnedFd; 2]) -> Result<(), FabricError> {
        let worker = self.workers.iter().find(|worker| worker.spec.name == name && worker.thread == thread);
        let worker = worker.ok_or_else(|| FabricError::Unknown("worker", name.into()))?;
        let copies = [files[0].try_clone(), files[1].try_clone()];
        if let [Ok(stat), Ok(schedstat)] = copies {
            self.watchdog.see(name, ThreadFiles::new([stat, schedstat]));
        }
        worker.handle.send(Command::Watch(ThreadFiles::new(files)));
        Ok(())
    }

    /// Replaces each failed worker; returns the names of its ports, which must be restarted.
    fn replace_workers(&mut self) -> Vec<String> {
        self.report_lost_threads();
        let gone = (0..self.workers.len()).filter(|&worker| self.workers[worker].handle.is_gone());
        gone.collect::<Vec<_>>().into_iter().flat_map(|worker| self.replace_worker(worker)).collect()
    }

    fn replace_worker(&mut self, worker: usize) -> Vec<String> {
        let WorkerRecord { spec, .. } = &self.workers[worker];
        tracing::error!(worker = spec.name, "a worker failed because of a bug in Ringway; its ports restart");
        let handle = match spawn_worker(spec, &self.published, self.hash, &self.wakeup) {
            Ok(handle) => handle,
            Err(error) => {
                tracing::error!(%error, "no other worker can be had");
                return Vec::new();
            }
        };
        self.watchdog.watch(&self.workers[worker].spec.name, &handle.gauges);
        self.workers[worker].handle = handle;
        self.report_lost_functions(worker);
        let is_its = |record: &Record| record.all_slots().any(|slot| slot.worker == worker);
        self.ports.iter().filter(|(_, record)| is_its(record)).map(|(name, _)| name.clone()).collect()
    }

    /// Publishes the topology as the records now describe it. A worker sees it in its next turn.
    fn publish(&mut self) {
        let mut topology = Topology::default();
        let switches = self.members();
        let ends = self.instance_ports();
        // First RX queue and number of queues of each port.
        let mut queues = BTreeMap::new();
        for (name, record) in self.ports.iter().filter(|(_, record)| !record.leaving) {
            let first = topology.rx.len() as u32;
            topology.rx.extend(record.rx.iter().cloned());
            let place = match &record.quarantine {
                Some(quarantine) => {
                    topology.rx.push(quarantine.rx.clone());
                    let hold = record.spec.hold.unwrap_or_else(|| worker_hold(record, &self.workers));
                    quarantine.publish(&mut topology, record, hold, first);
                    (topology.rx.len() as u32 - 1, 1)
                }
                None => (first, record.rx.len() as u32),
            };
            queues.insert(&**name, place);
        }
        let mut mirrors = self.mirrors(&topology, &queues);
        let has_mirrors = !mirrors.is_empty();
        for (name, record) in self.ports.iter().filter(|(_, record)| !record.leaving) {
            // Until its receiver is there, a port is not in the topology: its frames would come back to it.
            let receiver = record.spec.receiver.as_deref().unwrap_or(name);
            let Some(&(first, queues)) = queues.get(receiver) else { continue };
            let target = match &record.spec.to {
                Some(To::Switch(name)) => switches
                    .get(name.as_str())
                    .map_or(Target::Nowhere, |switch| Target::Switch(switch.clone())),
                Some(To::Patch(name)) => {
                    let peer = self.ports.get(name).filter(|peer| !peer.leaving);
                    peer.map_or(Target::Nowhere, |peer| match &peer.spec.instance {
                        Some(end) => self.ends(end, &ends),
                        None => Target::Patch(peer.id),
                    })
                }
                None => Target::Nowhere,
            };
            let slot = usize::from(record.id);
            if topology.ports.len() <= slot {
                topology.ports.resize_with(slot + 1, || None);
            }
            topology.ports[slot] = Some(Arc::new(Port {
                name: (&**name).into(),
                target,
                first,
                queues,
                hold: record.spec.hold.unwrap_or_else(|| worker_hold(record, &self.workers)),
                held: record.held.clone(),
                steer: record.steer.clone(),
                budget: record.budget.clone(),
                place: record.place.clone(),
                is_suspect: record.quarantine.is_some(),
                policy: record.policy.clone(),
                captures: self.captures.of_port(name),
                mirrors: mirrors.remove(&**name),
                reassembly: record.spec.policy.reassembly,
            }));
        }
        self.add_receivers(&mut topology);
        topology.has_captures = !self.captures.is_empty();
        topology.is_observed = topology.has_captures || has_mirrors;
        self.published.replace(Arc::new(topology)).defer();
        self.limit_instances();
        self.link_functions();
    }

    /// Builds every switch from the records. A switch whose ports did not change is reused.
    fn members(&mut self) -> BTreeMap<String, Arc<Switch>> {
        let mut members: BTreeMap<&str, (Vec<PortId>, bool)> = BTreeMap::new();
        for port in self.ports.values().filter(|port| !port.leaving) {
            if let Some(To::Switch(name)) = &port.spec.to {
                let (ports, has_policies) = members.entry(name).or_default();
                ports.push(port.id);
                *has_policies |= port.policy.is_some();
            }
        }
        let mut switches = BTreeMap::new();
        for (name, record) in &mut self.switches {
            let (members, has_policies) = members.remove(name.as_str()).unwrap_or_default();
            let has_policies = has_policies || record.lookup.flows().is_some();
            let snooping = record.snooping.clone();
            let switch = match &record.made {
                Some(made) if made.members == members && made.has_policies == has_policies => made.clone(),
                Some(made) if made.members == members => {
                    Arc::new(Switch { lookup: made.lookup.clone(), members, has_policies, snooping })
                }
                _ => {
                    let here = Some(To::Switch(name.clone()));
                    let on = |port: &str| self.ports.get(port).filter(|port| port.spec.to == here);
                    let lookup = record.lookup.make(&LookupContext {
                        port: &|port| on(port).map(|record| record.id),
                        ports: PORTS,
                        hash: self.hash,
                        forward_reserved: record.forward_reserved,
                        seed: self.seed,
                        rejected: &|mac| tracing::error!(switch = name, %mac, "{LOST}"),
                    });
                    Arc::new(Switch { lookup, members, has_policies, snooping })
                }
            };
            record.made = Some(switch.clone());
            let switch = with_arrivals(switch, &self.ports, name);
            switches.insert(name.clone(), switch);
        }
        switches
    }

    /// State of the running fabric.
    pub fn state(&self) -> State {
        let now = self.clock.now();
        let workers = self.workers.iter().map(|worker| WorkerState {
            name: worker.spec.name.clone(),
            queues: worker.handle.gauges.queues.load(Relaxed) as usize,
            active: worker.handle.gauges.active.load(Relaxed) as usize,
            turns: worker.handle.gauges.turns.load(Relaxed),
            sleeps: worker.handle.gauges.sleeps.load(Relaxed),
            busy: worker.handle.gauges.busy.load(Relaxed),
            held: self.held(worker, now),
            helped: worker.handle.gauges.helped.load(Relaxed),
        });
        let ports = self.ports.iter().map(|(name, record)| port_state(name, record, &self.workers));
        State {
            ports: ports.collect(),
            workers: workers.collect(),
            switches: self.switches.keys().cloned().collect(),
            functions: self.functions.keys().copied().collect(),
            captures: self.captures.numbers().collect(),
        }
    }

    /// Where accesses to a port's registers and its interrupts went, if its kind has registers.
    pub fn exits(&self, port: &str) -> Result<Option<Exits>, FabricError> {
        let record = self.ports.get(port).ok_or_else(|| FabricError::Unknown("port", port.into()))?;
        // The job is at most some milliseconds old: another thread became the leader.
        let peer = record.peer.as_ref().ok_or(FabricError::Limit("the port is busy; ask again"))?;
        Ok(peer.exits())
    }
}

/// Starts a worker.
fn spawn_worker(
    spec: &spec::Worker,
    published: &Arc<Published<Topology>>,
    hash: FlowHash,
    alarm: &Arc<EventFd>,
) -> Result<Handle, HostError> {
    let policy = Policy { poll: spec.poll, spin: spec.spin };
    let (worker, handle) = Worker::new(policy, published.clone(), hash, alarm.clone())?;
    nodes::start_thread(spec, worker)?;
    Ok(handle)
}

/// How long frames wait if the port doesn't set `hold`: the value of the worker of its first queue.
fn worker_hold(record: &Record, workers: &[WorkerRecord]) -> u64 {
    record.worker().map_or(0, |worker| workers[worker].spec.hold)
}

fn port_state(name: &str, record: &Record, workers: &[WorkerRecord]) -> PortState {
    let (state, detail) = record.peer.as_ref().map_or_else(|| record.reported.clone(), |peer| peer.state());
    let worker = record.worker().map_or_else(String::new, |worker| workers[worker].spec.name.clone());
    PortState {
        name: name.into(),
        kind: record.spec.kind.name().into(),
        state: state.name().into(),
        detail,
        worker,
        gauges: record.peer.as_ref().map(|peer| peer.gauges()).unwrap_or_default(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::worker::tests::wrong;
    use ringway_port::source;
    use ringway_spec::{Kind, MacAddress, Poll, Port};
    use ringway_switch::{fixed, learning};

    pub fn until(mut done: impl FnMut() -> bool) {
        while !done() {
            std::thread::yield_now();
        }
    }

    /// Counters of four ports.
    pub fn page() -> Arc<Vec<ringway_frame::Counters>> {
        Arc::new((0..4).map(|_| Default::default()).collect())
    }

    /// A fabric with these workers.
    pub fn started(workers: &[&str], page: Arc<Vec<ringway_frame::Counters>>) -> Fabric {
        let worker = |name: &&str| spec::Worker {
            name: name.to_string(),
            core: None,
            node: None,
            poll: Poll::Adaptive,
            spin: 0,
            hold: 0,
        };
        Fabric::start(&workers.iter().map(worker).collect::<Vec<_>>(), page, 7, &[]).unwrap()
    }

    #[test]
    fn a_fabric_is_at_rest_once_its_workers_have_ended() {
        let fabric = started(&["w0", "w1"], page());
        assert!(!fabric.is_at_rest());
        fabric.stop_workers();
        until(|| fabric.is_at_rest());
    }

    #[test]
    fn a_change_does_not_affect_other_switches() {
        let mut fabric = started(&["w"], page());
        let entries = vec![(MacAddress([2, 0, 0, 0, 0, 1]), "a".into())];
        let learning =
            Kind::new("learning", &learning::Settings { ageing: 300, entries: 64, refuse_moves: false });
        for (name, lookup) in [("s", Kind::new("static", &fixed::Settings { entries })), ("t", learning)] {
            fabric
                .add_switch(spec::Switch {
                    name: name.into(),
                    lookup,
                    forward_reserved: false,
                    snooping: None,
                })
                .unwrap();
        }
        let mut add = |name: &str, switch: &str, counters| {
            let port = Port::new(name, Kind::new("null", &()), Some(To::Switch(switch.into())));
            fabric.add_port(port, counters).unwrap();
            fabric.switches["s"].made.clone()
        };
        let before = add("a", "s", 0).unwrap();
        assert!(Arc::ptr_eq(&before, &add("b", "t", 1).unwrap()));
        assert!(!Arc::ptr_eq(&before, &add("c", "s", 2).unwrap()));
        assert_eq!(fabric.table("s").unwrap()[0].port, "a");
    }

    #[test]
    fn a_failed_worker_is_replaced_and_its_ports_restart() {
        let page = page();
        let mut fabric = started(&["w0", "w1"], page.clone());
        let lookup =
            Kind::new("learning", &learning::Settings { ageing: 300, entries: 64, refuse_moves: false });
        fabric
            .add_switch(spec::Switch { name: "s".into(), lookup, forward_reserved: false, snooping: None })
            .unwrap();
        let mut add = |name: &str, worker: &str, counters, kind| {
            let port = Port::new(name, kind, Some(To::Switch("s".into())));
            let port = Port { worker: Some(worker.into()), hold: Some(0), ..port };
            fabric.add_port(port, counters).unwrap();
        };
        let (to, from) = (MacAddress([2, 0, 0, 0, 0, 2]), MacAddress([2, 0, 0, 0, 0, 1]));
        let null = || Kind::new("null", &());
        add("a", "w0", 0, Kind::new("source", &source::Settings { size: 64, to, from, rate: None }));
        add("b", "w1", 1, null());
        add("c", "w0", 2, null());
        let frames = || page[1].rx_frames.load(Relaxed);
        until(|| frames() > 1000);
        fabric.workers[0].handle.send(Command::Add { bit: 100, worker: 0, source: wrong() });
        until(|| fabric.workers[0].handle.is_gone());
        let before = frames();
        let names: Vec<String> = fabric
            .check()
            .into_iter()
            .filter_map(|event| match event {
                Event::Detached { port, fault: false, .. } => Some(port),
                _ => None,
            })
            .collect();
        assert_eq!(names, ["a", "c"]);
        until(|| frames() > before + 1000);
        // The event that the new worker's thread runs may arrive only now.
        assert!(!fabric.check().iter().any(|event| matches!(event, Event::Detached { .. })));
        fabric.remove_port("a").unwrap();
    }
}
