//! Records changes, so that a follower of a model need not compare all of it.

use super::{HostId, Model};
use std::collections::BTreeMap;

/// Names of changed objects, each with whether it existed before.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    /// Hosts whose description, VMs or measurements changed.
    pub hosts: BTreeMap<String, bool>,
    /// VMs.
    pub vms: BTreeMap<String, bool>,
    /// Whether too much changed to list.
    pub everything: bool,
}

impl Model {
    /// The changes since the last call; none if they were not recorded. Starts recording.
    pub fn touched(&mut self) -> Option<Touched> {
        self.touched.replace(Touched::default())
    }

    pub(super) fn touch_host(&mut self, name: &str) {
        let Some(touched) = &mut self.touched else { return };
        if !touched.hosts.contains_key(name) {
            touched.hosts.insert(name.into(), self.hosts.contains_key(name));
        }
    }

    pub(super) fn touch_vm(&mut self, name: &str) {
        let Some(touched) = &mut self.touched else { return };
        if !touched.vms.contains_key(name) {
            touched.vms.insert(name.into(), self.vms.contains_key(name));
        }
    }

    /// The host at `at`.
    pub(super) fn touch_at(&mut self, at: HostId) {
        if self.touched.is_some()
            && let Some(name) = self.slot(at).map(|slot| slot.host.name.clone())
        {
            self.touch_host(&name);
        }
    }

    pub(super) fn touch_everything(&mut self) {
        if let Some(touched) = &mut self.touched {
            touched.everything = true;
        }
    }
}
