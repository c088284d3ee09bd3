//! Objects that mirror another inventory, such as Kubernetes' nodes and pods.

use super::{Engine, EngineError, Object};
use crate::model::Change;
use crate::store::Revision;
use std::collections::BTreeSet;

/// A deleted object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gone {
    /// A host, with its measurements. VMs may still be on it.
    Host(String),
    /// A VM, with its reservation.
    Vm(String),
    /// A figure about a host.
    Fact(String, String),
}

impl Engine {
    /// Applies additions, changes and deletions of another inventory in one transaction. The reservation of a
    /// VM that now runs on its host ends. The call does not wait until the changes are durable, since the
    /// other inventory has them.
    pub fn mirror(&self, objects: Vec<Object>, gone: &[Gone]) -> Result<Revision, EngineError> {
        let fresh = BTreeSet::new();
        let changes = objects.into_iter().map(|object| object.change(self, &fresh));
        let mut changes = changes.collect::<Result<Vec<_>, _>>()?;
        let mut inner = self.current()?;
        for object in gone {
            match object {
                Gone::Host(name) => changes.extend(inner.with_host(name)),
                Gone::Vm(name) => changes.push(Change::NoVm(name.clone())),
                Gone::Fact(host, name) => changes.push(Change::NoFact(host.clone(), name.clone())),
            }
        }
        let settled = changes.iter().filter_map(|change| match change {
            Change::Vm(vm) if vm.runs() => Some(&vm.name),
            Change::NoVm(name) => Some(name),
            _ => None,
        });
        let pendings = inner.model.pendings();
        let settled = settled.filter(|name| pendings.contains_key(*name));
        let settled: Vec<Change> = settled.map(|name| Change::NoPending(name.clone())).collect();
        changes.extend(settled);
        if changes.is_empty() {
            return Ok(inner.seen);
        }
        Ok(inner.change(&*self.store, &changes)?)
    }
}
