//! Keeps placement's hosts and VMs equal to Kubernetes' nodes and bound pods.

use super::api::{Node, Pod, Taint};
use super::describe::{self, bound, facts, host, intolerable, is_on_node, name_of, strict_taints, vm};
use super::health::Health;
use super::watch::Update;
use crate::{Failed, Service};
use ringway_place::engine::{Gone, Object};
use ringway_place::model::Model;
use ringway_place::object::{Fact, Host, Vm, VmStatus};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError, RwLock};

/// Attack: endless names of labels and taints. Largest number of facts of all nodes.
const NAMES: usize = 512;
/// Attack: endless nodes and pods. Largest numbers known; further ones are counted as skipped.
const NODES: usize = 100_000;
const PODS: usize = 1_000_000;

/// Data about nodes in addition to placement's.
#[derive(Default)]
pub struct Nodes(RwLock<HashMap<String, Vec<Taint>>>);

impl Nodes {
    /// Why a node's taints exclude a pod, if they do.
    pub fn intolerable(&self, node: &str, pod: &Pod) -> Option<String> {
        let nodes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        intolerable(nodes.get(node)?, &pod.spec.tolerations)
    }

    /// Whether a node is known.
    pub fn has(&self, node: &str) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains_key(node)
    }
}

/// Keeps placement's hosts and VMs equal to Kubernetes' nodes and pods.
pub struct Accounts {
    service: Service,
    /// The default cluster of nodes.
    cluster: String,
    nodes: Arc<Nodes>,
    health: Arc<Health>,
    /// Facts of each node.
    facts: BTreeMap<String, BTreeMap<String, f64>>,
    /// Facts from labels and taints of any node; nodes without them have 0.
    names: BTreeSet<String>,
}

/// Changes to be applied together.
#[derive(Default)]
struct Changes {
    objects: Vec<Object>,
    gone: Vec<Gone>,
}

impl Accounts {
    /// Accounts without any nodes and pods.
    pub fn new(service: Service, cluster: String, nodes: Arc<Nodes>, health: Arc<Health>) -> Accounts {
        Accounts { service, cluster, nodes, health, facts: BTreeMap::new(), names: BTreeSet::new() }
    }

    /// Applies updates of nodes.
    pub fn nodes(&mut self, updates: &[Update<Node>]) -> Result<(), Failed> {
        let listed = updates.iter().any(|update| matches!(update, Update::All(_)));
        // The last update of each node.
        let mut last: BTreeMap<&str, Option<&Node>> = BTreeMap::new();
        for update in updates {
            match update {
                Update::All(nodes) => {
                    let known = self.facts.keys().map(|name| (name.as_str(), None));
                    last.extend(known);
                    last.values_mut().for_each(|node| *node = None);
                    last.extend(nodes.iter().map(|node| (node.metadata.name.as_str(), Some(node))));
                }
                Update::One(node) => drop(last.insert(&node.metadata.name, Some(node))),
                Update::Gone(node) => drop(last.insert(&node.metadata.name, None)),
            }
        }
        let mut known = self.facts.clone();
        for (name, node) in &last {
            match node {
                Some(node) if known.len() < NODES || known.contains_key(*name) => {
                    drop(known.insert(name.to_string(), facts(node)));
                }
                Some(_) => self.skip(),
                None => drop(known.remove(*name)),
            }
        }
        let all = known.values().flat_map(BTreeMap::keys).filter(|name| !name.starts_with("node_"));
        let all: BTreeSet<&String> = all.collect();
        let names: BTreeSet<String> = all.into_iter().take(NAMES).cloned().collect();
        let changes = self.service.engine.view(|model| {
            let mut changes = Changes::default();
            let kept = last.iter().filter(|(name, node)| node.is_none() || known.contains_key(**name));
            kept.for_each(|(name, node)| self.node(model, name, *node, &mut changes));
            if listed {
                self.remove_deleted(model, &last, &mut changes);
            }
            // A new name changes the facts of every node, since nodes without it get 0.
            let same = names == self.names;
            let touched = known.iter().filter(|(name, _)| !same || last.contains_key(name.as_str()));
            touched.for_each(|(name, own)| figures(model, name, own, &names, &mut changes));
            changes
        })?;
        self.service.engine.mirror(changes.objects, &changes.gone)?;
        let mut taints = self.nodes.0.write().unwrap_or_else(PoisonError::into_inner);
        for (name, node) in last {
            match node {
                Some(node) if known.contains_key(name) => {
                    drop(taints.insert(name.to_string(), strict_taints(node)));
                }
                _ => drop(taints.remove(name)),
            }
        }
        drop(taints);
        (self.facts, self.names) = (known, names);
        Ok(())
    }

    fn skip(&self) {
        self.health.skipped.fetch_add(1, Relaxed);
    }

    /// The changes for one node.
    fn node(&self, model: &Model, name: &str, node: Option<&Node>, changes: &mut Changes) {
        let known = model.host(name).and_then(|id| model.slot(id)).map(|slot| &*slot.host);
        match node {
            Some(node) => {
                let host = host(node, &self.cluster, known);
                if host.check().is_err() {
                    self.skip();
                } else if known != Some(&host) {
                    changes.objects.push(Object::Host(Box::new(host)));
                }
            }
            None => gone(known, changes),
        }
    }

    /// Hosts of nodes that were deleted while the watch was down.
    fn remove_deleted(&self, model: &Model, last: &BTreeMap<&str, Option<&Node>>, changes: &mut Changes) {
        let names = model.host_names().filter(|name| !last.contains_key(*name));
        let hosts = names.filter_map(|name| model.slot(model.host(name)?));
        let ours = hosts.filter(|slot| describe::is_of_node(&slot.host));
        ours.for_each(|slot| gone(Some(&slot.host), changes));
    }

    /// Applies updates of pods.
    pub fn pods(&mut self, updates: &[Update<Pod>]) -> Result<(), Failed> {
        let listed = updates.iter().any(|update| matches!(update, Update::All(_)));
        let mut last: HashMap<String, Option<&Pod>> = HashMap::new();
        let on_node = |pod: &'_ Pod| is_on_node(pod).then_some(());
        for update in updates {
            match update {
                Update::All(pods) => {
                    last.values_mut().for_each(|pod| *pod = None);
                    last.extend(pods.iter().map(|pod| (name_of(&pod.metadata), on_node(pod).map(|()| pod))));
                }
                Update::One(pod) => {
                    last.insert(name_of(&pod.metadata), on_node(pod).map(|()| pod));
                }
                Update::Gone(pod) => drop(last.insert(name_of(&pod.metadata), None)),
            }
        }
        let changes = self.service.engine.view(|model| {
            let mut changes = Changes::default();
            for (name, pod) in &last {
                let known = model.vm(name).map(|slot| &*slot.vm);
                match pod {
                    Some(pod) => self.pod(model, pod, known, &mut changes),
                    // Its reservation ends with its lease, or is released by its owner.
                    None => stopped(known.filter(|vm| vm.runs()), &mut changes),
                }
            }
            if listed {
                let vms = model.vm_slots().map(|slot| &*slot.vm).filter(|vm| !last.contains_key(&vm.name));
                let ours = vms.filter(|vm| describe::is_of_pod(vm) && vm.runs());
                ours.for_each(|vm| stopped(Some(vm), &mut changes));
            }
            changes
        })?;
        self.service.engine.mirror(changes.objects, &changes.gone)?;
        Ok(())
    }

    /// Deletes VMs of pods that neither run nor have a reservation any more.
    pub fn sweep(&mut self) -> Result<(), Failed> {
        let changes = self.service.engine.view(|model| {
            let mut changes = Changes::default();
            let vms = model.vm_slots().map(|slot| &*slot.vm).filter(|vm| !vm.runs());
            let idle = vms.filter(|vm| describe::is_of_pod(vm) && !model.pendings().contains_key(&vm.name));
            idle.for_each(|vm| stopped(Some(vm), &mut changes));
            changes
        })?;
        self.service.engine.mirror(changes.objects, &changes.gone)?;
        Ok(())
    }

    /// The changes for a pod on a node.
    fn pod(&self, model: &Model, pod: &Pod, known: Option<&Vm>, changes: &mut Changes) {
        let node = &pod.spec.node_name;
        let cluster = model.host(node).map(|id| &model.state(id.cluster).cluster.name);
        let made = vm(pod, cluster.unwrap_or(&self.cluster), known);
        let has_room = known.is_some() || model.vm_places() + changes.objects.len() < PODS;
        let Some(mut made) = made.ok().filter(|vm| has_room && vm.check().is_ok()) else {
            return self.skip();
        };
        // The pod runs, even if the policy that it names does not exist.
        made.policy = made.policy.filter(|policy| model.policy(policy).is_some());
        let made = bound(made, node);
        if known != Some(&made) {
            changes.objects.push(Object::Vm(Box::new(made)));
        }
    }
}

/// The host of a deleted node: it is deleted too, or set down if it was added manually.
fn gone(known: Option<&Host>, changes: &mut Changes) {
    let Some(host) = known else { return };
    if describe::is_of_node(host) {
        changes.gone.push(Gone::Host(host.name.clone()));
        return;
    }
    let status = ringway_place::object::HostStatus::Down;
    changes.objects.push(Object::Host(Box::new(Host { status, ..host.clone() })));
}

/// The VM of a deleted or terminated pod: it is deleted too, or set down if it was added manually.
fn stopped(known: Option<&Vm>, changes: &mut Changes) {
    let Some(vm) = known else { return };
    if describe::is_of_pod(vm) {
        changes.gone.push(Gone::Vm(vm.name.clone()));
        return;
    }
    let down = Vm { status: VmStatus::Down, host: None, last_host: vm.host.clone(), ..vm.clone() };
    changes.objects.push(Object::Vm(Box::new(down)));
}

/// The changes of a node's facts.
fn figures(
    model: &Model,
    node: &str,
    own: &BTreeMap<String, f64>,
    names: &BTreeSet<String>,
    changes: &mut Changes,
) {
    let meant = own.keys().filter(|name| name.starts_with("node_")).chain(names);
    let mut meant: BTreeMap<&str, f64> =
        meant.map(|name| (name.as_str(), own.get(name).copied().unwrap_or(0.0))).collect();
    for fact in model.facts(node).filter(|fact| describe::is_fact_of_node(&fact.name)) {
        match meant.get(fact.name.as_str()) {
            Some(value) if *value == fact.value && fact.until.is_none() => {
                meant.remove(fact.name.as_str());
            }
            Some(_) => {}
            None => changes.gone.push(Gone::Fact(node.into(), fact.name.clone())),
        }
    }
    let fact = |(name, value): (&str, f64)| {
        Object::Fact(Fact { host: node.into(), name: name.into(), value, ..Fact::default() })
    };
    changes.objects.extend(meant.into_iter().map(fact));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::PlaceRequest;

    #[test]
    fn a_sweep_deletes_pods_that_neither_run_nor_have_a_reservation() {
        let service = Service::in_memory().unwrap();
        let pod = |name: &str, node: &str| -> Pod {
            let metadata = serde_json::json!({ "name": name, "namespace": "shop" });
            let spec = serde_json::json!({ "nodeName": node });
            serde_json::from_value(serde_json::json!({ "metadata": metadata, "spec": spec })).unwrap()
        };
        let node = Host { name: "n".into(), cores: 8, threads: 8, memory_mb: 8192, ..Host::default() };
        let mut objects = vec![Object::Host(Box::new(node))];
        for name in ["abandoned", "reserved"] {
            objects.push(Object::Vm(Box::new(vm(&pod(name, ""), "default", None).unwrap())));
        }
        // A VM that is no pod is nobody's to delete.
        objects.push(Object::Vm(Box::new(Vm { name: "own".into(), ..Vm::default() })));
        service.put(objects).unwrap();
        let placed = service
            .place(PlaceRequest { vms: vec!["shop.reserved".into()], ..PlaceRequest::default() })
            .unwrap();
        let (nodes, health) = (Arc::default(), Arc::default());
        let mut accounts = Accounts::new(service.clone(), "default".into(), nodes, health);
        accounts.pods(&[Update::One(pod("runs", "n"))]).unwrap();
        accounts.sweep().unwrap();
        let names: Vec<String> = service.vms().unwrap().into_iter().map(|vm| vm.name).collect();
        assert_eq!(names, ["own", "shop.reserved", "shop.runs"], "{placed:?}");
    }
}
