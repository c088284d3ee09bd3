//! Objects put in and taken out by people and agents.

use super::{Engine, EngineError};
use crate::model::{Change, Model};
use crate::object::{AffinityGroup, Blacklist, Cluster, Fact, Host, Load, Vm};
use crate::policy::{Policy, built_in, check, check_properties};
use crate::store::{Entry, Revision, decode};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use utoipa::ToSchema;

/// An object to put in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Object {
    /// A cluster.
    Cluster(Cluster),
    /// A policy.
    Policy(Policy),
    /// A host.
    Host(Box<Host>),
    /// What was measured of a host.
    Load(Load),
    /// A figure about a host from outside.
    Fact(Fact),
    /// A host that is kept out.
    Blacklist(Blacklist),
    /// A VM or a function.
    Vm(Box<Vm>),
    /// An affinity group.
    Group(AffinityGroup),
}

/// A model of what a store holds.
pub fn build(entries: &[Entry]) -> Model {
    let mut model = Model::default();
    for policy in built_in() {
        model.apply(Change::Policy(Arc::new(policy)));
    }
    // Hosts before what is on them.
    for kind in ["cluster/", "policy/", "host/", "load/", "fact/", "blacklist/", "vm/", "group/", "pending/"]
    {
        let first = entries.partition_point(|entry| entry.key.as_str() < kind);
        for entry in entries[first..].iter().take_while(|entry| entry.key.starts_with(kind)) {
            if let Some(change) = decode(&entry.key, Some(&entry.value)) {
                model.apply(change);
            }
        }
    }
    model
}

impl Object {
    /// The change it makes, if it can be true. `fresh` are policies that come with it.
    fn change(self, engine: &Engine, fresh: &BTreeSet<String>) -> Result<Change, EngineError> {
        Ok(match self {
            Object::Cluster(cluster) => {
                cluster.check()?;
                let mut inner = engine.lock();
                inner.known_policy(&cluster.policy, fresh)?;
                let old =
                    inner.model.cluster(&cluster.name).map(|(_, state)| state.cluster.properties.clone());
                inner.properties("cluster", &cluster.name, &cluster.properties, old.as_ref())?;
                Change::Cluster(cluster)
            }
            Object::Policy(policy) => {
                let units = engine.lock().external_units();
                all_good("", &check(&policy, &units))?;
                Change::Policy(Arc::new(policy))
            }
            Object::Host(host) => {
                host.check()?;
                Change::Host(*host)
            }
            Object::Load(load) => {
                load.check()?;
                Change::Load(load)
            }
            Object::Fact(fact) => {
                fact.check()?;
                Change::Fact(fact)
            }
            Object::Blacklist(entry) => {
                entry.check()?;
                Change::Blacklist(entry)
            }
            Object::Vm(vm) => {
                vm.check()?;
                if let Some(policy) = &vm.policy {
                    engine.lock().known_policy(policy, fresh)?;
                }
                if !vm.properties.is_empty() {
                    let mut inner = engine.lock();
                    let old = inner.model.vm(&vm.name).map(|slot| slot.vm.properties.clone());
                    inner.properties("VM", &vm.name, &vm.properties, old.as_ref())?;
                }
                Change::Vm(*vm)
            }
            Object::Group(group) => {
                group.check()?;
                Change::Group(group)
            }
        })
    }
}

/// Everything that is wrong, a line each.
fn all_good(of: &str, wrong: &[(String, String, String)]) -> Result<(), EngineError> {
    let lines: Vec<String> =
        wrong.iter().map(|(key, what, fix)| format!("{of}{key}: {what}; {fix}")).collect();
    if lines.is_empty() { Ok(()) } else { Err(EngineError::Policy(lines.join("\n"))) }
}

impl super::Inner {
    /// Checks custom properties. Those that are there already may be of a unit that is out of reach.
    fn properties(
        &mut self,
        kind: &str,
        name: &str,
        new: &BTreeMap<String, String>,
        old: Option<&BTreeMap<String, String>>,
    ) -> Result<(), EngineError> {
        if new.is_empty() || old == Some(new) {
            return Ok(());
        }
        let units = self.external_units();
        all_good(&format!("{kind} {name}: "), &check_properties(new, &units))
    }

    /// Who has a policy.
    fn user_of_policy(&self, name: &str) -> Option<String> {
        let clusters = self.model.clusters().iter().map(|state| &state.cluster);
        let cluster =
            clusters.filter(|cluster| cluster.policy == name).map(|it| format!("cluster {}", it.name));
        let vms = self.model.vm_slots().map(|slot| &slot.vm);
        let vm = vms.filter(|vm| vm.policy.as_deref() == Some(name)).map(|vm| format!("VM {}", vm.name));
        cluster.chain(vm).next().map(|user| format!("policy {name} is that of {user}"))
    }

    fn known_policy(&self, name: &str, fresh: &BTreeSet<String>) -> Result<(), EngineError> {
        match self.model.policy(name) {
            Some(_) => Ok(()),
            None if fresh.contains(name) => Ok(()),
            None => Err(crate::decide::DecideError::NoPolicy(name.into()).into()),
        }
    }
}

impl Engine {
    /// Puts objects in, all of them or none.
    pub fn put(&self, objects: Vec<Object>) -> Result<Revision, EngineError> {
        let name =
            |object: &Object| if let Object::Policy(it) = object { Some(it.name.clone()) } else { None };
        let fresh: BTreeSet<String> = objects.iter().filter_map(name).collect();
        let changes = objects.into_iter().map(|object| object.change(self, &fresh));
        let changes = changes.collect::<Result<Vec<_>, _>>()?;
        let mut inner = self.current()?;
        let revision = inner.change(&*self.store, &changes)?;
        drop(inner);
        self.store.durable(revision)?;
        Ok(revision)
    }

    /// Takes an object out; `kind` and `name` are those of its key.
    pub fn remove(&self, kind: &str, name: &str) -> Result<(), EngineError> {
        let mut inner = self.current()?;
        let user = match kind {
            "host" => inner.model.host(name).and_then(|id| inner.model.slot(id)).and_then(|slot| {
                let vm = slot.guests().find_map(|vm| inner.model.vm_by(vm))?;
                Some(format!("host {name} has VM {}", vm.vm.name))
            }),
            "policy" if built_in().iter().any(|policy| policy.name == name) => {
                Some(format!("policy {name} is built in"))
            }
            "policy" => inner.user_of_policy(name),
            _ => None,
        };
        if let Some(user) = user {
            return Err(EngineError::InUse(user));
        }
        let Some(change) = decode(&format!("{kind}/{name}"), None) else { return Ok(()) };
        let mut changes = vec![change];
        if kind == "vm" && inner.model.pendings().contains_key(name) {
            changes.insert(0, Change::NoPending(name.into()));
        }
        let revision = inner.change(&*self.store, &changes)?;
        drop(inner);
        Ok(self.store.durable(revision)?)
    }
}
