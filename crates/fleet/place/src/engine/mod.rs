//! The engine: decides on a model that follows a store, and writes its decisions to the store.
//!
//! A decision is committed only if the reservations of its hosts have not changed since it read them. Several
//! engines can therefore share a store without overbooking.

mod actions;
mod advice;
mod balance;
mod clock_set_back;
mod described;
mod drain;
mod events;
mod external;
mod history;
mod mirror;
mod objects;
mod overload;
mod queue;
mod refer;
mod removing;
mod repair;
mod status;
mod steady;
mod views;

pub use actions::{Action, ActionKind};
pub use balance::{BalanceStep, Migration, MigrationState};
pub use described::Described;
pub use drain::{DrainStep, Stuck};
pub use events::Changed;
pub use history::{Decision, Explained, HISTORY, WhyNot};
pub use mirror::Gone;
pub use objects::{Object, build};
pub use refer::{Dangling, There};
pub use removing::REMOVABLE;
pub use views::HostRow;

use crate::decide::{Answers, Choice, DecideError, PlacementRequest, Scratch, Trace, decide, policy_of_vm};
use crate::model::{Change, Model};
use crate::object::{Pending, Vm, VmStatus, Wrong};
use crate::store::{Compare, LeaseId, Op, Revision, Store, StoreError, decode, encode};
use crate::unit::External;
use history::Recent;
use queue::{Answer, BATCH, Queue};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

/// Lifetime in milliseconds of a reservation that is not confirmed.
pub const LEASE: u64 = 60_000;

/// How often a decision is retried after a conflict with another engine.
const ATTEMPTS: u32 = 16;

/// Errors of the engine.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum EngineError {
    /// An object can't be used.
    #[error(transparent)]
    Wrong(#[from] Wrong),
    /// A policy can't be used.
    #[error("{0}")]
    Policy(String),
    /// The request can't be judged.
    #[error(transparent)]
    Decide(#[from] DecideError),
    /// An error of the store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Unknown decision.
    #[error("there is no decision {0}; `ringway place decisions` lists those that are known")]
    NoDecision(u64),
    /// No resources are reserved for the VM.
    #[error("nothing is reserved for VM {0}")]
    NoPending(String),
    /// Unknown object.
    #[error("{0}")]
    NoObject(String),
    /// The object is still in use.
    #[error("{0}")]
    InUse(String),
}

/// The engine.
pub struct Engine {
    store: Arc<dyn Store>,
    inner: Mutex<Inner>,
    queue: Queue,
    /// The newest decision.
    newest: AtomicU64,
}

pub(crate) struct Inner {
    pub(crate) model: Model,
    /// The store's revision of the model.
    pub(crate) seen: Revision,
    /// When resources of each host were last reserved.
    claims: HashMap<String, Revision>,
    /// When each VM's reservation was last changed.
    pending: HashMap<String, Revision>,
    next: u64,
    scratch: Scratch,
    recent: Recent,
    external: Option<external::Attached>,
    balance: balance::State,
}

impl Engine {
    /// An engine for the contents of `store`.
    pub fn open(store: Arc<dyn Store>) -> Result<Engine, EngineError> {
        let (seen, entries) = store.range("", None)?;
        let mut inner = Inner {
            model: build(&entries),
            seen,
            claims: HashMap::new(),
            pending: HashMap::new(),
            next: 1,
            scratch: Scratch::default(),
            recent: Recent::default(),
            external: None,
            balance: balance::State::default(),
        };
        for entry in &entries {
            inner.record_entry(&entry.key, entry.modified, Some(&entry.value));
        }
        let newest = AtomicU64::new(inner.next - 1);
        Ok(Engine { store, inner: Mutex::new(inner), queue: Queue::default(), newest })
    }

    /// Attaches external units in place of the previous ones.
    pub fn attach(&self, external: Box<dyn External>) {
        self.lock().external = Some(external::Attached::new(external));
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No code panics while it holds the lock.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Inner>> {
        match self.inner.try_lock() {
            Ok(inner) => Some(inner),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// The engine's state, up to date with the store.
    fn current(&self) -> Result<MutexGuard<'_, Inner>, EngineError> {
        let mut inner = self.lock();
        inner.sync(&*self.store)?;
        Ok(inner)
    }

    /// Decides, and reserves the chosen hosts until the VMs run or a lease ends. Returns when the decision is
    /// durable.
    pub fn place(&self, ask: PlacementRequest) -> Result<Decision, EngineError> {
        let (decision, revision) = self.begin(ask)?;
        self.durable(revision)?;
        Ok(decision)
    }

    /// Decides as [`Engine::place`] does, and returns at once. The decision is durable when
    /// [`Engine::durable`] has returned for the revision.
    pub fn begin(&self, ask: PlacementRequest) -> Result<(Decision, Revision), EngineError> {
        if let Some(mut inner) = self.try_lock() {
            // A request that gets the lock directly need not queue.
            let serving = self.queue.serve();
            let answer = self.decide(&mut inner, ask, None);
            self.serve(inner, &serving);
            return answer;
        }
        let ticket = self.queue.push(ask, self.newest.load(Ordering::Relaxed));
        loop {
            if let Some(answer) = ticket.take() {
                return answer;
            }
            let inner = match self.try_lock() {
                Some(inner) => inner,
                None if self.queue.is_served() => {
                    std::thread::park();
                    continue;
                }
                // The lock's holder does not serve the queue.
                None => self.lock(),
            };
            let serving = self.queue.serve();
            self.serve(inner, &serving);
        }
    }

    /// Decides queued requests for a while, then releases the lock.
    fn serve(&self, mut inner: MutexGuard<'_, Inner>, serving: &queue::Serving<'_>) {
        let mut answered = Vec::new();
        while answered.len() < BATCH {
            let Some(ticket) = self.queue.pop() else { break };
            if let Some((ask, through)) = ticket.asks() {
                ticket.answer(self.decide(&mut inner, ask, through));
            }
            answered.push(ticket);
        }
        serving.end();
        drop(inner);
        answered.iter().for_each(|ticket| ticket.wake());
    }

    fn decide(&self, inner: &mut Inner, mut ask: PlacementRequest, through: Option<u64>) -> Answer {
        ask.waiting = self.waiting();
        if let Some(newest) = through {
            inner.let_through(&mut ask, newest);
        }
        let answer = inner.place(&*self.store, ask);
        self.newest.store(inner.next - 1, Ordering::Relaxed);
        answer
    }

    /// Number of waiting requests.
    pub fn waiting(&self) -> u32 {
        self.queue.waiting()
    }

    /// Returns when everything up to a revision would survive a crash.
    pub fn durable(&self, revision: Revision) -> Result<(), EngineError> {
        Ok(self.store.durable(revision)?)
    }

    /// Decides as [`Engine::place`] would, without a reservation, and returns the full trace. `extra` are VMs
    /// that need not exist.
    pub fn attempt(
        &self,
        ask: &PlacementRequest,
        extra: Vec<Vm>,
    ) -> Result<(Vec<Choice>, Vec<Trace>), EngineError> {
        extra.iter().try_for_each(Vm::check)?;
        let (choices, traces, _) = self.current()?.attempt(ask, extra)?;
        Ok((choices, traces))
    }

    /// The available external units.
    pub fn external_units(&self) -> Vec<crate::unit::ExternalUnit> {
        self.lock().external_units()
    }

    /// Errors of the sources of external units, one line each.
    pub fn external_problems(&self) -> Vec<String> {
        self.lock().external.as_mut().map_or(Vec::new(), |attached| attached.unit().problems())
    }

    /// Confirms that a VM runs on the host reserved for it.
    pub fn confirm(&self, vm: &str, now: u64) -> Result<(), EngineError> {
        let mut inner = self.current()?;
        let pending = inner.model.pendings().get(vm).cloned();
        let pending = pending.ok_or_else(|| EngineError::NoPending(vm.into()))?;
        let slot = inner.model.vm(vm).ok_or_else(|| inner.model.no_vm(vm))?;
        let mut running = (*slot.vm).clone();
        let moved = running.runs() && running.host.as_ref() != Some(&pending.host);
        running.moved_at = if moved { Some(now) } else { running.moved_at };
        running.last_host = running.host.take();
        running.host = Some(pending.host.clone());
        running.status = VmStatus::Up;
        let revision = inner.change(&*self.store, &[Change::Vm(running), Change::NoPending(vm.into())])?;
        drop(inner);
        Ok(self.store.durable(revision)?)
    }

    /// Releases a VM's reservation.
    pub fn release(&self, vm: &str) -> Result<(), EngineError> {
        let mut inner = self.current()?;
        if !inner.model.pendings().contains_key(vm) {
            return Err(EngineError::NoPending(vm.into()));
        }
        let revision = inner.change(&*self.store, &[Change::NoPending(vm.into())])?;
        drop(inner);
        Ok(self.store.durable(revision)?)
    }

    /// The store's revision.
    pub fn revision(&self) -> Result<Revision, EngineError> {
        Ok(self.current()?.seen)
    }

    /// Ends expired leases.
    pub fn expire(&self, now: u64) -> Result<(), EngineError> {
        self.store.expire(now)?;
        self.current().map(drop)
    }

    /// Calls `look` with the current model.
    pub fn view<T>(&self, look: impl FnOnce(&Model) -> T) -> Result<T, EngineError> {
        Ok(look(&self.current()?.model))
    }
}

impl Inner {
    /// Follows the store.
    pub(crate) fn sync(&mut self, store: &dyn Store) -> Result<(), EngineError> {
        match store.watch(self.seen) {
            Ok(events) => {
                for event in events {
                    self.seen = event.revision;
                    if let Some(change) = decode(&event.key, event.value.as_deref()) {
                        self.model.apply(change);
                    }
                    self.record_entry(&event.key, event.revision, event.value.as_deref());
                }
                Ok(())
            }
            // Too far behind: reload everything.
            Err(StoreError::Compacted { .. }) => {
                let (seen, entries) = store.range("", None)?;
                self.model = build(&entries);
                self.seen = seen;
                self.claims.clear();
                self.pending.clear();
                for entry in &entries {
                    self.record_entry(&entry.key, entry.modified, Some(&entry.value));
                }
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Records keys that the model does not hold.
    fn record_entry(&mut self, key: &str, revision: Revision, value: Option<&[u8]>) {
        let modified = if value.is_some() { revision } else { 0 };
        if let Some(host) = key.strip_prefix("claim/") {
            self.claims.insert(host.into(), modified);
        } else if let Some(vm) = key.strip_prefix("pending/") {
            self.pending.insert(vm.into(), modified);
        } else if let Some(id) = key.strip_prefix("answers/") {
            if let (Ok(id), true) = (id.parse(), value.is_some()) {
                self.recent.answered(id);
            }
        } else if let Some(id) = key.strip_prefix("detail/") {
            if let (Ok(id), Some(value)) = (id.parse(), value) {
                self.recent.detailed(id, value.len());
            }
        } else if let Some(id) = key.strip_prefix("decision/") {
            let Ok(id) = id.parse::<u64>() else { return };
            self.next = self.next.max(id + 1);
            let Some(value) = value else { return };
            if let Ok(decision) = serde_json::from_slice::<Decision>(value) {
                self.recent.push(id, decision.revision, decision.placed(), value.len());
            }
        }
    }

    /// With a policy that allows overbooking, ignores reservations made since the request was released early:
    /// requests released together do not see each other.
    fn let_through(&mut self, ask: &mut PlacementRequest, newest: u64) {
        let policy = ask.vms.first().and_then(|vm| policy_of_vm(&self.model, ask.policy.as_deref(), vm));
        if policy.is_none_or(|policy| policy.optimise != crate::policy::Optimise::Overbooking) {
            return;
        }
        ask.overbook = true;
        let reserved = self.model.pendings().values();
        let meanwhile =
            reserved.filter(|pending| pending.decision > newest && !ask.vms.contains(&pending.vm));
        ask.unseen = meanwhile.map(|pending| pending.vm.clone()).collect();
    }

    fn place(
        &mut self,
        store: &dyn Store,
        ask: PlacementRequest,
    ) -> Result<(Decision, Revision), EngineError> {
        for _ in 0..ATTEMPTS {
            self.sync(store)?;
            self.follow(ask.now);
            let before: Vec<Option<Pending>> =
                ask.vms.iter().map(|vm| self.model.pendings().get(vm).cloned()).collect();
            let mut answers = Answers::default();
            let result = {
                let Inner { model, scratch, external, .. } = &mut *self;
                decide(model, &ask, &mut external::external_answers(external, &mut answers), scratch)
            };
            let decision = Decision::new(self.next, self.seen, ask.clone(), result?, answers);
            match self.commit(store, &decision) {
                Ok(revision) => return Ok((decision, revision)),
                Err(StoreError::Conflict(_)) => {
                    for (vm, pending) in ask.vms.iter().zip(before) {
                        self.model.apply(match pending {
                            Some(pending) => Change::Pending(pending),
                            None => Change::NoPending(vm.clone()),
                        });
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(StoreError::Conflict("the cluster".into()).into())
    }

    /// Writes a decision and its reservations.
    fn commit(&mut self, store: &dyn Store, decision: &Decision) -> Result<Revision, StoreError> {
        let key = format!("decision/{:020}", decision.id);
        let mut compares = vec![Compare { key: key.clone(), modified: 0 }];
        let mut ops = Vec::new();
        let (mut pendings, mut details) = (Vec::new(), 0);
        if decision.placed() {
            let lease = store.lease(LEASE, decision.ask.now)?;
            for choice in &decision.choices {
                self.reserve(choice, decision.id, lease, &mut compares, &mut ops, &mut pendings);
            }
        } else if let Some(detail) = self.detail(decision) {
            let op = put(&format!("detail/{:020}", decision.id), &detail, None);
            details = size(&op);
            ops.push(op);
        }
        let mut checked = std::borrow::Cow::Borrowed(&compares);
        if decision.ask.overbook {
            checked.to_mut().retain(|compare| !compare.key.starts_with("claim/"));
        }
        let (revision, alone) = self.write(store, decision, &checked, ops, details)?;
        if alone {
            for compare in &compares {
                if compare.key.starts_with("claim/") || compare.key.starts_with("pending/") {
                    self.record_entry(&compare.key, revision, Some(&[]));
                }
            }
            for pending in pendings {
                self.model.apply(Change::Pending(pending));
            }
        }
        if let Some(before) = self.recent.compact() {
            store.compact(before)?;
        }
        Ok(revision)
    }

    /// Writes a decision together with `ops`. Returns the revision, and whether no other engine changed anything
    /// in between, so that the watch's next events are already known.
    fn write(
        &mut self,
        store: &dyn Store,
        decision: &Decision,
        compares: &[Compare],
        mut ops: Vec<Op>,
        details: usize,
    ) -> Result<(Revision, bool), StoreError> {
        let op = put(&format!("decision/{:020}", decision.id), decision, None);
        let bytes = size(&op);
        ops.push(op);
        if !decision.answers.is_empty() {
            ops.push(put(&format!("answers/{:020}", decision.id), &decision.answers, None));
        }
        ops.extend(self.recent.outdated());
        let revision = store.transact(compares, ops)?;
        self.recent.removed();
        if revision != self.seen + 1 {
            return Ok((revision, false));
        }
        self.seen = revision;
        self.next = decision.id + 1;
        self.recent.push(decision.id, decision.revision, decision.placed(), bytes);
        if details > 0 {
            self.recent.detailed(decision.id, details);
        }
        if !decision.answers.is_empty() {
            self.recent.answered(decision.id);
        }
        Ok((revision, true))
    }

    fn reserve(
        &self,
        choice: &Choice,
        decision: u64,
        lease: LeaseId,
        compares: &mut Vec<Compare>,
        ops: &mut Vec<Op>,
        pendings: &mut Vec<Pending>,
    ) {
        let Some(host) = &choice.host else { return };
        for vm in &choice.vms {
            // A VM that stays on its host has no reservation.
            if !self.model.pendings().contains_key(vm) {
                continue;
            }
            let pending = Pending { vm: vm.clone(), host: host.clone(), decision };
            let key = format!("pending/{vm}");
            let modified = self.pending.get(vm).copied().unwrap_or(0);
            compares.push(Compare { key: key.clone(), modified });
            ops.push(put(&key, &pending, Some(lease)));
            pendings.push(pending);
        }
        let key = format!("claim/{host}");
        if !compares.iter().any(|compare| compare.key == key) {
            let modified = self.claims.get(host).copied().unwrap_or(0);
            compares.push(Compare { key: key.clone(), modified });
            ops.push(put(&key, &decision, None));
        }
    }

    /// Makes changes that are not decisions, here and in the store.
    pub(crate) fn change(&mut self, store: &dyn Store, changes: &[Change]) -> Result<Revision, StoreError> {
        let mut ops = Vec::new();
        for change in changes {
            let (key, value) = encode(change);
            // Starting to use a host claims it, so that concurrent decisions are retried.
            if let Change::Vm(vm) = change
                && let Some(host) = vm.host.as_ref().filter(|_| vm.runs())
            {
                ops.push(put(&format!("claim/{host}"), &0, None));
            }
            ops.push(match value {
                Some(value) => Op::Put { key, value, lease: None },
                None => Op::Delete(key),
            });
        }
        let revision = store.transact(&[], ops)?;
        // The watch returns it together with other changes.
        match self.sync(store) {
            Ok(()) => Ok(revision),
            Err(EngineError::Store(error)) => Err(error),
            Err(other) => Err(StoreError::File(other.to_string())),
        }
    }
}

/// Size of a written value in bytes.
fn size(op: &Op) -> usize {
    if let Op::Put { value, .. } = op { value.len() } else { 0 }
}

fn put<T: serde::Serialize>(key: &str, value: &T, lease: Option<LeaseId>) -> Op {
    let value = serde_json::to_vec(value).unwrap_or_default();
    Op::Put { key: key.into(), value: value.into(), lease }
}
