//! The units' copy of the inventory: hosts by slot and VMs, at a revision.

use super::entry;
use ringway_place::unit::{Delta, HostView, VmView};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashMap};

/// Entries per line, far below the limit of a line.
const HOSTS: usize = 1000;
const VMS: usize = 2000;

/// The whole inventory.
#[derive(Default)]
pub(super) struct InventoryCopy {
    pub revision: u64,
    /// Names by slot.
    names: Vec<Option<String>>,
    slots: HashMap<String, usize>,
    free: Vec<usize>,
    hosts: BTreeMap<usize, HostView>,
    vms: BTreeMap<String, VmView>,
}

impl InventoryCopy {
    /// Replaces everything.
    pub fn replace(&mut self, mut hosts: Vec<HostView>, vms: Vec<VmView>) {
        // Ordered by name, like queries.
        hosts.sort_by(|a, b| a.host.name.cmp(&b.host.name));
        *self = InventoryCopy { revision: self.revision + 1, ..InventoryCopy::default() };
        for host in hosts {
            self.put_host(host);
        }
        self.vms = vms.into_iter().map(|vm| (vm.name.clone(), vm)).collect();
    }

    /// Applies changes; returns them as a request's body.
    pub fn change(&mut self, deltas: Vec<Delta>) -> Vec<u8> {
        let from = self.revision;
        self.revision += 1;
        let (mut hosts, mut gone_hosts) = (BTreeMap::new(), Vec::new());
        let (mut vms, mut gone_vms) = (BTreeMap::new(), Vec::new());
        for delta in deltas {
            match delta {
                Delta::Host(view) => {
                    let slot = self.put_host(*view);
                    hosts.insert(slot, ());
                }
                Delta::NoHost(name) => {
                    if let Some(slot) = self.slots.remove(&name) {
                        self.hosts.remove(&slot);
                        self.names[slot] = None;
                        hosts.remove(&slot);
                        gone_hosts.push(slot);
                    }
                }
                Delta::Vm(view) => {
                    vms.insert(view.name.clone(), ());
                    self.vms.insert(view.name.clone(), *view);
                }
                Delta::NoVm(name) => {
                    vms.remove(&name);
                    if self.vms.remove(&name).is_some() {
                        gone_vms.push(name);
                    }
                }
            }
        }
        let hosts: Vec<Value> = hosts.keys().filter_map(|slot| self.host(*slot)).collect();
        let vms: Vec<Value> =
            vms.keys().filter_map(|name| self.vms.get(name)).map(|vm| self.vm(vm)).collect();
        let body = json!({
            "from": from, "revision": self.revision,
            "hosts": hosts, "gone_hosts": &gone_hosts, "vms": vms, "gone_vms": gone_vms,
        });
        // Freed only now, so that a slot has one host within an update.
        self.free.extend(gone_hosts);
        body.to_string().into_bytes()
    }

    /// Everything, as the bodies of successive requests to a new listener.
    pub fn parts(&self) -> Vec<Vec<u8>> {
        let hosts: Vec<Value> = self.hosts.keys().filter_map(|slot| self.host(*slot)).collect();
        let vms: Vec<Value> = self.vms.values().map(|vm| self.vm(vm)).collect();
        let mut parts: Vec<Map<String, Value>> = Vec::new();
        let mut add = |name: &str, entries: &[Value]| {
            parts.push(Map::from_iter([(name.to_string(), Value::from(entries))]));
        };
        hosts.chunks(HOSTS).for_each(|some| add("hosts", some));
        vms.chunks(VMS).for_each(|some| add("vms", some));
        if parts.is_empty() {
            parts.push(Map::new());
        }
        let last = parts.len() - 1;
        let whole = |(place, mut part): (usize, Map<String, Value>)| {
            part.insert("revision".into(), self.revision.into());
            part.insert("last".into(), (place == last).into());
            Value::Object(part).to_string().into_bytes()
        };
        parts.into_iter().enumerate().map(whole).collect()
    }

    /// The slots of hosts by name, and their mask. An unknown host has a slot beyond all others.
    pub fn slots(&self, hosts: &[&str]) -> (Vec<usize>, Vec<u8>) {
        let mut mask = vec![b'0'; self.names.len()];
        let mut next = 0;
        let slot = |name: &&str| {
            // Checking the next slot, which is usually right, is cheaper than a lookup.
            let slot = match self.names.get(next) {
                Some(Some(there)) if there == name => next,
                _ => self.slots.get(*name).copied().unwrap_or(self.names.len()),
            };
            if let Some(bit) = mask.get_mut(slot) {
                *bit = b'1';
            }
            next = slot + 1;
            slot
        };
        let slots = hosts.iter().map(slot).collect();
        (slots, mask)
    }

    /// A host's name.
    pub fn name(&self, slot: usize) -> Option<&String> {
        self.names.get(slot)?.as_ref()
    }

    /// Hosts of a mask, with their fields: for stateless listeners.
    pub fn hosts(&self, mask: &[u8]) -> Vec<Value> {
        let chosen = mask.iter().enumerate().filter(|(_, bit)| **bit == b'1');
        chosen.filter_map(|(slot, _)| self.host(slot)).collect()
    }

    /// A VM in the protocol's form.
    pub fn vm(&self, view: &VmView) -> Value {
        let slot = view.host.as_ref().filter(|_| view.runs()).and_then(|name| self.slots.get(name));
        Value::Object(entry::vm(view, slot.copied()))
    }

    /// Whether a VM is known.
    pub fn has_vm(&self, name: &str) -> bool {
        self.vms.contains_key(name)
    }

    fn host(&self, slot: usize) -> Option<Value> {
        let mut host = entry::host(self.hosts.get(&slot)?);
        host.insert("slot".into(), slot.into());
        Some(Value::Object(host))
    }

    fn put_host(&mut self, view: HostView) -> usize {
        let name = view.host.name.clone();
        let slot = match self.slots.get(&name) {
            Some(slot) => *slot,
            None => {
                let slot = self.free.pop().unwrap_or_else(|| {
                    self.names.push(None);
                    self.names.len() - 1
                });
                self.names[slot] = Some(name.clone());
                self.slots.insert(name, slot);
                slot
            }
        };
        self.hosts.insert(slot, view);
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ringway_place::object::{Host, Vm, VmStatus};
    use std::collections::BTreeSet;

    fn host(name: &str) -> HostView {
        HostView {
            host: Host { name: name.into(), ..Host::default() },
            cpu_load: f64::INFINITY,
            pending_load: 0.0,
            free_mb: -5,
            schedulable_mb: 0,
            vms: Vec::new(),
            pending_vms: Vec::new(),
            facts: BTreeMap::new(),
        }
    }

    fn vm(name: &str, host: &str) -> VmView {
        Vm { name: name.into(), host: Some(host.into()), status: VmStatus::Up, ..Vm::default() }
    }

    /// Applies a request to a listener's copy: host ids by slot.
    fn apply(hosts: &mut BTreeMap<u64, String>, body: &[u8]) {
        let body: Value = serde_json::from_slice(body).expect("JSON");
        let list = |name: &str| body[name].as_array().cloned().unwrap_or_default();
        for slot in list("gone_hosts") {
            hosts.remove(&slot.as_u64().expect("a slot"));
        }
        for host in list("hosts") {
            let (slot, id) = (host["slot"].as_u64().expect("a slot"), host["id"].as_str().expect("an id"));
            assert!(hosts.insert(slot, id.into()).is_none_or(|old| old == id), "slot {slot} has two hosts");
        }
    }

    proptest! {
        #[test]
        fn changes_and_snapshots_give_the_same_picture(
            steps in prop::collection::vec(prop::collection::vec((0_u8..6, any::<bool>()), 0..4), 0..40),
        ) {
            let (mut inventory_copy, mut followed) = (InventoryCopy::default(), BTreeMap::new());
            for step in steps {
                let delta = |(host_number, there): (u8, bool)| {
                    let name = format!("h{host_number}");
                    if there { Delta::Host(Box::new(host(&name))) } else { Delta::NoHost(name) }
                };
                // An update names each host once.
                let once: BTreeMap<u8, bool> = step.into_iter().collect();
                apply(&mut followed, &inventory_copy.change(once.into_iter().map(delta).collect()));
                let mut late = BTreeMap::new();
                inventory_copy.parts().iter().for_each(|part| apply(&mut late, part));
                prop_assert_eq!(&followed, &late);
                let all: Vec<String> = followed.values().cloned().collect();
                let all: Vec<&str> = all.iter().map(String::as_str).collect();
                let mask = inventory_copy.slots(&all).1;
                let named = (0..mask.len()).filter(|slot| mask[*slot] == b'1');
                let named: BTreeSet<&String> = named.filter_map(|slot| inventory_copy.name(slot)).collect();
                let named: BTreeSet<&str> = named.into_iter().map(String::as_str).collect();
                prop_assert_eq!(named, all.into_iter().collect::<BTreeSet<_>>());
            }
        }
    }

    #[test]
    fn vms_refer_to_their_hosts_slot() {
        let mut inventory_copy = InventoryCopy::default();
        inventory_copy.replace(vec![host("a"), host("b")], vec![vm("v", "b"), vm("lost", "nowhere")]);
        assert_eq!(inventory_copy.vm(&vm("v", "b"))["host"], 1);
        assert_eq!(inventory_copy.vm(&vm("lost", "nowhere"))["host"], Value::Null);
        assert_eq!(inventory_copy.slots(&["b", "nowhere", "a"]), (vec![1, 2, 0], b"11".to_vec()));
        let body: Value =
            serde_json::from_slice(&inventory_copy.change(vec![Delta::NoVm("v".into())])).expect("JSON");
        assert_eq!(body["gone_vms"], json!(["v"]));
        assert_eq!((body["from"].clone(), body["revision"].clone()), (json!(1), json!(2)));
    }

    #[test]
    fn absurd_figures_are_still_json() {
        let mut inventory_copy = InventoryCopy::default();
        let body: Value =
            serde_json::from_slice(&inventory_copy.change(vec![Delta::Host(Box::new(host("a")))]))
                .expect("JSON");
        assert_eq!(
            (&body["hosts"][0]["cpu_load"], &body["hosts"][0]["memory_free"]),
            (&json!(0.0), &json!(-5))
        );
    }
}
