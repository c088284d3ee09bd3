//! A clock that went back while nobody ran: what the store has may be of a time that is yet to come.

use super::{Engine, EngineError};
use crate::model::Change;
use crate::object::Fact;
use crate::store::decode;

impl Engine {
    /// Once, after opening: makes what is of a time after `now` as if it had just been. Facts go, since nobody knows
    /// when they become stale. How many objects that were.
    pub fn settle(&self, now: u64) -> Result<usize, EngineError> {
        let mut inner = self.current()?;
        let later = |at: Option<u64>| at.is_some_and(|at| at > now);
        let mut changes = Vec::new();
        for slot in inner.model.vm_slots().filter(|slot| later(slot.vm.moved_at)) {
            let mut vm = (*slot.vm).clone();
            vm.moved_at = Some(now);
            changes.push(Change::Vm(vm));
        }
        for kind in ["load/", "fact/"] {
            let (_, entries) = self.store.range(kind, None)?;
            for entry in entries {
                match decode(&entry.key, Some(&entry.value)) {
                    Some(Change::Load(mut load)) if later(load.over_since) => {
                        load.over_since = Some(now);
                        changes.push(Change::Load(load));
                    }
                    Some(Change::Fact(Fact { host, name, pushed, .. })) if later(pushed) => {
                        changes.push(Change::NoFact(host, name));
                    }
                    _ => {}
                }
            }
        }
        if !changes.is_empty() {
            inner.change(&*self.store, &changes)?;
        }
        Ok(changes.len())
    }
}
