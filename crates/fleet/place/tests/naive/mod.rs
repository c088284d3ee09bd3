//! A second implementation of placement, written from the documentation (docs/placement.md, docs/inventory.md
//! and oVirt's) for readability instead of speed: everything is recomputed from the objects on each query.

pub mod balancers;
pub mod cpus;
pub mod filters;
pub mod weights;

use cpus::Cpus;
use ringway_place::object::*;
use std::collections::BTreeMap;

/// All objects.
#[derive(Clone, Debug)]
pub struct World {
    pub cluster: Cluster,
    pub hosts: Vec<Host>,
    pub vms: Vec<Vm>,
    pub groups: Vec<AffinityGroup>,
    pub loads: Vec<Load>,
    /// Reservations: VM and host.
    pub pending: BTreeMap<String, String>,
    pub properties: BTreeMap<String, String>,
    pub now: u64,
}

/// VMs to place together, and whether they may stay on their hosts.
#[derive(Clone, Debug)]
pub struct Request<'w> {
    pub vms: Vec<&'w Vm>,
    pub stay: bool,
}

impl<'w> Request<'w> {
    /// The VMs that are not on a host yet.
    pub fn new_on(&self, host: &Host) -> Vec<&'w Vm> {
        self.vms.iter().copied().filter(|vm| !runs_on(vm, host)).collect()
    }

    pub fn has(&self, vm: &Vm) -> bool {
        self.vms.iter().any(|other| other.name == vm.name)
    }
}

pub fn runs_on(vm: &Vm, host: &Host) -> bool {
    vm.runs() && vm.host.as_ref() == Some(&host.name)
}

pub fn is_exclusive(vm: &Vm) -> bool {
    matches!(vm.pinning, Pinning::Dedicated | Pinning::IsolateThreads)
}

/// oVirt's overhead: page tables and 64 MB from the start, 8 MB for each virtual CPU later. Functions have
/// none.
fn overheads(vm: &Vm) -> (i64, i64) {
    match vm.kind {
        VmKind::Vm => (vm.memory_mb as i64 / 512 + 64, 8 * i64::from(vm.vcpus())),
        VmKind::Function => (0, 0),
    }
}

fn plain_memory(vm: &Vm) -> i64 {
    if vm.huge_page_kb.is_some() { 0 } else { vm.memory_mb as i64 }
}

/// Memory that a VM takes at start, without huge pages.
pub fn real_memory(vm: &Vm) -> i64 {
    plain_memory(vm) + overheads(vm).0
}

/// Memory that it may take in total, without huge pages.
pub fn committed_memory(vm: &Vm) -> i64 {
    real_memory(vm) + overheads(vm).1
}

/// Memory that it may take in total.
pub fn whole_memory(vm: &Vm) -> i64 {
    vm.memory_mb as i64 + overheads(vm).0 + overheads(vm).1
}

/// CPU load in percent of one CPU: of a VM that was not measured 10% for each virtual CPU.
pub fn cpu_load(vm: &Vm) -> i64 {
    milli_vcpus(vm) * i64::from(vm.cpu_percent.unwrap_or(10)) / 1000
}

pub fn shared_cores(vm: &Vm) -> i64 {
    if is_exclusive(vm) { 0 } else { i64::from(vm.sockets * vm.cores) }
}

/// A VM's use of shared CPUs in thousandths: its configured share, or its virtual CPUs.
pub fn milli_vcpus(vm: &Vm) -> i64 {
    if is_exclusive(vm) { 0 } else { i64::from(vm.milli_cpus.unwrap_or(vm.vcpus() * 1000)) }
}

/// A VM's use of shared cores in thousandths: its configured share, or its virtual cores.
fn milli_cores(vm: &Vm) -> i64 {
    if is_exclusive(vm) { 0 } else { i64::from(vm.milli_cpus.unwrap_or(vm.sockets * vm.cores * 1000)) }
}

pub fn sum(vms: &[&Vm], figure: impl Fn(&Vm) -> i64) -> i64 {
    vms.iter().map(|vm| figure(vm)).sum()
}

/// Rounds a quotient half up.
pub fn rounded(top: i128, bottom: i128) -> i64 {
    (2 * top + bottom).div_euclid(2 * bottom) as i64
}

impl World {
    pub fn host(&self, name: &str) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }

    pub fn vm(&self, name: &str) -> Option<&Vm> {
        self.vms.iter().find(|vm| vm.name == name)
    }

    pub fn number(&self, property: &str, default: f64) -> f64 {
        self.properties.get(property).map_or(default, |text| text.parse().unwrap())
    }

    /// A decimal property in millionths.
    pub fn millionths(&self, property: &str, default: i128) -> i128 {
        let Some(text) = self.properties.get(property) else { return default * 1_000_000 };
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        format!("{whole}{part:0<6}").parse().unwrap()
    }

    pub fn running(&self, host: &Host) -> Vec<&Vm> {
        self.vms.iter().filter(|vm| runs_on(vm, host)).collect()
    }

    /// VMs pending on a host. A VM that already runs there needs no further resources.
    pub fn coming(&self, host: &Host) -> Vec<&Vm> {
        let reserved = |vm: &&Vm| self.pending.get(&vm.name) == Some(&host.name);
        self.vms.iter().filter(|vm| reserved(vm) && !runs_on(vm, host)).collect()
    }

    pub fn guests(&self, host: &Host) -> Vec<&Vm> {
        [self.running(host), self.coming(host)].concat()
    }

    /// The host on which a VM counts for other VMs: the reserved host, or else the current one.
    pub fn place(&self, vm: &Vm) -> Option<&Host> {
        let comes =
            self.hosts.iter().find(|host| self.coming(host).iter().any(|other| other.name == vm.name));
        comes.or_else(|| self.hosts.iter().find(|host| runs_on(vm, host)))
    }

    /// Groups that a VM is in, by name or by label.
    pub fn groups_of(&self, request: &Request<'_>) -> Vec<&AffinityGroup> {
        self.groups.iter().filter(|group| request.vms.iter().any(|vm| is_member(group, vm))).collect()
    }

    /// VMs of a group that are not part of the request.
    pub fn others_of<'w>(&'w self, group: &AffinityGroup, request: &Request<'_>) -> Vec<&'w Vm> {
        self.vms.iter().filter(|vm| is_member(group, vm) && !request.has(vm)).collect()
    }

    /// A host's CPUs: cores, or threads where the cluster counts these.
    pub fn cpus(&self, host: &Host) -> i64 {
        i64::from(if self.cluster.threads_as_cores { host.threads } else { host.cores })
    }

    /// Exclusive CPUs after adding `new`; none if some of these need exclusive CPUs and don't fit.
    pub fn exclusive(&self, host: &Host, new: &[&Vm]) -> Option<i64> {
        let new = if new.iter().any(|vm| is_exclusive(vm)) { new } else { &[] };
        let cpus = Cpus::of(host, &self.guests(host)).with(new)?;
        Some(if self.cluster.threads_as_cores { cpus.own_threads() } else { cpus.own_cores() })
    }

    /// CPUs left to share; at least one, to divide by.
    pub fn shared_cpus(&self, host: &Host, new: &[&Vm]) -> i64 {
        let taken = self.exclusive(host, new).unwrap_or(self.cpus(host));
        (self.cpus(host) - taken).max(1)
    }

    /// Shared CPUs used by VMs, in thousandths of the host's CPUs.
    pub fn promised_milli(&self, vms: &[&Vm]) -> i64 {
        sum(vms, if self.cluster.threads_as_cores { milli_vcpus } else { milli_cores })
    }

    pub fn load(&self, host: &Host) -> Option<&Load> {
        self.loads.iter().find(|load| load.host == host.name)
    }

    /// Load of a host in percent of one CPU: as measured, or the sum of its VMs. The storage pool manager
    /// counts as 10.
    pub fn cpu_load(&self, host: &Host) -> i64 {
        let measured = self.load(host).and_then(|load| load.cpu_percent);
        let load = measured.map(|percent| i64::from(percent) * self.cpus(host));
        load.unwrap_or(sum(&self.running(host), cpu_load)) + if host.spm { 10 } else { 0 }
    }

    pub fn over_since(&self, host: &Host) -> Option<u64> {
        self.load(host).and_then(|load| load.over_since)
    }

    /// A host's memory without its huge pages.
    fn plain_memory(&self, host: &Host) -> i64 {
        let huge = host.huge_pages.iter().map(|(size, count)| (size * count / 1024) as i64);
        host.memory_mb as i64 - huge.sum::<i64>()
    }

    /// Memory in huge pages beyond the host's reserved ones.
    pub fn dynamic_memory(&self, host: &Host, vms: &[&Vm]) -> i64 {
        let mut pages: BTreeMap<u64, u64> = BTreeMap::new();
        for vm in vms {
            if let Some(size) = vm.huge_page_kb {
                *pages.entry(size).or_default() += (vm.memory_mb * 1024).div_ceil(size);
            }
        }
        let beyond = |(size, count): (u64, u64)| {
            let set_aside = host.huge_pages.get(&size).copied().unwrap_or(0);
            if count > set_aside { (count - set_aside) * size } else { 0 }
        };
        pages.into_iter().map(beyond).sum::<u64>().div_ceil(1024) as i64
    }

    /// Free memory, as measured or computed.
    fn free_now(&self, host: &Host) -> i64 {
        let running = self.running(host);
        let left = self.plain_memory(host) - sum(&running, real_memory) - self.dynamic_memory(host, &running);
        self.load(host).and_then(|load| load.free_mb).map_or(left, |free| free as i64)
    }

    /// Free memory less that of pending VMs.
    pub fn free_memory(&self, host: &Host) -> i64 {
        let coming =
            self.dynamic_memory(host, &self.guests(host)) - self.dynamic_memory(host, &self.running(host));
        self.free_now(host) - sum(&self.coming(host), real_memory) - coming
    }

    pub fn free_swap(&self, host: &Host) -> i64 {
        self.load(host).and_then(|load| load.swap_free_mb).unwrap_or(host.swap_mb) as i64
    }

    /// Swap in use that free memory could not hold, in percent of all memory.
    pub fn swapping(&self, host: &Host) -> i64 {
        let (used, free) = (host.swap_mb as i64 - self.free_swap(host), self.free_now(host));
        if free > 0 { (used - free) * 100 / host.memory_mb as i64 } else { 0 }
    }

    /// Memory that can still be reserved.
    pub fn schedulable(&self, host: &Host) -> i64 {
        let guests = self.guests(host);
        let limit = self.plain_memory(host) * i64::from(self.cluster.memory_overcommit) / 100;
        let promised = sum(&guests, committed_memory) + self.dynamic_memory(host, &guests);
        limit - host.reserved_mb as i64 - 65 - promised
    }

    /// Memory left on a host's NUMA nodes, by their numbers. VMs on the host pin each of their nodes to one of the
    /// host's.
    pub fn numa_free(&self, host: &Host, request: &Request<'_>) -> BTreeMap<u32, i64> {
        let mut free: BTreeMap<u32, i64> =
            host.numa.iter().map(|node| (node.index, node.memory_mb as i64)).collect();
        let staying = self.guests(host).into_iter().filter(|vm| !request.has(vm) || runs_on(vm, host));
        for node in staying.flat_map(|vm| &vm.numa) {
            if let Some(free) = node.host_nodes.first().and_then(|index| free.get_mut(index)) {
                *free -= node.memory_mb as i64;
            }
        }
        free
    }
}

pub fn is_member(group: &AffinityGroup, vm: &Vm) -> bool {
    group.vms.contains(&vm.name) || vm.labels.iter().any(|label| group.vm_labels.contains(label))
}

/// Whether pinned VM nodes fit on host nodes, by exhaustive search. With `host`, a VM's pinned CPUs must be
/// in the host node of their VM node.
pub fn nodes_fit(free: &BTreeMap<u32, i64>, vms: &[&Vm], host: Option<&Host>) -> bool {
    let nodes = vms.iter().flat_map(|vm| vm.numa.iter().map(move |node| (*vm, node)));
    let nodes: Vec<(&Vm, &VmNumaNode)> = nodes.filter(|(_, node)| !node.host_nodes.is_empty()).collect();
    let all_known =
        nodes.iter().all(|(_, node)| node.host_nodes.iter().all(|index| free.contains_key(index)));
    all_known && fit(free.clone(), &nodes, host)
}

fn fit(free: BTreeMap<u32, i64>, nodes: &[(&Vm, &VmNumaNode)], host: Option<&Host>) -> bool {
    let Some(((vm, node), rest)) = nodes.split_first() else { return true };
    node.host_nodes.iter().any(|index| {
        let agrees = host.is_none_or(|host| {
            vm.pins.is_empty()
                || node.cpus == 0
                || vm.pins.iter().any(|cpu| cpus::node_of(host, *cpu) == Some(*index))
        });
        let mut left = free.clone();
        *left.get_mut(index).unwrap() -= node.memory_mb as i64;
        agrees && left[index] >= 0 && fit(left, rest, host)
    })
}
