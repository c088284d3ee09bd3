//! Units from outside, and their picture of the model.

use super::Inner;
use crate::decide::{Answers, Outside};
use crate::model::{HostSlot, Model};
use crate::object::Vm;
use crate::unit::{Delta, External, ExternalUnit, HostView};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Units from outside, and what they were told.
pub(crate) struct Attached {
    external: Box<dyn External>,
    told: Option<Told>,
    /// Whether they follow: if not, they are told everything next time.
    behind: bool,
}

#[derive(Default)]
struct Told {
    hosts: HashMap<String, HostView>,
    vms: HashMap<String, Arc<Vm>>,
    revision: u64,
}

impl Attached {
    pub(crate) fn new(external: Box<dyn External>) -> Attached {
        Attached { external, told: None, behind: true }
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
        let fresh = attached.told.as_ref().is_some_and(|told| told.revision == *seen) && !attached.behind;
        if fresh || attached.external.units().is_empty() {
            return;
        }
        let hosts: HashMap<String, HostView> = model
            .clusters()
            .iter()
            .flat_map(|state| state.hosts.iter().flatten())
            .map(|slot| (slot.host.name.clone(), host_view(model, slot, now)))
            .collect();
        let vms: HashMap<String, Arc<Vm>> =
            model.vm_slots().map(|slot| (slot.vm.name.clone(), slot.vm.clone())).collect();
        let said = match attached.told.as_ref().filter(|_| !attached.behind) {
            None => attached
                .external
                .snapshot(hosts.values().cloned().collect(), vms.values().map(|vm| (**vm).clone()).collect()),
            Some(told) => attached.external.deltas(deltas(told, &hosts, &vms)),
        };
        attached.behind = said.is_err();
        attached.told = Some(Told { hosts, vms, revision: *seen });
    }
}

fn deltas(told: &Told, hosts: &HashMap<String, HostView>, vms: &HashMap<String, Arc<Vm>>) -> Vec<Delta> {
    let mut deltas = Vec::new();
    for (name, host) in hosts {
        if told.hosts.get(name) != Some(host) {
            deltas.push(Delta::Host(Box::new(host.clone())));
        }
    }
    for name in told.hosts.keys().filter(|name| !hosts.contains_key(*name)) {
        deltas.push(Delta::NoHost(name.clone()));
    }
    for (name, vm) in vms {
        if !told.vms.get(name).is_some_and(|old| Arc::ptr_eq(old, vm) || old == vm) {
            deltas.push(Delta::Vm(Box::new((**vm).clone())));
        }
    }
    for name in told.vms.keys().filter(|name| !vms.contains_key(*name)) {
        deltas.push(Delta::NoVm(name.clone()));
    }
    deltas
}
