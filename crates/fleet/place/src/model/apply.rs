//! Changes to the model: an object put or removed.

use super::{ClusterState, HostId, Model, Need, VmId, VmSlot};
use crate::object::{AffinityGroup, Blacklist, Cluster, Fact, Host, Load, Pending, Vm, VmStatus};
use crate::policy::Policy;
use std::sync::Arc;

/// An object put or removed.
#[derive(Clone, Debug)]
pub enum Change {
    /// A cluster was added or changed.
    Cluster(Cluster),
    /// A cluster's description was deleted: it has the defaults.
    NoCluster(String),
    /// A policy was added or changed.
    Policy(Arc<Policy>),
    /// A policy was deleted.
    NoPolicy(String),
    /// A host was added or changed.
    Host(Host),
    /// A host was deleted.
    NoHost(String),
    /// New measurements of a host.
    Load(Load),
    /// A host's load was deleted.
    NoLoad(String),
    /// An external fact about a host.
    Fact(Fact),
    /// A fact was deleted: its host and name.
    NoFact(String, String),
    /// A host is blacklisted.
    Blacklist(Blacklist),
    /// A blacklist entry was deleted.
    NoBlacklist(String),
    /// A VM was added or changed.
    Vm(Vm),
    /// A VM was deleted.
    NoVm(String),
    /// A group was added or changed.
    Group(AffinityGroup),
    /// A group was deleted.
    NoGroup(String),
    /// A VM's reservation was added or changed.
    Pending(Pending),
    /// A VM's reservation was deleted.
    NoPending(String),
}

impl Model {
    /// Applies a change.
    pub fn apply(&mut self, change: Change) {
        match change {
            Change::Cluster(cluster) => self.put_cluster(cluster),
            Change::NoCluster(name) => {
                if self.cluster_ids.contains_key(&name) {
                    self.put_cluster(Cluster { name, ..Cluster::default() });
                }
            }
            Change::Policy(policy) => {
                self.policies.insert(policy.name.clone(), policy);
            }
            Change::NoPolicy(name) => {
                self.policies.remove(&name);
            }
            Change::Host(host) => self.put_host(host),
            Change::NoHost(name) => self.remove_host(&name),
            Change::Load(load) => {
                let host = load.host.clone();
                self.loads.insert(host.clone(), load);
                self.send_load(&host);
            }
            Change::NoLoad(host) => {
                self.loads.remove(&host);
                self.send_load(&host);
            }
            Change::Fact(fact) => {
                self.touch_host(&fact.host);
                if let Some(id) = self.host(&fact.host) {
                    self.clusters[id.cluster as usize].set_fact(id.row, &fact.name, Some(&fact));
                }
                self.facts.entry(fact.host.clone()).or_default().insert(fact.name.clone(), fact);
            }
            Change::NoFact(host, name) => {
                self.touch_host(&host);
                if let Some(id) = self.host(&host) {
                    self.clusters[id.cluster as usize].set_fact(id.row, &name, None);
                }
                if let Some(facts) = self.facts.get_mut(&host) {
                    facts.remove(&name);
                }
            }
            Change::Blacklist(entry) => {
                if let Some(id) = self.host(&entry.host) {
                    self.clusters[id.cluster as usize].set_blacklist(id.row, Some(&entry));
                }
                self.barred.insert(entry.host.clone(), entry);
            }
            Change::NoBlacklist(host) => {
                if let Some(id) = self.host(&host) {
                    self.clusters[id.cluster as usize].set_blacklist(id.row, None);
                }
                self.barred.remove(&host);
            }
            Change::Vm(vm) => self.put_vm(vm),
            Change::NoVm(name) => self.remove_vm(&name),
            Change::Group(group) => self.put_group(group),
            Change::NoGroup(name) => self.remove_group(&name),
            Change::Pending(pending) => self.put_pending(pending),
            Change::NoPending(vm) => self.remove_pending(&vm),
        }
    }

    fn put_cluster(&mut self, cluster: Cluster) {
        self.touch_everything();
        match self.cluster_ids.get(&cluster.name) {
            Some(id) => self.clusters[*id as usize].describe(cluster),
            None => {
                self.cluster_ids.insert(cluster.name.clone(), self.clusters.len() as u32);
                self.clusters.push(ClusterState::new(cluster));
            }
        }
    }

    fn put_host(&mut self, host: Host) {
        self.touch_host(&host.name);
        let old = self.host(&host.name);
        if let Some(old) = old {
            if self.state(old.cluster).cluster.name == host.cluster {
                return self.clusters[old.cluster as usize].change(old.row, host, &self.slots);
            }
            self.remove_host(&host.name);
        }
        if !self.cluster_ids.contains_key(&host.cluster) {
            self.put_cluster(Cluster { name: host.cluster.clone(), ..Cluster::default() });
        }
        let cluster = self.cluster_ids[&host.cluster];
        let name = host.name.clone();
        let row = self.clusters[cluster as usize].add(host);
        let id = HostId { cluster, row };
        self.hosts.insert(name.clone(), id);
        self.send_load(&name);
        let state = &mut self.clusters[cluster as usize];
        for (fact, value) in self.facts.get(&name).into_iter().flatten() {
            state.set_fact(row, fact, Some(value));
        }
        state.set_blacklist(row, self.barred.get(&name));
        for vm in self.homeless.remove(&name).unwrap_or_default() {
            if let Some(vm) = self.vm_by(vm).map(|slot| slot.vm.name.clone()) {
                self.touch_vm(&vm);
            }
            let Some(slot) = self.slots.get_mut(vm as usize).and_then(Option::as_mut) else { continue };
            let runs = slot.vm.runs() && slot.vm.host.as_deref() == Some(&name);
            let comes = self.pendings.get(&slot.vm.name).is_some_and(|pending| pending.host == name);
            slot.at = if runs { Some(id) } else { slot.at };
            slot.pending = if comes { Some(id) } else { slot.pending };
            for pending in [(runs, false), (comes, true)].into_iter().filter(|(here, _)| *here) {
                self.clusters[cluster as usize].add_guest(row, vm, pending.1, &self.slots);
            }
        }
    }

    fn remove_host(&mut self, name: &str) {
        self.touch_host(name);
        let Some(id) = self.hosts.remove(name) else { return };
        let Some(slot) = self.slot(id) else { return };
        let guests: Vec<VmId> = slot.guests().collect();
        for vm in &guests {
            if let Some(vm) = self.vm_by(*vm).map(|slot| slot.vm.name.clone()) {
                self.touch_vm(&vm);
            }
            if let Some(Some(slot)) = self.slots.get_mut(*vm as usize) {
                slot.at = slot.at.filter(|at| *at != id);
                slot.pending = slot.pending.filter(|at| *at != id);
            }
        }
        self.homeless.entry(name.into()).or_default().extend(guests);
        self.clusters[id.cluster as usize].remove(id.row);
    }

    fn send_load(&mut self, host: &str) {
        self.touch_host(host);
        if let Some(id) = self.host(host) {
            let load = self.loads.get(host).cloned();
            self.clusters[id.cluster as usize].measure(id.row, load);
        }
    }

    fn remove_guest(&mut self, vm: VmId, at: HostId, pending: bool) {
        self.touch_at(at);
        self.clusters[at.cluster as usize].remove_guest(at.row, vm, pending, &self.slots);
    }

    fn put_vm(&mut self, vm: Vm) {
        let name = vm.name.clone();
        self.touch_vm(&name);
        self.detach(&name);
        let id = self.vms.get(&name).copied().unwrap_or_else(|| {
            self.free.pop().unwrap_or_else(|| {
                self.slots.push(None);
                self.slots.len() as VmId - 1
            })
        });
        self.vms.insert(name.clone(), id);
        for label in &vm.labels {
            self.labelled.entry(label.clone()).or_default().insert(id);
        }
        if let Some(chain) = &vm.chain {
            self.chains.entry(chain.clone()).or_default().insert(id);
        }
        if vm.hosted_engine {
            self.engines.insert(id);
        }
        let need = Need::of(&vm);
        let home = vm.host.clone().filter(|_| vm.runs());
        self.slots[id as usize] = Some(VmSlot { vm: Arc::new(vm), need, at: None, pending: None });
        if let Some(home) = home {
            match self.host(&home) {
                Some(at) => {
                    self.touch_at(at);
                    self.clusters[at.cluster as usize].add_guest(at.row, id, false, &self.slots);
                    if let Some(slot) = &mut self.slots[id as usize] {
                        slot.at = Some(at);
                    }
                }
                None => {
                    self.homeless.entry(home).or_default().insert(id);
                }
            }
        }
        if let Some(pending) = self.pendings.get(&name).cloned() {
            self.seat_pending(id, &pending);
        }
    }

    /// Removes a VM from everything except the list of names.
    fn detach(&mut self, name: &str) {
        let Some(id) = self.vms.get(name).copied() else { return };
        let Some(slot) = self.slots[id as usize].take() else { return };
        self.engines.remove(&id);
        if let Some(at) = slot.at {
            self.remove_guest(id, at, false);
        }
        if let Some(at) = slot.pending {
            self.remove_guest(id, at, true);
        }
        for label in &slot.vm.labels {
            if let Some(list) = self.labelled.get_mut(label) {
                list.remove(&id);
            }
        }
        if let Some(list) = slot.vm.chain.as_ref().and_then(|chain| self.chains.get_mut(chain)) {
            list.remove(&id);
        }
        if let Some(list) = slot.vm.host.as_ref().and_then(|host| self.homeless.get_mut(host)) {
            list.remove(&id);
        }
    }

    fn remove_vm(&mut self, name: &str) {
        self.touch_vm(name);
        self.detach(name);
        if let Some(id) = self.vms.remove(name) {
            self.free.push(id);
        }
    }

    fn put_group(&mut self, group: AffinityGroup) {
        self.remove_group(&group.name);
        let vms = group.vms.iter().map(|vm| format!("vm/{vm}"));
        for key in vms.chain(group.vm_labels.iter().map(|label| format!("label/{label}"))) {
            self.grouped.entry(key).or_default().insert(group.name.clone());
        }
        self.groups.insert(group.name.clone(), Arc::new(group));
    }

    fn remove_group(&mut self, name: &str) {
        if self.groups.remove(name).is_some() {
            self.grouped.retain(|_, groups| {
                groups.remove(name);
                !groups.is_empty()
            });
        }
    }

    fn seat_pending(&mut self, id: VmId, pending: &Pending) {
        let Some(at) = self.host(&pending.host) else {
            self.homeless.entry(pending.host.clone()).or_default().insert(id);
            return;
        };
        let Some(Some(slot)) = self.slots.get_mut(id as usize) else { return };
        // A VM that already runs there needs no further resources.
        if slot.at == Some(at) && slot.vm.status != VmStatus::Down {
            return;
        }
        slot.pending = Some(at);
        self.touch_at(at);
        self.clusters[at.cluster as usize].add_guest(at.row, id, true, &self.slots);
    }

    fn put_pending(&mut self, pending: Pending) {
        self.remove_pending(&pending.vm.clone());
        if let Some(id) = self.vm_id(&pending.vm) {
            self.seat_pending(id, &pending);
        }
        self.pendings.insert(pending.vm.clone(), pending);
    }

    fn remove_pending(&mut self, vm: &str) {
        self.pendings.remove(vm);
        let Some(id) = self.vm_id(vm) else { return };
        let at = self.slots[id as usize].as_mut().and_then(|slot| slot.pending.take());
        if let Some(at) = at {
            self.remove_guest(id, at, true);
        }
    }
}
