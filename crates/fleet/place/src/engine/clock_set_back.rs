//! Handling of a clock that was set back while no engine ran: stored times may be in the future.

use super::{Engine, EngineError};
use crate::model::Change;
use crate::object::Fact;
use crate::store::decode;

impl Engine {
    /// Call once after opening: sets times after `now` to `now`. Facts are deleted, since their expiry is
    /// unknown. Returns the number of changed objects.
    pub fn correct_times(&self, now: u64) -> Result<usize, EngineError> {
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
