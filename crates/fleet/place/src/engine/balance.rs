//! A balancing round: a limited number of useful migrations per cluster, none of which undoes another.

use super::actions::{self, Action, ActionKind};
use super::external::{self, Attached};
use super::repair::repairs;
use super::{Engine, EngineError, Inner, overload};
use crate::balancers::{self, Proposal, Scene, unsafe_hosts};
use crate::decide::{Answers, Choice, PlacementRequest, Scratch, decide};
use crate::model::{Change, Model, Row};
use crate::object::{Host, HostStatus, Load, Migration as Movable, VmStatus};
use crate::policy::Policy;
use crate::ratio::Ratio;
use crate::store::Revision;
use crate::unit::ExternalAction;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use utoipa::ToSchema;

/// A migration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Migration {
    /// The VM.
    pub vm: String,
    /// Its source host.
    pub from: String,
    /// Its destination host.
    pub to: String,
    /// Why.
    pub reason: String,
    /// The decision that chose the destination; 0 in a preview.
    pub decision: u64,
    /// Its outcome.
    #[serde(default)]
    pub state: MigrationState,
    /// The reason of a refusal; otherwise empty.
    #[serde(default)]
    pub refused: String,
}

/// Outcome of a migration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MigrationState {
    /// Proposed by a preview.
    #[default]
    Proposed,
    /// The destination is reserved, for the program that moves the VM and confirms.
    Reserved,
    /// The VM has moved.
    Done,
    /// The migration failed; its reservation was released.
    Refused,
}

/// Result of a balancing round in a cluster, or its preview.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BalanceStep {
    /// The cluster.
    pub cluster: String,
    /// Time in milliseconds since 1970.
    pub at: u64,
    /// Migrations.
    pub migrations: Vec<Migration>,
    /// A host to switch, and its new status.
    pub power: Option<(String, HostStatus)>,
    /// The reason; empty without a host to switch.
    #[serde(default)]
    pub power_reason: String,
    /// Other actions of an external balancer.
    #[serde(default)]
    pub actions: Vec<Action>,
    /// Hosts whose failure would leave highly available VMs without a host.
    pub unsafe_hosts: Vec<String>,
    /// External units that failed: the balancer, or one that the policy requires.
    pub errors: Vec<String>,
}

/// When the balancer last moved, or tried to move, each VM.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(super) moved: HashMap<String, u64>,
}

/// Attack: a cluster of a hundred thousand VMs that can't move. Largest number of proposals examined per
/// round.
const PROPOSALS: usize = 200;
/// Attack: a unit that fails with a different message each time. Largest number of errors reported per round.
const ERRORS: usize = 10;

/// State of a round.
struct Round<'r> {
    model: &'r mut Model,
    scratch: &'r mut Scratch,
    external: Option<&'r mut Attached>,
    moved: &'r HashMap<String, u64>,
    now: u64,
    seed: u64,
}

impl Round<'_> {
    /// The first useful proposal, with its destination.
    fn choose(
        &mut self,
        cluster: &str,
        proposals: Vec<Proposal>,
        errors: &mut Vec<String>,
    ) -> Option<(Migration, PlacementRequest)> {
        for proposal in proposals.into_iter().take(PROPOSALS) {
            let Some((_, state)) = self.model.cluster(cluster) else { continue };
            let Some(slot) = self.model.vm_by(proposal.vm) else { continue };
            let cool_down = state.cluster.cool_down * 1000;
            let name = slot.vm.name.clone();
            // Ignore a move time in the future.
            let moved = slot.vm.moved_at.filter(|at| *at <= self.now);
            let last = moved.max(self.moved.get(&name).copied());
            if last.is_some_and(|last| self.now < last.saturating_add(cool_down)) {
                continue;
            }
            let from = state.name(proposal.from).to_string();
            let stay = proposal.stay;
            let own = stay.then_some(&proposal.from);
            let hosts = proposal.to.iter().chain(own);
            let only: BTreeSet<String> = hosts.map(|row| state.name(*row).to_string()).collect();
            let ask = PlacementRequest {
                vms: vec![name.clone()],
                only,
                stay,
                seed: self.seed,
                now: self.now,
                ..PlacementRequest::default()
            };
            if let Some(attached) = &mut self.external {
                attached.follow(self.model, self.now);
            }
            let mut answers = Answers::default();
            let mut outside = external::ask(self.external.as_deref_mut(), &mut answers);
            let Ok(choices) = decide(self.model, &ask, &mut outside, self.scratch) else { continue };
            self.model.apply(Change::NoPending(name.clone()));
            for what in choices.iter().filter_map(Choice::refusal) {
                if errors.len() < ERRORS && !errors.contains(&what) {
                    errors.push(what);
                }
            }
            let Some(to) = choices.first().and_then(|choice| choice.host.clone()) else { continue };
            if to == from || (proposal.evens && !self.gains(&proposal, cluster, &to)) {
                continue;
            }
            // All destinations were compared; only the chosen one is committed.
            let ask = PlacementRequest { only: BTreeSet::from([to.clone()]), stay: false, ..ask };
            let reason = proposal.reason.into_owned();
            let migration = Migration { vm: name, from, to, reason, ..Migration::default() };
            return Some((migration, ask));
        }
        None
    }

    /// Whether the load of the fuller of both hosts decreases by enough.
    fn gains(&self, proposal: &Proposal, cluster: &str, to: &str) -> bool {
        let Some((_, state)) = self.model.cluster(cluster) else { return false };
        let (Some(slot), Some(to)) = (self.model.vm_by(proposal.vm), self.model.host(to)) else {
            return false;
        };
        let load = |row: Row, more: i32| {
            let (columns, at) = (&state.columns, row as usize);
            let cpus = columns.cpus[at] - columns.exclusive[at];
            Ratio::of(i64::from(columns.load[at]) + i64::from(more), cpus.into())
        };
        let before = load(proposal.from, 0).max(load(to.row, 0));
        let after = load(proposal.from, -slot.need.load).max(load(to.row, slot.need.load));
        let rest = Ratio::of(100 - i64::from(state.cluster.minimum_gain), 100);
        after < before && before.times(rest).is_some_and(|limit| after <= limit)
    }
}

/// The reason of moves that empty a host.
const MAINTENANCE: &str = "maintenance";

/// VMs to move off hosts that are being emptied: host by host, highly available VMs first, then the largest.
fn emptying(model: &Model, cluster: &str) -> Vec<Proposal> {
    let Some((_, state)) = model.cluster(cluster) else { return Vec::new() };
    let rows = 0..state.columns.len() as Row;
    let mut leaving: Vec<Row> = rows
        .clone()
        .filter(|row| {
            state.slot(*row).is_some_and(|slot| slot.host.status == HostStatus::PreparingForMaintenance)
        })
        .collect();
    leaving.sort_by_key(|row| state.name(*row));
    let to: Vec<Row> = rows.filter(|row| state.columns.up[*row as usize]).collect();
    let mut proposals = Vec::new();
    for from in leaving {
        let slots = state.slot(from).into_iter().flat_map(|slot| &slot.running);
        let mut vms: Vec<_> = slots.filter_map(|id| Some((*id, model.vm_by(*id)?))).collect();
        vms.retain(|(_, slot)| {
            let moves = slot.vm.migration != Movable::PinnedToHost && slot.vm.status == VmStatus::Up;
            moves && slot.pending.is_none()
        });
        vms.sort_by_key(|(_, slot)| (!slot.vm.ha, -slot.need.committed, slot.vm.name.clone()));
        for (vm, _) in vms {
            let (to, reason) = (to.clone(), MAINTENANCE.into());
            proposals.push(Proposal { vm, from, to, stay: false, evens: false, reason });
        }
    }
    proposals
}

/// The proposed moves and power changes in a cluster.
fn propose(
    model: &mut Model,
    cluster: &str,
    now: u64,
    mut external: Option<&mut Attached>,
    step: &mut BalanceStep,
) -> Vec<Proposal> {
    if let Some(attached) = &mut external {
        attached.follow(model, now);
    }
    let model = &*model;
    let Some((_, state)) = model.cluster(cluster) else { return Vec::new() };
    let Some(policy) = model.policy(&state.cluster.policy) else { return Vec::new() };
    let mut properties: BTreeMap<String, String> = policy.properties.clone();
    properties.extend(state.cluster.properties.clone());
    if state.cluster.ha_reservation {
        step.unsafe_hosts = unsafe_hosts(model, state);
    }
    let mut proposals = emptying(model, cluster);
    let scene = Scene::new(model, state, now, properties);
    proposals.extend(repairs(&scene, policy));
    match (balancers::propose(&policy.balancer, &scene), external) {
        (Some((more, power)), _) => {
            proposals.extend(more);
            step.power = power.map(|power| (state.name(power.host).to_string(), power.to));
            step.power_reason = if step.power.is_some() { policy.balancer.clone() } else { String::new() };
        }
        (None, Some(attached)) => {
            let external = attached.unit();
            let hosts: Vec<String> = scene.hosts.iter().map(|row| state.name(*row).to_string()).collect();
            external.at(now, 0);
            match external.balance(&policy.balancer, &hosts, &scene.properties) {
                Ok(actions) => proposals.extend(take_over(&scene, &policy.balancer, &actions, step)),
                Err(error) => step.errors.push(error.to_string()),
            }
        }
        (None, None) => step.errors.push(format!("there is no balancer {} now", policy.balancer)),
    }
    proposals
}

/// The moves that an external balancer proposes; its other actions go into the round.
fn take_over(
    scene: &Scene<'_>,
    balancer: &str,
    actions: &[ExternalAction],
    step: &mut BalanceStep,
) -> Vec<Proposal> {
    let (mut proposals, mut errors) = (Vec::new(), Vec::new());
    for action in actions {
        match action {
            ExternalAction::Move { vm, to, reason } => {
                let reason = balancer_reason(balancer, reason);
                proposals.extend(from_outside(scene.model, scene, vm, to, reason));
            }
            ExternalAction::Power { host, .. } if step.power.as_ref().is_some_and(|(it, _)| it != host) => {
                errors.push(format!("{balancer}: {host}: one host is switched in a round"));
            }
            ExternalAction::Power { host, on, reason } => match power_from_outside(scene, host, *on) {
                Ok(power) => {
                    step.power = Some(power);
                    step.power_reason = balancer_reason(balancer, reason);
                }
                Err(why) => errors.push(format!("{balancer}: {host}: {why}")),
            },
            ExternalAction::Stop { .. } | ExternalAction::Maintenance { .. } => {}
        }
    }
    // A balancer is asked once for each move of a round; its other actions are taken once.
    if step.actions.is_empty() {
        let (found, mut refused) = actions::of(scene, actions, balancer);
        step.actions = found;
        errors.append(&mut refused);
    }
    errors.retain(|error| !step.errors.contains(error));
    errors.truncate(ERRORS.saturating_sub(step.errors.len()));
    step.errors.append(&mut errors);
    proposals
}

/// A plugin's reason, with the plugin's name.
pub(super) fn balancer_reason(balancer: &str, reason: &str) -> String {
    if reason.is_empty() { balancer.into() } else { format!("{balancer}: {reason}") }
}

fn from_outside(
    model: &Model,
    scene: &Scene<'_>,
    vm: &str,
    hosts: &[String],
    reason: String,
) -> Option<Proposal> {
    let id = model.vm_id(vm)?;
    let at = model.vm_by(id)?.at?;
    if !scene.hosts.contains(&at.row) || !scene.movable(at.row).contains(&id) {
        return None;
    }
    let to = hosts.iter().filter_map(|host| model.host(host)).filter(|host| host.cluster == at.cluster);
    let to: Vec<Row> =
        to.map(|host| host.row).filter(|row| scene.hosts.contains(row) && *row != at.row).collect();
    Some(Proposal { vm: id, from: at.row, to, stay: true, evens: false, reason: reason.into() })
}

/// A balancer may switch off an empty host that is on, or switch on a host that is off, if the host supports
/// it.
fn power_from_outside(scene: &Scene<'_>, host: &str, on: bool) -> Result<(String, HostStatus), &'static str> {
    let slot = scene.cluster.hosts.iter().flatten().find(|slot| slot.host.name == host);
    let slot = slot.ok_or("is no host of this cluster")?;
    let status = slot.host.status;
    let is_empty = slot.running.is_empty() && slot.pending.is_empty();
    match on {
        _ if !slot.host.power_managed => Err("can't be switched on and off"),
        true if status != HostStatus::Down => Err("is not switched off"),
        false if !matches!(status, HostStatus::Up | HostStatus::Maintenance) => Err("is not up"),
        false if status != HostStatus::Up && !slot.host.policy_controlled => {
            Err("is in an operator's maintenance")
        }
        false if !is_empty => Err("is not empty"),
        true => Ok((host.into(), HostStatus::Up)),
        false => Ok((host.into(), HostStatus::Down)),
    }
}

impl Engine {
    /// Runs a round in a cluster and reserves its migrations, to be confirmed or released by the program that
    /// moves the VMs.
    pub fn balance(&self, cluster: &str, now: u64) -> Result<BalanceStep, EngineError> {
        let mut inner = self.current()?;
        inner.follow(now);
        let (step, revision) = inner.balance(&*self.store, cluster, now)?;
        drop(inner);
        self.store.durable(revision)?;
        Ok(step)
    }

    /// Simulates the next `rounds` rounds, `interval` milliseconds apart, with the resources that each
    /// migration takes and frees. External units are queried about the simulated states.
    pub fn preview(
        &self,
        cluster: &str,
        now: u64,
        rounds: usize,
        interval: u64,
    ) -> Result<Vec<BalanceStep>, EngineError> {
        let mut inner = self.current()?;
        inner.follow(now);
        let policy = match inner.model.cluster(cluster) {
            Some((_, state)) => inner.model.policy(&state.cluster.policy).cloned(),
            None => return Err(inner.model.no_cluster(cluster).into()),
        };
        let mut model = inner.model.clone();
        let mut future = Future { moved: inner.balance.moved.clone(), scratch: Scratch::default() };
        if policy.is_some_and(|policy| needs_outside(&policy)) {
            let Inner { external, .. } = &mut *inner;
            let steps = future.rounds(&mut model, external.as_mut(), cluster, now, rounds, interval);
            external.iter_mut().for_each(Attached::forget);
            return Ok(steps);
        }
        // Release the lock early.
        drop(inner);
        Ok(future.rounds(&mut model, None, cluster, now, rounds, interval))
    }
}

/// Whether a policy has external units.
fn needs_outside(policy: &Policy) -> bool {
    let filters = policy.filters.iter().any(|used| crate::filters::find(&used.name).is_none());
    let weights = policy.weights.iter().any(|used| crate::weights::find(&used.name).is_none());
    let balancer = !policy.balancer.is_empty() && balancers::find(&policy.balancer).is_none();
    filters || weights || balancer
}

/// A preview's own memory.
struct Future {
    moved: HashMap<String, u64>,
    scratch: Scratch,
}

impl Future {
    fn rounds(
        &mut self,
        model: &mut Model,
        mut external: Option<&mut Attached>,
        cluster: &str,
        now: u64,
        rounds: usize,
        interval: u64,
    ) -> Vec<BalanceStep> {
        let mut steps = Vec::new();
        for round in 0..rounds {
            let now = now.saturating_add((round as u64).saturating_mul(interval));
            let mut step = BalanceStep { cluster: cluster.into(), at: now, ..BalanceStep::default() };
            let most = model.cluster(cluster).map_or(0, |(_, state)| state.cluster.migrations);
            overload::of_cluster(model, cluster, now).into_iter().for_each(|change| model.apply(change));
            for _ in 0..most {
                let proposals = propose(model, cluster, now, external.as_deref_mut(), &mut step);
                let (scratch, moved, seed) = (&mut self.scratch, &self.moved, round as u64);
                let external = external.as_deref_mut();
                let mut choice = Round { model, scratch, external, moved, now, seed };
                let Some((migration, _)) = choice.choose(cluster, proposals, &mut step.errors) else { break };
                migrate(model, &migration, now);
                self.moved.insert(migration.vm.clone(), now);
                step.migrations.push(migration);
            }
            if let Some((host, status)) = &step.power {
                switched(model, host, *status).into_iter().for_each(|change| model.apply(change));
            }
            for action in &step.actions {
                let changes: Vec<Change> = match action.kind {
                    ActionKind::Stop => actions::stopped(model, &action.name).into_iter().flatten().collect(),
                    _ => actions::host_change(model, action).into_iter().collect(),
                };
                changes.into_iter().for_each(|change| model.apply(change));
            }
            let done = step.migrations.is_empty() && step.power.is_none() && step.actions.is_empty();
            steps.push(step);
            if done {
                break;
            }
        }
        steps
    }
}

impl Inner {
    fn balance(
        &mut self,
        store: &dyn crate::store::Store,
        cluster: &str,
        now: u64,
    ) -> Result<(BalanceStep, Revision), EngineError> {
        let mut step = BalanceStep { cluster: cluster.into(), at: now, ..BalanceStep::default() };
        let most = match self.model.cluster(cluster) {
            Some((_, state)) => state.cluster.migrations,
            None => return Err(self.model.no_cluster(cluster).into()),
        };
        // Drop entries that are older than any cool-down.
        self.balance.moved.retain(|_, at| at.saturating_add(86_400_000) > now);
        let mut revision = self.seen;
        let overloads = overload::of_cluster(&self.model, cluster, now);
        if !overloads.is_empty() {
            revision = self.change(store, &overloads)?;
        }
        for _ in 0..most {
            let Inner { model, scratch, balance, external, next, .. } = &mut *self;
            let proposals = propose(model, cluster, now, external.as_mut(), &mut step);
            let (external, moved, seed) = (external.as_mut(), &balance.moved, *next);
            let mut round = Round { model, scratch, external, moved, now, seed };
            let Some((mut migration, ask)) = round.choose(cluster, proposals, &mut step.errors) else {
                break;
            };
            let (decision, at) = self.place(store, ask)?;
            revision = at;
            if !decision.placed() {
                break;
            }
            migration.decision = decision.id;
            migration.state = MigrationState::Reserved;
            self.balance.moved.insert(migration.vm.clone(), now);
            step.migrations.push(migration);
        }
        let power = step.power.as_ref().and_then(|(host, status)| switched(&self.model, host, *status));
        let mut changes: Vec<Change> = power.into_iter().collect();
        for action in &mut step.actions {
            let change = actions::host_change(&self.model, action);
            action.state = if change.is_some() { MigrationState::Done } else { MigrationState::Reserved };
            changes.extend(change);
        }
        if !changes.is_empty() {
            revision = self.change(store, &changes)?;
        }
        Ok((step, revision))
    }
}

/// Moves a VM, together with its share of the measured loads.
pub(crate) fn migrate(model: &mut Model, migration: &Migration, now: u64) {
    let Some(slot) = model.vm(&migration.vm) else { return };
    let (need, mut vm) = (slot.need, (*slot.vm).clone());
    for (host, sign) in [(&migration.from, -1), (&migration.to, 1)] {
        let Some(id) = model.host(host) else { continue };
        let Some(load) = model.slot(id).and_then(|slot| slot.load.as_ref()) else { continue };
        let cpus = i64::from(model.state(id.cluster).columns.cpus[id.row as usize].max(1));
        let percent = load
            .cpu_percent
            .map(|percent| (i64::from(percent) + sign * i64::from(need.load) / cpus).clamp(0, 100) as u32);
        let free = load.free_mb.map(|free| free.saturating_add_signed(-sign * i64::from(need.memory)));
        let load = Load { cpu_percent: percent, free_mb: free, ..(**load).clone() };
        model.apply(Change::Load(load));
    }
    vm.last_host = vm.host.replace(migration.to.clone());
    vm.moved_at = Some(now);
    model.apply(Change::NoPending(vm.name.clone()));
    model.apply(Change::Vm(vm));
}

/// The change by which a policy switches a host.
fn switched(model: &Model, host: &str, status: HostStatus) -> Option<Change> {
    let slot = model.slot(model.host(host)?)?;
    let policy_controlled = status != HostStatus::Up;
    Some(Change::Host(Host { status, policy_controlled, ..(*slot.host).clone() }))
}
