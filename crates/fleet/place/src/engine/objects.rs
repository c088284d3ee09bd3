//! Objects added by people and agents.

use super::{Engine, EngineError, There, overload};
use crate::model::{Change, HostId, Model};
use crate::object::{AffinityGroup, Blacklist, Cluster, Fact, Host, Load, Vm, Wrong};
use crate::policy::{Policy, built_in, check, check_properties};
use crate::store::{Entry, Revision, decode};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use utoipa::ToSchema;

/// An object to add.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Object {
    /// A cluster.
    Cluster(Cluster),
    /// A policy.
    Policy(Policy),
    /// A host.
    Host(Box<Host>),
    /// Measurements of a host.
    Load(Load),
    /// An external fact about a host.
    Fact(Fact),
    /// A blacklist entry of a host.
    Blacklist(Blacklist),
    /// A VM or a function.
    Vm(Box<Vm>),
    /// An affinity group.
    Group(AffinityGroup),
}

/// Objects of the same request, which may refer to each other.
#[derive(Default)]
struct Fresh<'o> {
    hosts: HashMap<&'o str, &'o Host>,
    policies: HashMap<&'o str, &'o Policy>,
}

impl<'o> Fresh<'o> {
    fn add(&mut self, object: &'o Object) {
        match object {
            Object::Host(host) => drop(self.hosts.insert(&host.name, host)),
            Object::Policy(policy) => drop(self.policies.insert(&policy.name, policy)),
            _ => {}
        }
    }
}

fn ports(host: &Host) -> Vec<String> {
    host.ports.iter().map(|port| port.name.clone()).collect()
}

/// Builds a model from a store's entries.
pub fn build(entries: &[Entry]) -> Model {
    let mut model = Model::default();
    for policy in built_in() {
        model.apply(Change::Policy(Arc::new(policy)));
    }
    // Hosts before the objects on them.
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
    /// The change that adds this object, if it is valid. `fresh` are policies of the same request.
    pub(super) fn change(self, engine: &Engine, fresh: &BTreeSet<String>) -> Result<Change, EngineError> {
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

/// Fails with all errors, one per line.
fn all_good(of: &str, wrong: &[(String, String, String)]) -> Result<(), EngineError> {
    let lines: Vec<String> =
        wrong.iter().map(|(key, what, fix)| format!("{of}{key}: {what}; {fix}")).collect();
    if lines.is_empty() { Ok(()) } else { Err(EngineError::Policy(lines.join("\n"))) }
}

impl super::Inner {
    /// Clears `policy-controlled` of a host whose status is changed. A `timed` load without the start of its
    /// overload keeps the previous start.
    fn keep_known(&self, change: &mut Change, timed: bool) {
        match change {
            Change::Host(host) => {
                let known = self.model.host(&host.name).and_then(|id| self.model.slot(id));
                host.policy_controlled &= known.is_none_or(|slot| slot.host.status == host.status);
            }
            Change::Load(load) if timed => {
                let known = self.model.load(&load.host).and_then(|load| load.over_since);
                load.over_since = load.over_since.or(known);
            }
            _ => {}
        }
    }

    /// Checks custom properties. Existing ones may belong to a unit that is unreachable.
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

    fn known_policy(&self, name: &str, fresh: &BTreeSet<String>) -> Result<(), EngineError> {
        match self.model.policy(name) {
            Some(_) => Ok(()),
            None if fresh.contains(name) => Ok(()),
            None => Err(self.model.no_policy(name).into()),
        }
    }
}

impl Engine {
    /// All objects that a file can describe: reservations and decisions are not among them.
    pub fn objects(&self) -> Result<Vec<Object>, EngineError> {
        self.view(|model| {
            let mut objects: Vec<Object> =
                model.policies().values().map(|policy| Object::Policy((**policy).clone())).collect();
            for state in model.clusters() {
                let bare = Cluster { name: state.cluster.name.clone(), ..Cluster::default() };
                if *state.cluster != bare {
                    objects.push(Object::Cluster((*state.cluster).clone()));
                }
                for slot in state.hosts.iter().flatten() {
                    let host = &slot.host;
                    objects.push(Object::Host(Box::new((**host).clone())));
                    objects.extend(model.load(&host.name).cloned().map(Object::Load));
                    objects.extend(model.facts(&host.name).cloned().map(Object::Fact));
                    objects.extend(model.blacklist(&host.name).cloned().map(Object::Blacklist));
                }
            }
            objects.extend(model.vm_slots().map(|slot| Object::Vm(Box::new((*slot.vm).clone()))));
            objects.extend(model.groups().values().map(|group| Object::Group((**group).clone())));
            objects
        })
    }

    /// Checks that objects refer to existing objects, or objects of the same request, and have no time after
    /// `now`. For objects from people and programs; measurements refer to objects that existed a moment ago.
    pub fn check_names(&self, objects: &[Object], now: u64) -> Result<(), EngineError> {
        let inner = self.current()?;
        let mut fresh = Fresh::default();
        objects.iter().for_each(|object| fresh.add(object));
        let there = There {
            host: &|name| match (fresh.hosts.get(name), inner.model.host(name)) {
                (Some(host), _) => Some(Some(ports(host))),
                (None, Some(id)) => Some(inner.model.slot(id).map(|slot| ports(&slot.host))),
                (None, None) => None,
            },
            policy: &|name| match (fresh.policies.get(name), inner.model.policy(name)) {
                (Some(policy), _) => Some(Some(Arc::new((*policy).clone()))),
                (None, Some(policy)) => Some(Some(policy.clone())),
                (None, None) => None,
            },
            now: Some(now),
        };
        objects.iter().try_for_each(|object| there.check(object)).map_err(|wrong| {
            let what = format!("{}; {}", wrong.what, wrong.fix);
            EngineError::Wrong(Wrong { object: wrong.object, what })
        })
    }

    /// Adds or replaces objects, all or none.
    pub fn put(&self, objects: Vec<Object>) -> Result<Revision, EngineError> {
        self.write(objects, None)
    }

    /// As [`Engine::put`], and records the start of an overload for the hosts concerned, unless a load sets
    /// it.
    pub fn put_at(&self, objects: Vec<Object>, now: u64) -> Result<Revision, EngineError> {
        self.write(objects, Some(now))
    }

    fn write(&self, objects: Vec<Object>, now: Option<u64>) -> Result<Revision, EngineError> {
        let name =
            |object: &Object| if let Object::Policy(it) = object { Some(it.name.clone()) } else { None };
        let fresh: BTreeSet<String> = objects.iter().filter_map(name).collect();
        let hosts = overload::hosts(&objects);
        let changes = objects.into_iter().map(|object| object.change(self, &fresh));
        let mut changes = changes.collect::<Result<Vec<_>, _>>()?;
        let mut inner = self.current()?;
        for change in &mut changes {
            inner.keep_known(change, now.is_some());
        }
        let mut revision = inner.change(&*self.store, &changes)?;
        if let Some(now) = now {
            let ids: Vec<HostId> = hosts.iter().filter_map(|host| inner.model.host(host)).collect();
            let overloads = overload::changes(&inner.model, ids.into_iter(), now);
            if !overloads.is_empty() {
                revision = inner.change(&*self.store, &overloads)?;
            }
        }
        drop(inner);
        self.store.durable(revision)?;
        Ok(revision)
    }
}
