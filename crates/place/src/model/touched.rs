//! What changed since somebody looked, so that whoever follows a model need not compare all of it.

use super::{HostId, Model};
use std::collections::BTreeMap;

/// Names of what changed, each with whether it was there before.
#[derive(Clone, Debug, Default)]
pub struct Touched {
    /// Hosts, or what is on them or known of them.
    pub hosts: BTreeMap<String, bool>,
    /// VMs.
    pub vms: BTreeMap<String, bool>,
    /// Whether so much changed that all has to be looked at.
    pub everything: bool,
}

impl Model {
    /// What changed since the last call; none if nobody kept note. From now on note is kept.
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
