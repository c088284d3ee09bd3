//! The hosts that each filter rejects: oVirt's filters, and three of Nova's and our own.

use super::*;

/// The filters of the model.
pub const NAMES: [&str; 30] = [
    "Status",
    "Compatibility-Version",
    "CPU-Level",
    "CPUTopology",
    "CpuPinning",
    "HostDevice",
    "PinToHost",
    "VM leases ready",
    "MDevice",
    "CPU",
    "CPUOverloaded",
    "Emulated-Machine",
    "HA",
    "Swap",
    "Memory",
    "NUMA",
    "HugePages",
    "Migration",
    "VmAffinityGroups",
    "VmToHostsAffinityGroups",
    "Network",
    "HostedEngineSpares",
    "Migration-Tsc-Frequency",
    "Host-hooks",
    "ClusterInMaintenance",
    "InClusterUpgrade",
    "DifferentHost",
    "SameHost",
    "Aggregates",
    "VCpuCapacity",
];

impl World {
    /// Whether a host passes a filter.
    pub fn passes(&self, filter: &str, request: &Request<'_>, host: &Host) -> bool {
        let new = request.new_on(host);
        let all = |holds: &dyn Fn(&Vm) -> bool| request.vms.iter().all(|vm| holds(vm));
        match filter {
            "Status" => host.status == HostStatus::Up,
            "Compatibility-Version" => all(&|vm| vm.version.iter().all(|it| host.versions.contains(it))),
            "CPU-Level" => all(&|vm| self.has_flags(vm, host)),
            "CPUTopology" => all(&|vm| topology_suits(vm, host)),
            "CpuPinning" => {
                let pinned = || Cpus::of(host, &self.guests(host)).with(&new);
                all(&|vm| vm.pinning == Pinning::None) || new.is_empty() || pinned().is_some()
            }
            "HostDevice" => self.has_devices(request, host),
            "PinToHost" => all(&|vm| match vm.migration {
                Migration::PinnedToHost if vm.hosts.is_empty() => vm.host.is_none(),
                Migration::PinnedToHost => vm.hosts.contains(&host.name),
                _ => true,
            }),
            "VM leases ready" => all(&|vm| vm.lease.iter().all(|it| host.leases.contains(it))),
            "MDevice" => self.has_mdevs(request, host),
            "CPU" => self.has_cpus(&new, host),
            "CPUOverloaded" => !self.is_overloaded(host),
            "Emulated-Machine" => {
                let machine = |vm: &Vm| vm.machine.clone().or(self.cluster.machine.clone());
                all(&|vm| machine(vm).is_none_or(|machine| host.machines.contains(&machine)))
            }
            "HA" => self.can_run_engine(request, host),
            "Swap" => {
                let limit = self.number("MaximumAllowedSwapUsage", 0.0);
                all(&|vm| vm.status == VmStatus::Paused) || self.swapping(host) as f64 <= limit
            }
            "Memory" => all(&|vm| vm.status == VmStatus::Paused) || self.has_memory(&new, host),
            "NUMA" => self.has_nodes(request, host),
            "HugePages" => self.has_huge_pages(request, host),
            "Migration" => request.stay || new.len() == request.vms.len(),
            "VmAffinityGroups" => self.holds_between_vms(request, host),
            "VmToHostsAffinityGroups" => {
                let groups = self.groups_of(request).into_iter();
                let mut hard =
                    groups.filter(|group| group.host_enforcing && group.host_rule != Rule::Disabled);
                hard.all(|group| has_host(group, host) == (group.host_rule == Rule::Positive))
            }
            "Network" => self.has_networks(request, host),
            "HostedEngineSpares" => !self.is_spare(request, host),
            "Migration-Tsc-Frequency" => all(&|vm| self.same_tsc(vm, host)),
            "Host-hooks" => all(&|vm| vm.hooks.iter().all(|hook| host.hooks.contains(hook))),
            "ClusterInMaintenance" => all(&|vm| vm.ha || vm.host.is_some()),
            "InClusterUpgrade" => all(&|vm| self.is_not_older(vm, host)),
            "DifferentHost" => {
                let places = request.vms.iter().flat_map(|vm| &vm.different_host);
                let mut places = places.filter_map(|name| self.place(self.vm(name)?));
                places.all(|place| place.name != host.name)
            }
            "SameHost" => all(&|vm| self.is_with_named(vm, host)),
            "Aggregates" => all(&|vm| vm.aggregates.iter().all(|it| host.aggregates.contains(it))),
            "VCpuCapacity" => self.has_vcpus(&new, host),
            other => panic!("the model knows no filter {other}"),
        }
    }

    /// A VM with CPU passthrough needs no flags before it runs.
    fn has_flags(&self, vm: &Vm, host: &Host) -> bool {
        let needed = match (vm.cpu_passthrough, vm.host.is_some()) {
            (true, false) => return true,
            (false, _) if vm.cpu_flags.is_empty() => &self.cluster.cpu_flags,
            _ => &vm.cpu_flags,
        };
        needed.iter().all(|flag| host.cpu_flags.contains(flag))
    }

    /// There must be as many non-exclusive CPUs as the largest sharing VM has cores.
    fn has_cpus(&self, new: &[&Vm], host: &Host) -> bool {
        let Some(taken) = self.exclusive(host, new) else { return new.is_empty() };
        let largest = self.guests(host).iter().chain(new).map(|vm| shared_cores(vm)).max().unwrap_or(0);
        new.is_empty() || self.cpus(host) - taken >= largest
    }

    fn has_vcpus(&self, new: &[&Vm], host: &Host) -> bool {
        let cpus = self.exclusive(host, new).map(|taken| self.cpus(host) - taken);
        let promised = self.promised_milli(&[self.guests(host), new.to_vec()].concat());
        let own = i64::from(host.reserved_milli_cpus);
        let limit = |cpus| i128::from(cpus * 1000 - own) * self.millionths("VCpuAllocationRatio", 1);
        new.is_empty() || cpus.is_some_and(|cpus| i128::from(promised) * 1_000_000 <= limit(cpus))
    }

    /// Whether a VM that names others would share a host with one of them. A stopped one counts on its last
    /// host.
    fn is_with_named(&self, vm: &Vm, host: &Host) -> bool {
        let home = |name: &String| {
            let vm = self.vm(name)?;
            let place = self.place(vm).map(|host| host.name.clone());
            place.or(vm.host.clone()).or(vm.last_host.clone())
        };
        vm.same_host.is_empty() || vm.same_host.iter().any(|name| home(name).as_ref() == Some(&host.name))
    }

    fn is_overloaded(&self, host: &Host) -> bool {
        let minutes = self.number("CpuOverCommitDurationMinutes", 2.0) as u64;
        let Some(since) = self.over_since(host) else { return false };
        let cpus = self.cpus(host) - self.exclusive(host, &[]).unwrap();
        self.now - since >= minutes * 60_000
            && self.cpu_load(host) > self.number("HighUtilization", 90.0) as i64 * cpus
    }

    fn has_devices(&self, request: &Request<'_>, host: &Host) -> bool {
        let needed: Vec<&String> = request.new_on(host).iter().flat_map(|vm| &vm.devices).collect();
        let taken: Vec<&String> = self.guests(host).iter().flat_map(|vm| &vm.devices).collect();
        let count = |list: &[&String], name: &String| list.iter().filter(|it| **it == name).count();
        let free = |name: &String| {
            let all = host.devices.iter().filter(|device| device.name == *name).count();
            all.saturating_sub(count(&taken, name))
        };
        needed.is_empty() || host.passthrough && needed.iter().all(|name| count(&needed, name) <= free(name))
    }

    fn has_mdevs(&self, request: &Request<'_>, host: &Host) -> bool {
        let needed: Vec<&String> = request.new_on(host).iter().flat_map(|vm| &vm.mdevs).collect();
        let taken: Vec<&String> = self.guests(host).iter().flat_map(|vm| &vm.mdevs).collect();
        let count = |list: &[&String], kind: &String| list.iter().filter(|it| **it == kind).count() as i64;
        let left =
            |kind: &String| host.mdevs.get(kind).map_or(0, |all| i64::from(*all) - count(&taken, kind));
        needed.iter().all(|kind| count(&needed, kind) <= left(kind))
    }

    /// The self-hosted engine runs on hosts with a positive score; it moves to hosts with a score at most 800
    /// lower.
    fn can_run_engine(&self, request: &Request<'_>, host: &Host) -> bool {
        let Some(engine) = request.vms.iter().find(|vm| vm.hosted_engine) else { return true };
        let now = self.hosts.iter().find(|host| runs_on(engine, host));
        let agent = now.and_then(|host| host.ha_agent.as_ref()).filter(|agent| !agent.global_maintenance);
        let least = agent.map_or(0, |agent| agent.score.saturating_sub(800));
        host.ha_agent.as_ref().is_some_and(|agent| agent.score > least)
    }

    /// Huge pages beyond the free ones must fit into memory; the rest may use swap; everything must be
    /// reservable.
    fn has_memory(&self, new: &[&Vm], host: &Host) -> bool {
        let guests = self.guests(host);
        let all = [guests.clone(), new.to_vec()].concat();
        let dynamic = self.dynamic_memory(host, &all) - self.dynamic_memory(host, &guests);
        let free = self.free_memory(host) - dynamic;
        new.is_empty()
            || free >= 0
                && free + self.free_swap(host) >= sum(new, real_memory)
                && self.schedulable(host) >= sum(new, committed_memory) + dynamic
    }

    fn has_nodes(&self, request: &Request<'_>, host: &Host) -> bool {
        let pins = |vm: &&Vm| vm.numa.iter().any(|node| !node.host_nodes.is_empty());
        let resizes = |vm: &&Vm| vm.pinning == Pinning::ResizeAndPinNuma;
        if !request.vms.iter().any(|vm| pins(vm) || resizes(vm)) {
            return true;
        }
        let mut new = request.new_on(host);
        new.retain(|vm| !vm.numa.is_empty() || resizes(vm));
        let is_strict = |vm: &&Vm| vm.numa.iter().all(|node| node.mode != NumaMode::Preferred);
        let strict: Vec<&Vm> = new.iter().copied().filter(is_strict).collect();
        let fits = || nodes_fit(&self.numa_free(host, request), &strict, None);
        new.is_empty() || !host.numa.is_empty() && fits()
    }

    fn has_huge_pages(&self, request: &Request<'_>, host: &Host) -> bool {
        let pages = |vms: &[&Vm], size: u64| {
            let backed = vms.iter().filter(|vm| vm.huge_page_kb == Some(size));
            backed.map(|vm| (vm.memory_mb * 1024).div_ceil(size)).sum::<u64>()
        };
        let new = request.new_on(host);
        new.iter().filter_map(|vm| vm.huge_page_kb).all(|size| {
            let all = host.huge_pages.get(&size).copied().unwrap_or(0);
            pages(&new, size) <= all.saturating_sub(pages(&self.guests(host), size))
        })
    }

    fn holds_between_vms(&self, request: &Request<'_>, host: &Host) -> bool {
        let groups = self.groups_of(request).into_iter().filter(|group| group.vm_enforcing);
        let mut together: Vec<&str> = Vec::new();
        for group in groups {
            let others = self.others_of(group, request);
            let places: Vec<&str> = others.iter().filter_map(|vm| Some(&*self.place(vm)?.name)).collect();
            let ours = request.vms.iter().filter(|vm| is_member(group, vm)).count();
            let here = places.iter().filter(|place| **place == host.name).count();
            let most = group.max_per_host.max(1) as usize;
            match group.vm_rule {
                Rule::Positive => together.extend(places),
                Rule::Negative if ours > most || here > 0 && here + ours > most => return false,
                _ => {}
            }
        }
        together.is_empty() || together.contains(&&*host.name)
    }

    fn has_networks(&self, request: &Request<'_>, host: &Host) -> bool {
        let nics = |vms: &[&Vm]| vms.iter().flat_map(|vm| vm.nics.clone()).collect::<Vec<_>>();
        let plain = nics(&request.vms).into_iter().filter(|nic| !nic.passthrough && !nic.network.is_empty());
        if !plain.into_iter().all(|nic| host.networks.contains(&nic.network)) {
            return false;
        }
        if !nics(&request.vms).iter().any(|nic| nic.passthrough) {
            return true;
        }
        // A port without a network serves networks that no other port has.
        let own = |network: &str| host.ports.iter().any(|port| port.network == network);
        let all = nics(&[self.guests(host), request.new_on(host)].concat());
        let needed = all.iter().filter(|nic| nic.passthrough);
        let needed: Vec<&str> =
            needed.map(|nic| if own(&nic.network) { &*nic.network } else { "" }).collect();
        needed.iter().all(|network| {
            let there =
                host.ports.iter().filter(|port| port.network == *network).map(|port| port.vfs as usize);
            needed.iter().filter(|other| *other == network).count() <= there.sum()
        })
    }

    /// Whether a host must be kept free, so that `HeSparesCount` hosts can take the self-hosted engine.
    fn is_spare(&self, request: &Request<'_>, host: &Host) -> bool {
        let spares = self.number("HeSparesCount", 0.0) as usize;
        let engine = self.vms.iter().find(|vm| vm.hosted_engine);
        let Some(engine) = engine.filter(|_| !request.vms.iter().any(|vm| vm.hosted_engine)) else {
            return false;
        };
        let needed = engine.memory_mb as i64 + 65;
        let takes = |host: &&Host| {
            let agent = host.ha_agent.as_ref();
            let good = |agent: &HaAgent| agent.active && agent.score > 0 && !agent.local_maintenance;
            agent.is_some_and(good) && !runs_on(engine, host) && self.schedulable(host) > needed
        };
        let both = |host: &&Host| self.schedulable(host) > needed + sum(&request.new_on(host), whole_memory);
        let able: Vec<&Host> = self.hosts.iter().filter(takes).collect();
        spares > 0 && able.len() <= spares && takes(&host) && !both(&host)
    }

    fn same_tsc(&self, vm: &Vm, host: &Host) -> bool {
        let source = self.hosts.iter().find(|source| runs_on(vm, source)).and_then(|source| source.tsc_hz);
        let Some(source) = source.filter(|_| vm.use_tsc && !host.tsc_scaling) else { return true };
        host.tsc_hz.is_some_and(|hz| hz.abs_diff(source) <= source * 250 / 1_000_000)
    }

    fn is_not_older(&self, vm: &Vm, host: &Host) -> bool {
        let last = vm.host.as_ref().or(vm.last_host.as_ref()).and_then(|name| self.host(name));
        let Some(last) = last.and_then(|host| system(&host.os)) else { return true };
        system(&host.os).is_some_and(|(family, version)| family == last.0 && version >= last.1)
    }
}

/// Family and major version of `FAMILY - MAJOR.MINOR - RELEASE`.
fn system(os: &str) -> Option<(&str, u32)> {
    let mut parts = os.split('-').map(str::trim);
    let (family, version) = (parts.next()?, parts.next()?);
    Some((family, version.split('.').next()?.parse().ok()?))
}

fn has_host(group: &AffinityGroup, host: &Host) -> bool {
    group.hosts.contains(&host.name) || host.labels.iter().any(|label| group.host_labels.contains(label))
}

fn topology_suits(vm: &Vm, host: &Host) -> bool {
    match vm.pinning {
        Pinning::ResizeAndPinNuma => {
            host.cores / host.sockets > 1 && host.sockets as usize == host.numa.len()
        }
        Pinning::Dedicated => vm.threads <= host.threads / host.cores,
        _ => true,
    }
}
