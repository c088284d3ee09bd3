//! Objects of an inventory that somebody else keeps, such as Kubernetes' nodes and pods.

use super::{Engine, EngineError, Object};
use crate::model::Change;
use crate::store::Revision;
use std::collections::BTreeSet;

/// An object that is no longer there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Gone {
    /// A host, with what is known about it. VMs may be on it still.
    Host(String),
    /// A VM, with what is reserved for it.
    Vm(String),
    /// A figure about a host.
    Fact(String, String),
}

impl Engine {
    /// Takes over what somebody else's inventory has and what it has no longer, in one transaction. A VM that runs
    /// there has nothing reserved any more. It is not waited for until that would survive a crash: the other inventory
    /// has it.
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
