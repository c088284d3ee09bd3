//! The operations of the API's paths, also used by commands without a fabric.

use super::drains::Drains;
use super::kubernetes::Kubernetes;
use super::operators::Stamps;
use super::periodic::Rounds;
use super::pods::Pods;
use super::{
    BalanceRequest, Clock, DecisionView, ExplainView, FactPush, PlaceRequest, PluginsView, RevisionView,
    UnitView, WhyNotRequest, units,
};
use crate::fabric::FabricHandle;
use crate::plugins::{Options, Plugins};
use crate::power::PowerHook;
use ringway_place::engine::{BalanceStep, Engine, EngineError, HostRow, Object, WhyNot};
use ringway_place::model::Model;
use ringway_place::object::{Fact, Vm};
use ringway_place::policy::Policy;
use ringway_place::store::{Embedded, Memory, StoreError};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Attack: a request for a million VMs, or a preview of a million rounds. Limit of both.
const MOST: usize = 10_000;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq)]
pub enum Failed {
    /// An unknown object.
    Unknown(String),
    /// The request is invalid.
    Wrong(String),
    /// The request can't be fulfilled now.
    Conflict(String),
    /// The disk is full.
    Full(String),
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Failed::Unknown(what) | Failed::Wrong(what) | Failed::Conflict(what) | Failed::Full(what)) =
            self;
        f.write_str(what)
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Failed {
        EngineError::Store(error).into()
    }
}

impl From<EngineError> for Failed {
    fn from(error: EngineError) -> Failed {
        let what = error.to_string();
        match error {
            EngineError::NoDecision(_)
            | EngineError::NoPending(_)
            | EngineError::NoObject(_)
            | EngineError::Decide(_) => Failed::Unknown(what),
            EngineError::Wrong(_) | EngineError::Policy(_) => Failed::Wrong(what),
            EngineError::Store(StoreError::Full(_)) => Failed::Full(what),
            EngineError::Store(_) | EngineError::InUse(_) => Failed::Conflict(what),
        }
    }
}

/// The placement service.
#[derive(Clone)]
pub struct Service {
    /// The engine.
    pub engine: Arc<Engine>,
    /// The clock.
    pub clock: Clock,
    pub(crate) rounds: Arc<Mutex<Rounds>>,
    pub(crate) drains: Arc<Mutex<Drains>>,
    /// The fabric of this host, if it runs here.
    pub(crate) link: Arc<OnceLock<Arc<FabricHandle>>>,
    /// The program that switches hosts on and off.
    pub(crate) power: Arc<Mutex<Option<PowerHook>>>,
    pub(crate) pods: Arc<Pods>,
    /// Kubernetes, if it is watched.
    pub(crate) kubernetes: Arc<OnceLock<Arc<Kubernetes>>>,
    sources: Arc<Mutex<Sources>>,
    /// The store and its path, if it is on disk.
    files: Option<(Arc<Embedded>, PathBuf)>,
    pub(crate) stamps: Arc<Mutex<Stamps>>,
}

/// Sources of external units.
#[derive(Default)]
struct Sources {
    /// The fabric file's options.
    file: Options,
    /// Sources that were attached manually, kept in the store.
    attached: Options,
    started: bool,
}

/// The store's key of manually attached sources.
const ATTACHED: &str = "plugins";

impl Service {
    /// Placement on the store at `path`, which is created if needed.
    pub fn open(path: &Path) -> Result<Service, StoreError> {
        let clock = Clock::default();
        let store = Arc::new(Embedded::open(path, clock.now())?);
        if let Some(record) = store.cut() {
            let path = path.display();
            tracing::warn!(%path, record, "the store's last write was cut short by a crash, and is left out");
        }
        let mut service = Service::on(Engine::open(store.clone()), clock)?;
        service.files = Some((store, path.into()));
        let settled = service.engine.correct_times(clock.now());
        match settled.map_err(|error| StoreError::File(error.to_string()))? {
            0 => {}
            many => tracing::warn!("the clock went back since: {many} objects were of a time to come"),
        }
        Ok(service)
    }

    /// A service with an in-memory store.
    pub fn in_memory() -> Result<Service, StoreError> {
        Service::on(Engine::open(Arc::new(Memory::default())), Clock::default())
    }

    fn on(engine: Result<Engine, EngineError>, clock: Clock) -> Result<Service, StoreError> {
        match engine {
            Ok(engine) => {
                let attached = engine.noted(ATTACHED).ok().flatten().unwrap_or_default();
                let sources = Arc::new(Mutex::new(Sources { attached, ..Sources::default() }));
                let (engine, rounds, pods) = (Arc::new(engine), Arc::default(), Arc::default());
                let service = Service {
                    engine,
                    clock,
                    rounds,
                    drains: Arc::default(),
                    link: Arc::default(),
                    power: Arc::default(),
                    pods,
                    kubernetes: Arc::default(),
                    sources,
                    files: None,
                    stamps: Arc::default(),
                };
                service.stamp();
                Ok(service)
            }
            Err(EngineError::Store(error)) => Err(error),
            Err(other) => Err(StoreError::File(other.to_string())),
        }
    }

    /// The fabric whose guests and functions run on this host.
    pub(crate) fn stands_on(&self, link: Arc<FabricHandle>) {
        let _ = self.link.set(link);
    }

    /// Sets the program that switches hosts on and off; without one, other hosts are only simulated.
    pub fn power_by(&self, hook: Option<PowerHook>) {
        *self.power.lock().unwrap_or_else(PoisonError::into_inner) = hook;
    }

    /// The store's files.
    pub(crate) fn files(&self) -> Result<&(Arc<Embedded>, PathBuf), Failed> {
        let what = "placement is in memory alone: there is no store";
        self.files.as_ref().ok_or_else(|| Failed::Conflict(what.into()))
    }

    /// All hosts.
    pub fn hosts(&self) -> Result<Vec<HostRow>, Failed> {
        Ok(self.engine.hosts(self.clock.now())?)
    }

    /// All VMs, by name.
    pub fn vms(&self) -> Result<Vec<Vm>, Failed> {
        let mut vms =
            self.engine.view(|model| model.vm_slots().map(|slot| (*slot.vm).clone()).collect::<Vec<_>>())?;
        vms.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(vms)
    }

    /// All policies, by name.
    pub fn policies(&self) -> Result<Vec<Policy>, Failed> {
        Ok(self.engine.view(|model| model.policies().values().map(|policy| (**policy).clone()).collect())?)
    }

    /// All units.
    pub fn units(&self) -> Vec<UnitView> {
        units(self.engine.external_units())
    }

    /// Attaches external units in addition to those of the fabric file, replacing those attached before; the
    /// store keeps them. If a folder is missing or can't be served, nothing changes.
    pub fn attach(&self, options: Options) -> Result<(), Failed> {
        if let Some(path) = options.lacks() {
            let path = path.display();
            return Err(Failed::Wrong(format!("{path}: no such folder; plugins attached before stay")));
        }
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let mut plugins = Plugins::start(sources.file.and(&options));
        if let Some(problem) =
            plugins.problems().iter().find(|problem| problem.is_out && options.has(&problem.source))
        {
            let what = format!("{}: {}", problem.source, problem.what);
            return Err(Failed::Conflict(format!("{what}; plugins attached before stay")));
        }
        if sources.attached != options {
            self.engine.store_value(ATTACHED, &options)?;
        }
        sources.attached = options;
        sources.started = true;
        self.engine.attach(Box::new(plugins));
        Ok(())
    }

    /// Sets the external units of the fabric file.
    pub(crate) fn plugins_of_file(&self, options: Options) {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        if sources.started && sources.file == options {
            return;
        }
        sources.file = options;
        self.start(&mut sources);
    }

    fn start(&self, sources: &mut Sources) {
        let all = sources.file.and(&sources.attached);
        if sources.started || !all.is_empty() {
            self.engine.attach(Box::new(Plugins::start(all)));
        }
        sources.started = true;
    }

    /// The sources of external units, with their errors.
    pub fn plugins(&self) -> PluginsView {
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let names = |options: &Options| {
            let folders = options.folders.iter().map(|folder| folder.path.display().to_string());
            folders.chain(options.services.iter().map(|service| service.url.clone())).collect()
        };
        PluginsView {
            file: names(&sources.file),
            attached: names(&sources.attached),
            problems: self.engine.external_problems(),
        }
    }

    /// Adds or replaces objects. Objects that they refer to must exist.
    pub fn put(&self, objects: Vec<Object>) -> Result<RevisionView, Failed> {
        let now = self.clock.now();
        self.engine.check_names(&objects, now)?;
        Ok(RevisionView { revision: self.engine.put_at(objects, now)? })
    }

    /// Deletes an object.
    pub fn remove(&self, kind: &str, name: &str) -> Result<(), Failed> {
        Ok(self.engine.remove(kind, name)?)
    }

    /// Deletes a fact about a host.
    pub fn remove_fact(&self, host: &str, name: &str) -> Result<(), Failed> {
        Ok(self.engine.remove_fact(host, name)?)
    }

    /// Sets facts about hosts.
    pub fn facts(&self, facts: Vec<FactPush>) -> Result<RevisionView, Failed> {
        let now = self.clock.now();
        let object = |push: FactPush| {
            let until = push.ttl.map(|ttl| now.saturating_add(ttl));
            let pushed = until.map(|_| now);
            Object::Fact(Fact { host: push.host, name: push.name, value: push.value, until, pushed })
        };
        self.put(facts.into_iter().map(object).collect())
    }

    fn check(&self, request: &PlaceRequest) -> Result<(), Failed> {
        let named = || request.only.iter().chain(&request.without);
        let unknown = |model: &Model| named().find(|host| model.host(host).is_none()).cloned();
        if let Some(host) = self.engine.view(unknown)? {
            return Err(EngineError::Decide(self.engine.view(|model| model.no_host(&host))?).into());
        }
        for names in [request.vms.iter().collect::<Vec<_>>(), request.new.iter().map(|vm| &vm.name).collect()]
        {
            let mut seen = BTreeSet::new();
            if let Some(name) = names.into_iter().find(|name| !seen.insert(name.as_str())) {
                return Err(Failed::Wrong(format!("VM {name} is named twice; name it once")));
            }
        }
        // A new description would have no running VM, so the VM's resources on its host would not be counted.
        let running = |model: &Model| {
            let known = request.new.iter().filter_map(|vm| model.vm(&vm.name));
            let mut running = known.filter(|slot| slot.vm.runs());
            running.next().map(|slot| (slot.vm.name.clone(), slot.vm.host.clone().unwrap_or_default()))
        };
        if let Some((vm, host)) = self.engine.view(running)? {
            let what = format!("VM {vm} runs on host {host} and can't be described as a new one");
            return Err(Failed::Conflict(format!("{what}; name it in `vms` to have it placed elsewhere")));
        }
        match request.vms.len() + request.new.len() {
            0 => Err(Failed::Wrong(
                "the request names no VM; `vms` names known ones, `new` describes others".into(),
            )),
            1..=MOST => Ok(()),
            many => Err(Failed::Wrong(format!("{many} VMs at once; {MOST} at most"))),
        }
    }

    /// Decides where VMs run, and reserves their resources.
    pub fn place(&self, request: PlaceRequest) -> Result<DecisionView, Failed> {
        self.check(&request)?;
        let ask = request.ask(self.clock.now());
        let known = |vm: &Vm, model: &Model| model.vm(&vm.name).map(|slot| (*slot.vm).clone());
        let before: Vec<(String, Option<Vm>)> = self
            .engine
            .view(|model| request.new.iter().map(|vm| (vm.name.clone(), known(vm, model))).collect())?;
        if !request.new.is_empty() {
            self.put(request.new.into_iter().map(|vm| Object::Vm(Box::new(vm))).collect())?;
        }
        let decision = self.engine.place(ask);
        if decision.is_err() {
            // If the request can't be judged, all objects are restored.
            for (name, known) in before {
                let _ = match known {
                    Some(vm) => self.engine.put(vec![Object::Vm(Box::new(vm))]).map(drop),
                    None => self.engine.remove("vm", &name),
                };
            }
        }
        Ok(decision?.into())
    }

    /// Decides where VMs would run, without a reservation.
    pub fn attempt(&self, request: PlaceRequest) -> Result<ExplainView, Failed> {
        self.check(&request)?;
        let ask = request.ask(self.clock.now());
        let (at, seed) = (ask.now, ask.seed);
        let (choices, traces) = self.engine.attempt(&ask, request.new)?;
        let placed = choices.iter().all(|choice| choice.host.is_some());
        let decision = DecisionView { at, seed, placed, choices, ..DecisionView::default() };
        Ok(ExplainView { decision, traces, note: String::new() })
    }

    /// Why a host would or would not be chosen.
    pub fn why_not(&self, request: WhyNotRequest) -> Result<WhyNot, Failed> {
        self.check(&request.request)?;
        Ok(self.engine.why_not(&request.host, &request.request.ask(self.clock.now()))?)
    }

    /// The newest decisions.
    pub fn decisions(&self, count: usize) -> Result<Vec<DecisionView>, Failed> {
        let decisions = self.engine.decisions(count.min(MOST))?;
        Ok(decisions.into_iter().map(DecisionView::from).collect())
    }

    /// The details of a decision.
    pub fn explain(&self, id: u64) -> Result<ExplainView, Failed> {
        Ok(self.engine.explain(id)?.into())
    }

    /// Confirms that a VM runs where it was placed.
    pub fn confirm(&self, vm: &str) -> Result<(), Failed> {
        Ok(self.engine.confirm(vm, self.clock.now())?)
    }

    /// Releases a VM's reservation.
    pub fn release(&self, vm: &str) -> Result<(), Failed> {
        Ok(self.engine.release(vm)?)
    }

    /// A round of balancing, carried out, or a preview.
    pub fn balance(&self, request: BalanceRequest) -> Result<Vec<BalanceStep>, Failed> {
        let now = self.clock.now();
        match request.dry_run {
            true => {
                let rounds = request.rounds.clamp(1, 1000);
                Ok(self.engine.preview(&request.cluster, now, rounds, request.interval)?)
            }
            false => Ok(vec![self.round(&request.cluster)?]),
        }
    }
}
