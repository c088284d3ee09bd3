//! One decision: hosts for a set of VMs, all or none.

mod choose;
mod external_units;
mod group;
mod record;
mod select;
mod totals;
mod trace;
mod unknown;

pub use choose::Scratch;
pub use external_units::{Answers, Outside};
pub use record::{Choice, Removed, Scored};
pub use trace::{HostTrace, Trace, Verdict, WeightTrace};
pub use unknown::Unknown;

use crate::model::{Change, ClusterState, HostId, Model, Need, VmId};
use crate::object::Pending;
use crate::policy::Policy;
use crate::unit::{Context, Request};
use choose::{Judged, evaluate};
pub(crate) use select::mix;
use serde::{Deserialize, Serialize};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Number of waiting requests above which a policy that is optimised for speed skips weighing (oVirt's
/// `SpeedOptimizationSchedulingThreshold`).
pub const SPEED_THRESHOLD: u32 = 10;

/// Number of waiting requests above which a request of a policy that allows overbooking bypasses the lock,
/// together with that many of them (oVirt's `SchedulerOverBookingThreshold`;
/// `SchedulingManager.checkAllowOverbooking`).
pub const OVERBOOKING_THRESHOLD: u32 = 10;

/// A placement request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlacementRequest {
    /// The VMs, which are placed all or none, in this order.
    pub vms: Vec<String>,
    /// Policy instead of the VMs' or their cluster's.
    #[serde(default)]
    pub policy: Option<String>,
    /// Allowed hosts; empty for all.
    #[serde(default)]
    pub only: BTreeSet<String>,
    /// Excluded hosts.
    #[serde(default)]
    pub without: BTreeSet<String>,
    /// Whether the host a VM runs on may be chosen.
    #[serde(default)]
    pub stay: bool,
    /// Seed for breaking ties.
    pub seed: u64,
    /// The time, in milliseconds since 1970.
    pub now: u64,
    /// Number of waiting requests.
    #[serde(default)]
    pub waiting: u32,
    /// Whether the request was released early, as a policy that allows overbooking does under load.
    #[serde(default)]
    pub overbook: bool,
    /// VMs whose reservations are ignored, since they were made after this request was released early.
    #[serde(default)]
    pub unseen: BTreeSet<String>,
}

/// The remedy for an unknown VM.
const ADD_VM: &str = "add it to the inventory file, or to a running fabric with `ringway place put FILE`";

/// Why a request could not be judged at all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum DecideError {
    /// Unknown VM.
    #[error("there is no VM {0}; {fix}", fix = .0.fix(ADD_VM))]
    NoVm(Unknown),
    /// Unknown cluster.
    #[error("there is no cluster {0}; {fix}", fix = .0.fix("adding a host to it creates it"))]
    NoCluster(Unknown),
    /// Unknown policy.
    #[error("there is no policy {0}; {fix}", fix = .0.fix("`ringway place policies` lists them"))]
    NoPolicy(Unknown),
    /// Unknown host.
    #[error("there is no host {0}; {fix}", fix = .0.fix("`ringway place hosts` lists them"))]
    NoHost(Unknown),
    /// The request names no VM.
    #[error("the request names no VM")]
    Nothing,
}

/// Decides. If everything is placed, the reservations stay in `model`; otherwise none do.
pub fn decide(
    model: &mut Model,
    ask: &PlacementRequest,
    outside: &mut Outside<'_>,
    scratch: &mut Scratch,
) -> Result<Vec<Choice>, DecideError> {
    run(model, ask, outside, scratch, None)
}

/// Decides as [`decide`] does, and returns the full trace. `model` is left unchanged.
pub fn explain(
    model: &mut Model,
    ask: &PlacementRequest,
    outside: &mut Outside<'_>,
    scratch: &mut Scratch,
) -> Result<(Vec<Choice>, Vec<Trace>), DecideError> {
    let before = reserved(model, &ask.vms);
    let mut traces = Vec::new();
    let choices = run(model, ask, outside, scratch, Some(&mut traces));
    restore(model, &ask.vms, before);
    Ok((choices?, traces))
}

/// The reservations of some VMs.
pub(crate) fn reserved<'v>(model: &Model, vms: impl IntoIterator<Item = &'v String>) -> Vec<Option<Pending>> {
    vms.into_iter().map(|vm| model.pendings().get(vm).cloned()).collect()
}

/// Sets the reservations of some VMs to what [`reserved`] returned.
pub(crate) fn restore<'v>(
    model: &mut Model,
    vms: impl IntoIterator<Item = &'v String>,
    before: Vec<Option<Pending>>,
) {
    for (vm, pending) in vms.into_iter().zip(before) {
        match pending {
            Some(pending) => model.apply(Change::Pending(pending)),
            None => model.apply(Change::NoPending(vm.clone())),
        }
    }
}

fn run(
    model: &mut Model,
    ask: &PlacementRequest,
    outside: &mut Outside<'_>,
    scratch: &mut Scratch,
    mut traces: Option<&mut Vec<Trace>>,
) -> Result<Vec<Choice>, DecideError> {
    if ask.vms.is_empty() {
        return Err(DecideError::Nothing);
    }
    outside.at(ask.now, ask.seed);
    let unseen = reserved(model, &ask.unseen);
    ask.unseen.iter().for_each(|vm| model.apply(Change::NoPending(vm.clone())));
    let before = reserved(model, &ask.vms);
    // Previous reservations of the same VMs are ignored.
    for (vm, pending) in ask.vms.iter().zip(&before) {
        if pending.is_some() {
            model.apply(Change::NoPending(vm.clone()));
        }
    }
    let mut choices = Vec::new();
    let mut failed = None;
    match group::groups(model, &ask.vms) {
        Err(error) => failed = Some(error),
        Ok(groups) => {
            for group in groups {
                match one(model, ask, &group, outside, scratch, traces.as_deref_mut()) {
                    Ok((choice, place)) => {
                        reserve(model, &group, place);
                        let placed = choice.host.is_some();
                        choices.push(choice);
                        if !placed {
                            break;
                        }
                    }
                    Err(error) => {
                        failed = Some(error);
                        break;
                    }
                }
            }
        }
    }
    if failed.is_some() || choices.iter().any(|choice| choice.host.is_none()) {
        restore(model, &ask.vms, before);
    }
    restore(model, &ask.unseen, unseen);
    match failed {
        Some(error) => Err(error),
        None => Ok(choices),
    }
}

fn reserve(model: &mut Model, group: &[VmId], place: Option<HostId>) {
    let Some(host) = place.and_then(|place| model.slot(place)).map(|slot| slot.host.name.clone()) else {
        return;
    };
    for id in group {
        let Some(slot) = model.vm_by(*id) else { continue };
        // Staying needs no additional resources.
        if slot.at != place || place.is_none() {
            let vm = slot.vm.name.clone();
            model.apply(Change::Pending(Pending { vm, host: host.clone(), decision: 0 }));
        }
    }
}

/// The policy of a group.
pub(crate) fn policy_of(
    model: &Model,
    ask: Option<&str>,
    cluster: &ClusterState,
    own: Option<&str>,
) -> Result<Arc<Policy>, DecideError> {
    let name = ask.or(own).unwrap_or(&cluster.cluster.policy);
    model.policy(name).cloned().ok_or_else(|| model.no_policy(name))
}

/// The policy for a VM, if all its units are known.
pub(crate) fn policy_of_vm(model: &Model, ask: Option<&str>, vm: &str) -> Option<Arc<Policy>> {
    let vm = &model.vm(vm)?.vm;
    policy_of(model, ask, model.cluster(&vm.cluster)?.1, vm.policy.as_deref()).ok()
}

/// Builds the context of a group, and calls `then` with it.
pub(crate) fn with_context<T>(
    model: &Model,
    ask: &PlacementRequest,
    group: &[VmId],
    then: impl FnOnce(&Context<'_>, &Policy) -> Result<T, DecideError>,
) -> Result<T, DecideError> {
    let slots: Vec<_> = group.iter().filter_map(|id| Some((*id, model.vm_by(*id)?))).collect();
    let Some((_, first)) = slots.first() else { return Err(DecideError::Nothing) };
    let (cluster_id, cluster) =
        model.cluster(&first.vm.cluster).ok_or_else(|| model.no_cluster(&first.vm.cluster))?;
    let policy = policy_of(model, ask.policy.as_deref(), cluster, first.vm.policy.as_deref())?;
    let mut properties: BTreeMap<&str, &str> = BTreeMap::new();
    let own = slots.iter().flat_map(|(_, slot)| &slot.vm.properties);
    for (key, value) in policy.properties.iter().chain(&cluster.cluster.properties).chain(own) {
        properties.insert(key, value);
    }
    let request = Request { only: ask.only.clone(), without: ask.without.clone(), stay: ask.stay };
    let need = slots.iter().fold(Need::default(), |sum, (_, slot)| sum.and(slot.need));
    let context = Context {
        model,
        cluster,
        cluster_id,
        group: slots,
        need,
        now: ask.now,
        properties,
        request: &request,
        exclusive: OnceCell::new(),
    };
    then(&context, &policy)
}

fn one(
    model: &Model,
    ask: &PlacementRequest,
    group: &[VmId],
    outside: &mut Outside<'_>,
    scratch: &mut Scratch,
    traces: Option<&mut Vec<Trace>>,
) -> Result<(Choice, Option<HostId>), DecideError> {
    with_context(model, ask, group, |context, policy| {
        let weigh = !(policy.optimise == crate::policy::Optimise::Speed && ask.waiting > SPEED_THRESHOLD);
        let tracing = traces.is_some();
        let Judged { choice, row, trace } =
            evaluate(context, policy, ask.seed, weigh, outside, scratch, tracing);
        if let (Some(traces), Some(trace)) = (traces, trace) {
            traces.push(trace);
        }
        Ok((choice, row.map(|row| HostId { cluster: context.cluster_id, row })))
    })
}
