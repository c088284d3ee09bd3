//! External units, and their copy of the model.

use super::Inner;
use crate::decide::{Answers, Outside};
use crate::model::{HostSlot, Model, Touched};
use crate::unit::{Delta, External, ExternalError, ExternalUnit, HostView};
use std::collections::{BTreeMap, BTreeSet};

/// External units, and the state of their copy of the inventory.
pub(crate) struct Attached {
    external: Box<dyn External>,
    /// Expiry times of the facts that they have, with the facts' hosts.
    stale: BTreeSet<(u64, String)>,
    /// The time that was last sent to them; monotonic.
    now: u64,
    /// Whether they missed updates and need a snapshot.
    behind: bool,
}

impl Attached {
    pub(crate) fn new(external: Box<dyn External>) -> Attached {
        Attached { external, stale: BTreeSet::new(), now: 0, behind: true }
    }

    /// The units themselves.
    pub(crate) fn unit(&mut self) -> &mut dyn External {
        &mut *self.external
    }

    /// Updates the units' copy to `model`. A unit that can't be updated fails when it is queried.
    pub(crate) fn follow(&mut self, model: &mut Model, now: u64) {
        if self.external.units().is_empty() {
            return;
        }
        self.now = self.now.max(now);
        let result = match model.touched() {
            Some(touched) if !self.behind && !touched.everything => self.send_changes(model, touched),
            _ => self.send_snapshot(model),
        };
        self.behind = result.is_err();
    }

    /// Sends a snapshot next time, since the last update was not kept.
    pub(crate) fn forget(&mut self) {
        self.behind = true;
        self.now = 0;
    }

    fn send_snapshot(&mut self, model: &Model) -> Result<(), ExternalError> {
        self.stale.clear();
        let slots = model.clusters().iter().flat_map(|state| state.hosts.iter().flatten());
        let hosts = slots.map(|slot| self.view(model, slot)).collect();
        self.external.snapshot(hosts, model.vm_slots().map(|slot| (*slot.vm).clone()).collect())
    }

    /// Sends the changes; deletions come first.
    fn send_changes(&mut self, model: &Model, mut touched: Touched) -> Result<(), ExternalError> {
        while self.stale.first().is_some_and(|(until, _)| *until <= self.now) {
            let Some((_, host)) = self.stale.pop_first() else { break };
            touched.hosts.entry(host).or_insert(true);
        }
        let (mut gone, mut changed) = (Vec::new(), Vec::new());
        for (name, was) in touched.hosts {
            match model.host(&name).and_then(|id| model.slot(id)) {
                Some(slot) => changed.push(Delta::Host(Box::new(self.view(model, slot)))),
                None if was => gone.push(Delta::NoHost(name)),
                None => {}
            }
        }
        for (name, was) in touched.vms {
            match model.vm(&name) {
                Some(slot) => changed.push(Delta::Vm(Box::new((*slot.vm).clone()))),
                None if was => gone.push(Delta::NoVm(name)),
                None => {}
            }
        }
        gone.append(&mut changed);
        if gone.is_empty() { Ok(()) } else { self.external.deltas(gone) }
    }

    fn view(&mut self, model: &Model, slot: &HostSlot) -> HostView {
        let id = model.host(&slot.host.name);
        let columns = id
            .into_iter()
            .flat_map(|id| model.state(id.cluster).facts.values().map(move |column| column.until(id.row)));
        let until = columns.filter(|until| *until > self.now && *until < u64::MAX).min();
        self.stale.extend(until.map(|until| (until, slot.host.name.clone())));
        host_view(model, slot, self.now)
    }
}

/// The source of answers of external units.
pub(crate) fn external_answers<'e>(
    attached: &'e mut Option<Attached>,
    answers: &'e mut Answers,
) -> Outside<'e> {
    ask(attached.as_mut(), answers)
}

/// The source of answers of the units in `attached`, if units are attached.
pub(crate) fn ask<'e>(attached: Option<&'e mut Attached>, answers: &'e mut Answers) -> Outside<'e> {
    match attached {
        Some(attached) => Outside::Query(&mut *attached.external, answers),
        None => Outside::None,
    }
}

/// The representation of a host for external units.
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
    /// The available external units.
    pub(crate) fn external_units(&mut self) -> Vec<ExternalUnit> {
        self.external.as_mut().map_or(Vec::new(), |attached| attached.external.units())
    }

    /// Updates the copy of external units.
    pub(crate) fn follow(&mut self, now: u64) {
        if let Some(attached) = &mut self.external {
            attached.follow(&mut self.model, now);
        }
    }
}
