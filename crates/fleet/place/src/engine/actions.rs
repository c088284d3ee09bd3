//! Actions of external balancers other than moves: stopping VMs, taking hosts out of use and back.

use super::{Engine, EngineError, MigrationState};
use crate::balancers::Scene;
use crate::model::{Change, HostSlot, Model};
use crate::object::{Host, HostStatus, Vm, VmStatus};
use crate::unit::ExternalAction;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What an action does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ActionKind {
    /// Stops a VM.
    #[default]
    Stop,
    /// Puts a host into maintenance.
    Deactivate,
    /// Takes a host that the policy put into maintenance into use again.
    Activate,
}

/// An action of a balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Action {
    /// What it does.
    pub kind: ActionKind,
    /// The VM or the host.
    pub name: String,
    /// Why.
    pub reason: String,
    /// Its outcome: `reserved` is a VM that another program is to stop.
    #[serde(default)]
    pub state: MigrationState,
    /// The reason of a refusal; otherwise empty.
    #[serde(default)]
    pub refused: String,
}

/// Attack: a plugin that stops a VM a million times. Largest number of actions in a round.
pub(super) const MOST: usize = 10_000;

/// The actions of a balancer that have an effect in its cluster, and why others are refused.
pub(super) fn of(scene: &Scene<'_>, actions: &[ExternalAction], by: &str) -> (Vec<Action>, Vec<String>) {
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    for action in actions.iter().take(MOST) {
        let (kind, name, reason, effect) = match action {
            ExternalAction::Stop { vm, reason } => (ActionKind::Stop, vm, reason, stops(scene, vm)),
            ExternalAction::Maintenance { host, on: true, reason } => {
                (ActionKind::Deactivate, host, reason, deactivates(scene, host))
            }
            ExternalAction::Maintenance { host, on: false, reason } => {
                (ActionKind::Activate, host, reason, activates(scene, host))
            }
            ExternalAction::Move { .. } | ExternalAction::Power { .. } => continue,
        };
        let is_new = !found.iter().any(|known: &Action| known.kind == kind && known.name == *name);
        match effect {
            Ok(true) if is_new => {
                let reason = super::balance::balancer_reason(by, reason);
                found.push(Action { kind, name: name.clone(), reason, ..Action::default() });
            }
            Ok(_) => {}
            Err(why) => refused.push(format!("{by}: {name}: {why}")),
        }
    }
    (found, refused)
}

/// Whether a VM of the cluster is to be stopped: not if it is stopped already.
fn stops(scene: &Scene<'_>, vm: &str) -> Result<bool, &'static str> {
    let slot = scene.model.vm(vm).ok_or("is no VM")?;
    match slot.at.filter(|_| slot.vm.runs()) {
        None => Ok(false),
        Some(at) if scene.model.state(at.cluster).cluster.name == scene.cluster.cluster.name => Ok(true),
        Some(_) => Err("runs in another cluster"),
    }
}

fn slot<'s>(scene: &'s Scene<'_>, host: &str) -> Result<&'s HostSlot, &'static str> {
    let slots = scene.cluster.hosts.iter().flatten();
    let mut slots = slots.filter(|slot| slot.host.name == host);
    slots.next().ok_or("is no host of this cluster")
}

fn deactivates(scene: &Scene<'_>, host: &str) -> Result<bool, &'static str> {
    match slot(scene, host)?.host.status {
        HostStatus::Up => Ok(true),
        HostStatus::NonResponsive => Err("does not respond"),
        _ => Ok(false),
    }
}

fn activates(scene: &Scene<'_>, host: &str) -> Result<bool, &'static str> {
    let in_any_cluster = scene.model.host(host).and_then(|id| scene.model.slot(id));
    if in_any_cluster.is_some_and(|slot| slot.host.status == HostStatus::Up) {
        return Ok(false);
    }
    let host = &slot(scene, host)?.host;
    match host.status {
        HostStatus::Up => Ok(false),
        HostStatus::Maintenance | HostStatus::PreparingForMaintenance if host.policy_controlled => Ok(true),
        HostStatus::Maintenance | HostStatus::PreparingForMaintenance => {
            Err("is in an operator's maintenance")
        }
        HostStatus::Down => Err("is switched off; wake it"),
        HostStatus::NonResponsive => Err("does not respond"),
    }
}

/// The changes by which an action of a round takes effect; none for a VM, which is to be stopped first.
pub(super) fn host_change(model: &Model, action: &Action) -> Option<Change> {
    let slot = model.slot(model.host(&action.name)?)?;
    let (status, policy_controlled) = match action.kind {
        ActionKind::Stop => return None,
        ActionKind::Activate => (HostStatus::Up, false),
        ActionKind::Deactivate if slot.guests().next().is_none() => (HostStatus::Maintenance, true),
        ActionKind::Deactivate => (HostStatus::PreparingForMaintenance, true),
    };
    Some(Change::Host(Host { status, policy_controlled, ..(*slot.host).clone() }))
}

/// The changes by which a VM is stopped.
pub(super) fn stopped(model: &Model, vm: &str) -> Option<[Change; 2]> {
    let old = &model.vm(vm)?.vm;
    let last_host = old.host.clone().or(old.last_host.clone());
    let vm = Vm { status: VmStatus::Down, host: None, last_host, ..(**old).clone() };
    Some([Change::NoPending(vm.name.clone()), Change::Vm(vm)])
}

impl Engine {
    /// Records that a VM was stopped: it uses nothing any more, and a reservation ends.
    pub fn stop(&self, vm: &str) -> Result<(), EngineError> {
        let mut inner = self.current()?;
        let changes = stopped(&inner.model, vm).ok_or_else(|| inner.model.no_vm(vm))?;
        let revision = inner.change(&*self.store, &changes)?;
        drop(inner);
        Ok(self.store.durable(revision)?)
    }
}
