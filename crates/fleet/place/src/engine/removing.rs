//! Deletion of unused objects by people and programs.

use super::{Engine, EngineError, Inner};
use crate::model::Change;
use crate::object::Cluster;
use crate::policy::built_in;

/// Kinds of objects that can be deleted.
pub const REMOVABLE: [&str; 7] = ["host", "vm", "group", "policy", "cluster", "load", "blacklist"];

impl Engine {
    /// Deletes an object; `kind` is one of [`REMOVABLE`]. Deleting a host deletes its measurements.
    pub fn remove(&self, kind: &str, name: &str) -> Result<(), EngineError> {
        let inner = self.current()?;
        let changes = inner.removal(kind, name)?;
        self.take(inner, &changes)
    }

    /// Deletes a fact about a host.
    pub fn remove_fact(&self, host: &str, name: &str) -> Result<(), EngineError> {
        let inner = self.current()?;
        if !inner.model.facts(host).any(|fact| fact.name == name) {
            let what = format!("there is no fact {} about host {}", name.escape_debug(), host.escape_debug());
            return Err(EngineError::NoObject(what));
        }
        self.take(inner, &[Change::NoFact(host.into(), name.into())])
    }

    fn take(
        &self,
        mut inner: std::sync::MutexGuard<'_, Inner>,
        changes: &[Change],
    ) -> Result<(), EngineError> {
        let revision = inner.change(&*self.store, changes)?;
        drop(inner);
        Ok(self.store.durable(revision)?)
    }
}

impl Inner {
    /// The changes that delete an object.
    fn removal(&self, kind: &str, name: &str) -> Result<Vec<Change>, EngineError> {
        let model = &self.model;
        let known = match kind {
            "host" => model.host(name).is_some(),
            "vm" => model.vm(name).is_some(),
            "group" => model.groups().contains_key(name),
            "policy" => model.policy(name).is_some(),
            // A cluster that is neither described nor used does not exist.
            "cluster" => {
                let bare = Cluster { name: name.into(), ..Cluster::default() };
                let described = model.cluster(name).is_some_and(|(_, state)| *state.cluster != bare);
                described || self.user_of_cluster(name).is_some()
            }
            "load" => model.load(name).is_some(),
            "blacklist" => model.blacklist(name).is_some(),
            _ => {
                let what = format!("objects of kind `{}` can't be removed", kind.escape_debug());
                return Err(EngineError::NoObject(format!("{what}; kinds are {}", REMOVABLE.join(", "))));
            }
        };
        if !known {
            let what = format!("there is no {} {}", in_words(kind), name.escape_debug());
            return Err(EngineError::NoObject(what));
        }
        let user = match kind {
            "host" => self.user_of_host(name),
            "policy" if built_in().iter().any(|policy| policy.name == name) => {
                Some(format!("policy {name} is built in"))
            }
            "policy" => self.user_of_policy(name),
            "cluster" => self.user_of_cluster(name),
            _ => None,
        };
        if let Some(user) = user {
            return Err(EngineError::InUse(user));
        }
        Ok(match kind {
            "host" => self.with_host(name),
            "vm" => {
                let reserved = model.pendings().contains_key(name).then(|| Change::NoPending(name.into()));
                reserved.into_iter().chain([Change::NoVm(name.into())]).collect()
            }
            "group" => vec![Change::NoGroup(name.into())],
            "policy" => vec![Change::NoPolicy(name.into())],
            "cluster" => vec![Change::NoCluster(name.into())],
            "load" => vec![Change::NoLoad(name.into())],
            _ => vec![Change::NoBlacklist(name.into())],
        })
    }

    /// A host and its measurements: a later host of the same name is a different one.
    pub(super) fn with_host(&self, name: &str) -> Vec<Change> {
        let model = &self.model;
        let facts = model.facts(name).map(|fact| Change::NoFact(name.into(), fact.name.clone()));
        let mut changes: Vec<Change> = facts.collect();
        changes.extend(model.load(name).map(|_| Change::NoLoad(name.into())));
        changes.extend(model.blacklist(name).map(|_| Change::NoBlacklist(name.into())));
        changes.push(Change::NoHost(name.into()));
        changes
    }

    /// A user of a host.
    fn user_of_host(&self, name: &str) -> Option<String> {
        let slot = self.model.slot(self.model.host(name)?)?;
        let vm = slot.guests().find_map(|vm| self.model.vm_by(vm))?;
        Some(format!("host {name} has VM {}", vm.vm.name))
    }

    /// A user of a policy.
    fn user_of_policy(&self, name: &str) -> Option<String> {
        let clusters = self.model.clusters().iter().map(|state| &state.cluster);
        let cluster =
            clusters.filter(|cluster| cluster.policy == name).map(|it| format!("cluster {}", it.name));
        let vms = self.model.vm_slots().map(|slot| &slot.vm);
        let vm = vms.filter(|vm| vm.policy.as_deref() == Some(name)).map(|vm| format!("VM {}", vm.name));
        cluster.chain(vm).next().map(|user| format!("policy {name} is that of {user}"))
    }

    /// A member of a cluster.
    fn user_of_cluster(&self, name: &str) -> Option<String> {
        let (_, state) = self.model.cluster(name)?;
        let host = state.hosts.iter().flatten().map(|slot| format!("host {}", slot.host.name));
        let vms = self.model.vm_slots().filter(|slot| slot.vm.cluster == name);
        let vm = vms.map(|slot| format!("VM {}", slot.vm.name));
        let groups = self.model.groups().values().filter(|group| group.cluster == name);
        let user = host.chain(vm).chain(groups.map(|group| format!("group {}", group.name))).next()?;
        Some(format!("cluster {name} has {user}"))
    }
}

/// A kind's name for people.
fn in_words(kind: &str) -> &str {
    match kind {
        "vm" => "VM",
        "load" => "load of host",
        "blacklist" => "blacklist entry of host",
        other => other,
    }
}
