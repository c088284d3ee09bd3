//! Units from outside, and their picture of the model.

use super::Inner;
use crate::decide::{Answers, Outside};
use crate::model::{ClusterState, HostSlot, Model, Row, VmId};
use crate::object::{Host, Vm};
use crate::unit::{Delta, External, ExternalUnit, HostView};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Units from outside, and what they were told.
pub(crate) struct Attached {
    external: Box<dyn External>,
    told: Told,
    /// Whether they follow: if not, they are told everything next time.
    behind: bool,
}

/// What was told, as far as it takes to see what changed since: there are thousands of hosts, and a decision changes
/// one.
#[derive(Default)]
struct Told {
    /// By cluster, by row.
    hosts: Vec<Vec<Option<Mark>>>,
    /// By place.
    vms: Vec<Option<Arc<Vm>>>,
    revision: u64,
}

/// What a host's view was made of.
struct Mark {
    host: Arc<Host>,
    figures: [i32; 4],
    running: Vec<VmId>,
    pending: Vec<VmId>,
    facts: Vec<Option<f64>>,
}

impl Attached {
    pub(crate) fn new(external: Box<dyn External>) -> Attached {
        Attached { external, told: Told::default(), behind: true }
    }
}

impl Attached {
    /// The units themselves.
    pub(crate) fn unit(&mut self) -> &mut dyn External {
        &mut *self.external
    }
}

/// Where answers of units from outside come from.
pub(crate) fn outside<'e>(attached: &'e mut Option<Attached>, answers: &'e mut Answers) -> Outside<'e> {
    match attached {
        Some(attached) => Outside::Ask(&mut *attached.external, answers),
        None => Outside::None,
    }
}

/// A host as units from outside see it.
pub(crate) fn host_view(model: &Model, slot: &HostSlot, now: u64) -> HostView {
    let id = model.host(&slot.host.name);
    let names = |ids: &[u32]| ids.iter().filter_map(|id| Some(model.vm_by(*id)?.vm.name.clone())).collect();
    let mut view = HostView {
        host: (*slot.host).clone(),
        cpu_load: 0.0,
        pending_load: 0.0,
        free_mb: 0,
        schedulable_mb: 0,
        vms: names(&slot.running),
        pending_vms: names(&slot.pending),
        facts: BTreeMap::new(),
    };
    if let Some(id) = id {
        let (state, at) = (model.state(id.cluster), id.row as usize);
        let columns = &state.columns;
        let cpus = f64::from((columns.cpus[at] - columns.exclusive[at]).max(1));
        view.cpu_load = f64::from(columns.load[at]) / cpus;
        view.pending_load = f64::from(columns.pending_load[at]) / cpus;
        view.free_mb = columns.free[at].into();
        view.schedulable_mb = columns.schedulable[at].into();
        let known =
            state.facts.keys().filter_map(|name| Some((name.clone(), state.fact(name, id.row, now)?)));
        view.facts = known.collect();
    }
    view
}

impl Inner {
    /// The units from outside that there are.
    pub(crate) fn external_units(&mut self) -> Vec<ExternalUnit> {
        self.external.as_mut().map_or(Vec::new(), |attached| attached.external.units())
    }

    /// Brings the picture of units from outside up to date. Whoever can't be told fails when it is asked.
    pub(crate) fn follow(&mut self, now: u64) {
        let Inner { model, external, seen, .. } = self;
        let Some(attached) = external else { return };
        if (!attached.behind && attached.told.revision == *seen) || attached.external.units().is_empty() {
            return;
        }
        let said = if attached.behind {
            attached.told = Told::default();
            let (mut hosts, mut vms) = (Vec::new(), Vec::new());
            for delta in attached.told.changes(model, now) {
                match delta {
                    Delta::Host(host) => hosts.push(*host),
                    Delta::Vm(vm) => vms.push(*vm),
                    // There was nothing before.
                    Delta::NoHost(_) | Delta::NoVm(_) => {}
                }
            }
            attached.external.snapshot(hosts, vms)
        } else {
            attached.external.deltas(attached.told.changes(model, now))
        };
        attached.behind = said.is_err();
        attached.told.revision = *seen;
    }
}

impl Told {
    /// What is no longer as it was told; from now on it is told. What is gone comes first, since its place may be
    /// another's by now.
    fn changes(&mut self, model: &Model, now: u64) -> Vec<Delta> {
        let (mut gone, mut changed) = (Vec::new(), Vec::new());
        self.hosts.resize_with(model.clusters().len(), Vec::new);
        for (state, told) in model.clusters().iter().zip(&mut self.hosts) {
            told.resize_with(state.hosts.len(), || None);
            for (row, (slot, mark)) in state.hosts.iter().zip(told).enumerate() {
                let Some(slot) = slot else {
                    gone.extend(mark.take().map(|mark| Delta::NoHost(mark.host.name.clone())));
                    continue;
                };
                if mark.as_ref().is_some_and(|mark| mark.is_of(state, slot, row, now)) {
                    continue;
                }
                if let Some(old) = mark.as_ref().filter(|old| old.host.name != slot.host.name) {
                    gone.push(Delta::NoHost(old.host.name.clone()));
                }
                *mark = Some(Mark::of(state, slot, row, now));
                changed.push(Delta::Host(Box::new(host_view(model, slot, now))));
            }
        }
        self.vms.resize_with(model.vm_places(), || None);
        for (id, told) in (0..).zip(&mut self.vms) {
            let vm = model.vm_by(id).map(|slot| &slot.vm);
            if told.as_ref().map(Arc::as_ptr) == vm.map(Arc::as_ptr) {
                continue;
            }
            if let Some(old) = told.as_ref().filter(|old| vm.is_none_or(|vm| vm.name != old.name)) {
                gone.push(Delta::NoVm(old.name.clone()));
            }
            changed.extend(vm.map(|vm| Delta::Vm(Box::new((**vm).clone()))));
            *told = vm.cloned();
        }
        gone.append(&mut changed);
        gone
    }
}

impl Mark {
    fn of(state: &ClusterState, slot: &HostSlot, row: usize, now: u64) -> Mark {
        Mark {
            host: slot.host.clone(),
            figures: figures(state, row),
            running: slot.running.clone(),
            pending: slot.pending.clone(),
            facts: facts(state, row, now).collect(),
        }
    }

    fn is_of(&self, state: &ClusterState, slot: &HostSlot, row: usize, now: u64) -> bool {
        Arc::ptr_eq(&self.host, &slot.host)
            && self.figures == figures(state, row)
            && self.running == slot.running
            && self.pending == slot.pending
            && facts(state, row, now).eq(self.facts.iter().copied())
    }
}

fn figures(state: &ClusterState, row: usize) -> [i32; 4] {
    let columns = &state.columns;
    [columns.load[row], columns.pending_load[row], columns.free[row], columns.schedulable[row]]
}

fn facts(state: &ClusterState, row: usize, now: u64) -> impl Iterator<Item = Option<f64>> {
    state.facts.values().map(move |column| column.get(row as Row, now))
}
