//! Taking hosts out of use and putting them back.

use super::{Engine, EngineError};
use crate::model::{Change, HostSlot};
use crate::object::{Host, HostStatus};

impl Engine {
    /// Puts a host into maintenance: it gets no new VMs, and balancing rounds move its VMs away. A host without
    /// VMs, running or pending, is in maintenance at once. Returns its new status.
    pub fn maintain(&self, host: &str) -> Result<HostStatus, EngineError> {
        self.switch(host, |slot| match slot.guests().next() {
            None => HostStatus::Maintenance,
            Some(_) => HostStatus::PreparingForMaintenance,
        })
    }

    /// Takes a host into use.
    pub fn activate(&self, host: &str) -> Result<HostStatus, EngineError> {
        self.switch(host, |_| HostStatus::Up)
    }

    /// Puts hosts that have been emptied into maintenance. Returns their names.
    pub fn end_emptying(&self) -> Result<Vec<String>, EngineError> {
        let is_done = |slot: &&HostSlot| {
            slot.host.status == HostStatus::PreparingForMaintenance && slot.guests().next().is_none()
        };
        let done: Vec<String> = self.view(|model| {
            let hosts = model.clusters().iter().flat_map(|state| &state.hosts).flatten();
            hosts.filter(is_done).map(|slot| slot.host.name.clone()).collect()
        })?;
        done.iter().try_for_each(|host| self.maintain(host).map(drop))?;
        Ok(done)
    }

    /// Returns a host to the status before a round, and to whether the policy set it, if its status is still `now`. A
    /// host that was removed meanwhile stays so.
    pub fn unswitch(
        &self,
        host: &str,
        now: HostStatus,
        before: (HostStatus, bool),
    ) -> Result<(), EngineError> {
        let mut inner = self.current()?;
        let slot = inner.model.host(host).and_then(|id| inner.model.slot(id));
        let Some(slot) = slot.filter(|slot| slot.host.status == now) else { return Ok(()) };
        let (status, policy_controlled) = before;
        let changed = Host { status, policy_controlled, ..(*slot.host).clone() };
        let revision = inner.change(&*self.store, &[Change::Host(changed)])?;
        drop(inner);
        Ok(self.store.durable(revision)?)
    }

    fn switch(
        &self,
        host: &str,
        status: impl FnOnce(&HostSlot) -> HostStatus,
    ) -> Result<HostStatus, EngineError> {
        let mut inner = self.current()?;
        let slot = inner.model.host(host).and_then(|id| inner.model.slot(id));
        let slot = slot.ok_or_else(|| inner.model.no_host(host))?;
        let status = status(slot);
        let changed = Host { status, ..(*slot.host).clone() };
        if changed == *slot.host {
            return Ok(status);
        }
        let revision = inner.change(&*self.store, &[Change::Host(changed)])?;
        drop(inner);
        self.store.durable(revision)?;
        Ok(status)
    }
}
