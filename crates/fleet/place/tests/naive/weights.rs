//! The score of each remaining host by each weight; lower is better.

use super::*;
use std::collections::BTreeSet;

/// The weights of the model.
pub const NAMES: [&str; 14] = [
    "OptimalForCpuEvenDistribution",
    "OptimalForMemoryEvenDistribution",
    "OptimalForEvenGuestDistribution",
    "OptimalForCpuPowerSaving",
    "OptimalForMemoryPowerSaving",
    "PreferredHosts",
    "HA",
    "OptimalForHaReservation",
    "VmAffinityGroups",
    "VmToHostsAffinityGroups",
    "CPU for high performance VMs",
    "CPU and NUMA pinning compatibility",
    "Fit VM to single host NUMA node",
    "Packing",
];

/// The worst score of most weights.
const WORST: i64 = 1000;

/// Figures stretched to 1 to 1000.
fn stretched(figures: Vec<i64>) -> Vec<i64> {
    let (least, most) = (*figures.iter().min().unwrap(), *figures.iter().max().unwrap());
    if least == most {
        return vec![1; figures.len()];
    }
    let step = |figure: i64| rounded(i128::from(figure - least) * 999, (most - least).into());
    figures.into_iter().map(|figure| 1 + step(figure)).collect()
}

/// For each host, 1 plus the number of better hosts.
fn ranks<T: Ord>(standings: &[T]) -> Vec<i64> {
    let better = |one: &T| standings.iter().filter(|other| *other < one).count() as i64;
    standings.iter().map(|one| 1 + better(one)).collect()
}

impl World {
    pub fn weigh(&self, weight: &str, request: &Request<'_>, hosts: &[&Host]) -> Vec<i64> {
        let each =
            |figure: &dyn Fn(&Host) -> i64| hosts.iter().map(|host| figure(host)).collect::<Vec<i64>>();
        match weight {
            "OptimalForCpuEvenDistribution" => {
                stretched(each(&|host| self.load_with(request, host, self.penalty(request, host))))
            }
            "OptimalForMemoryEvenDistribution" => self.memory_even(request, hosts),
            "OptimalForEvenGuestDistribution" => {
                let grace = self.number("SpmVmGrace", 5.0) as i64;
                each(&|host| {
                    let vms = self.running(host).len() + self.coming(host).len();
                    vms as i64 + if host.spm { grace } else { 0 }
                })
            }
            "OptimalForCpuPowerSaving" => self.cpu_power(request, hosts),
            "OptimalForMemoryPowerSaving" => self.memory_power(request, hosts),
            "PreferredHosts" => each(&|host| {
                let starting = request.vms.iter().filter(|vm| !vm.runs() && !vm.hosts.is_empty());
                starting.filter(|vm| !vm.hosts.contains(&host.name)).count() as i64 * 10_000
            }),
            "HA" if request.vms.iter().any(|vm| vm.hosted_engine) => each(&|host| {
                let score = host.ha_agent.as_ref().map_or(0, |agent| agent.score.min(3400));
                WORST - rounded(i128::from(score) * 1000, 3400)
            }),
            "OptimalForHaReservation" => self.ha_reservation(request, hosts),
            "VmAffinityGroups" => self.between_vms(request, hosts),
            "VmToHostsAffinityGroups" => self.to_hosts(request, hosts),
            "CPU for high performance VMs" => self.high_performance(request, hosts),
            "CPU and NUMA pinning compatibility" => self.pinning(request, hosts),
            "Fit VM to single host NUMA node" => each(&|host| {
                let fits = |vm: &Vm| {
                    let holds = |node: &NumaNode| vm.memory_mb <= node.memory_mb && vm.vcpus() <= node.cpus;
                    host.numa.is_empty() || host.numa.iter().any(holds)
                };
                let without = request.vms.iter().filter(|vm| vm.numa.is_empty());
                without.map(|vm| if fits(vm) { 1 } else { WORST }).sum()
            }),
            "Packing" => each(&|host| self.packing(request, host)),
            _ => vec![0; hosts.len()],
        }
    }

    /// Load in percent of a host's shared CPUs with the VMs, times a penalty, then rounded.
    fn load_with(&self, request: &Request<'_>, host: &Host, penalty: i64) -> i64 {
        let new = request.new_on(host);
        let load = self.cpu_load(host) + sum(&self.coming(host), cpu_load) + sum(&new, cpu_load);
        rounded((penalty * load).into(), self.shared_cpus(host, &new).into())
    }

    /// 1000 if there are too many virtual CPUs per CPU.
    fn penalty(&self, request: &Request<'_>, host: &Host) -> i64 {
        let new = request.new_on(host);
        let milli = sum(&self.guests(host), milli_vcpus) + sum(&new, milli_vcpus);
        if self.is_full(milli, self.shared_cpus(host, &new)) { 1000 } else { 1 }
    }

    /// Whether so many thousandths of virtual CPUs are too many for a host's CPUs.
    pub fn is_full(&self, milli: i64, cpus: i64) -> bool {
        let limit = self.millionths("VCpuToPhysicalCpuRatio", 0);
        limit > 0 && i128::from(milli) * 1000 >= limit * i128::from(cpus)
    }

    fn memory_even(&self, request: &Request<'_>, hosts: &[&Host]) -> Vec<i64> {
        let most = hosts.iter().map(|host| self.schedulable(host)).max().unwrap().max(2);
        let left = |host: &Host| self.schedulable(host) - sum(&request.new_on(host), whole_memory);
        hosts
            .iter()
            .map(|host| WORST - rounded(i128::from(left(host) - 1) * 999, (most - 1).into()))
            .collect()
    }

    /// Hosts above `HighUtilization` are the worst; of the others the more loaded ones are better.
    fn cpu_power(&self, request: &Request<'_>, hosts: &[&Host]) -> Vec<i64> {
        let high = self.number("HighUtilization", f64::MAX);
        let over = |host: &Host| {
            let load = self.cpu_load(host) + sum(&self.coming(host), cpu_load);
            load as f64 / self.shared_cpus(host, &[]) as f64 > high
        };
        let good: Vec<&Host> = hosts.iter().copied().filter(|host| !over(host)).collect();
        if good.is_empty() {
            return vec![WORST; hosts.len()];
        }
        let figures = stretched(good.iter().map(|host| -self.load_with(request, host, 1)).collect());
        let mut figures = figures.into_iter();
        hosts.iter().map(|host| if over(host) { WORST } else { figures.next().unwrap() }).collect()
    }

    /// Less memory left is better; hosts with less than `MaxFreeMemoryForOverUtilized` are worse than any.
    fn memory_power(&self, request: &Request<'_>, hosts: &[&Host]) -> Vec<i64> {
        let (low, high) = (
            self.millionths("MaxFreeMemoryForOverUtilized", 0) / 1_000_000,
            self.millionths("MinFreeMemoryForUnderUtilized", 1 << 60) / 1_000_000,
        );
        let most = i128::from(hosts.iter().map(|host| self.schedulable(host)).max().unwrap().max(1));
        let figure = |host: &&Host| {
            let left = i128::from(self.schedulable(host) - sum(&request.new_on(host), whole_memory));
            let tenths = if left < low { (most * 11).min((high + low - left) * 10) } else { left * 10 };
            (tenths * 999 / (most * 11)) as i64 + 1
        };
        hosts.iter().map(figure).collect()
    }

    fn ha_reservation(&self, request: &Request<'_>, hosts: &[&Host]) -> Vec<i64> {
        let counts: Vec<usize> =
            hosts.iter().map(|host| self.guests(host).iter().filter(|vm| vm.ha).count()).collect();
        let most = *counts.iter().max().unwrap();
        if !self.cluster.ha_reservation || most == 0 || !request.vms.iter().any(|vm| vm.ha) {
            return vec![0; hosts.len()];
        }
        let part = |count: usize| rounded(count as i128 * 100, most as i128) as u64;
        let scale = self.number("ScaleDown", 1.0) as u64;
        counts.into_iter().map(|count| part(count).div_ceil(scale) as i64).collect()
    }

    /// First the groups that a host violates, highest priority first; then VMs of positive groups there,
    /// immovable ones first. A VM counts once, whatever its groups.
    fn between_vms(&self, request: &Request<'_>, hosts: &[&Host]) -> Vec<i64> {
        let groups: Vec<&AffinityGroup> =
            self.groups_of(request).into_iter().filter(|group| group.vm_rule != Rule::Disabled).collect();
        if groups.is_empty() {
            return vec![0; hosts.len()];
        }
        let standing = |host: &&Host| {
            let on = |vm: &&&Vm| self.place(vm).is_some_and(|place| place.name == host.name);
            let (mut broken, mut near) = (Vec::new(), BTreeSet::new());
            for group in &groups {
                let others = self.others_of(group, request);
                let here: Vec<&Vm> = others.iter().filter(on).copied().collect();
                if here.is_empty() == (group.vm_rule == Rule::Positive) {
                    broken.push(group.priority);
                }
                if group.vm_rule == Rule::Positive {
                    near.extend(here.into_iter().map(|vm| &vm.name));
                }
            }
            broken.sort_by_key(|priority| -priority);
            let stays = |vm: &&&String| {
                let vm = self.vm(vm).unwrap();
                vm.migration != Migration::Migratable || vm.hosted_engine
            };
            (broken, -(near.iter().filter(stays).count() as i64), -(near.len() as i64))
        };
        ranks(&hosts.iter().map(standing).collect::<Vec<_>>())
    }

    fn to_hosts(&self, request: &Request<'_>, hosts: &[&Host]) -> Vec<i64> {
        let groups: Vec<&AffinityGroup> = self.groups_of(request);
        let soft = |group: &&&AffinityGroup| group.host_rule != Rule::Disabled && !group.host_enforcing;
        if !groups.iter().any(|group| soft(&group)) {
            return vec![0; hosts.len()];
        }
        let broken = |host: &&Host| {
            let has = |group: &AffinityGroup| {
                group.hosts.contains(&host.name)
                    || host.labels.iter().any(|it| group.host_labels.contains(it))
            };
            let breaks = groups.iter().filter(soft).filter(|it| has(it) != (it.host_rule == Rule::Positive));
            let mut broken: Vec<i64> = breaks.map(|group| group.priority).collect();
            broken.sort_by_key(|priority| -priority);
            broken
        };
        ranks(&hosts.iter().map(broken).collect::<Vec<_>>())
    }

    /// For VMs with exclusive CPUs: the sockets, then cores, that they would use. For others: whether the
    /// host has at least the VM's sockets, cores per socket and threads per core.
    fn high_performance(&self, request: &Request<'_>, hosts: &[&Host]) -> Vec<i64> {
        let matters = |vm: &Vm| {
            let pins = !vm.pins.is_empty() || vm.numa.iter().any(|node| !node.host_nodes.is_empty());
            vm.high_performance || vm.cpu_passthrough || is_exclusive(vm) || pins
        };
        let figure = |host: &Host, vm: &Vm| {
            if is_exclusive(vm) {
                let others: Vec<&Vm> =
                    self.guests(host).into_iter().filter(|other| other.name != vm.name).collect();
                let before = Cpus::of(host, &others);
                let after = before.clone().dedicate(vm);
                let (sockets, cores) = after.map_or((1000, 0), |after| after.spread(&before));
                return (1000 * sockets + cores).min(1_000_000);
            }
            let (cores, threads) = (host.cores / host.sockets, host.threads / host.cores);
            let fits = vm.sockets <= host.sockets && vm.cores <= cores && vm.threads <= threads;
            if fits { 1 } else { WORST }
        };
        let all = |host: &&Host| {
            request.vms.iter().filter(|vm| matters(vm)).map(|vm| figure(host, vm)).sum::<i64>()
        };
        stretched(hosts.iter().map(all).collect())
    }

    /// Whether pinned CPUs and pinned NUMA nodes agree.
    fn pinning(&self, request: &Request<'_>, hosts: &[&Host]) -> Vec<i64> {
        let strict = |vm: &&Vm| vm.numa.iter().all(|node| node.mode != NumaMode::Preferred);
        let pins = |vm: &&Vm| vm.numa.iter().any(|node| !node.host_nodes.is_empty());
        if !request.vms.iter().any(|vm| strict(vm) && pins(vm)) {
            return vec![0; hosts.len()];
        }
        let figure = |host: &&Host| {
            let new: Vec<&Vm> = request.new_on(host).into_iter().filter(strict).collect();
            let agrees = nodes_fit(&self.numa_free(host, request), &new, Some(host));
            if !host.numa.is_empty() && agrees { 1 } else { WORST }
        };
        hosts.iter().map(figure).collect()
    }

    /// The remaining CPUs and memory, and the part of one that is wasted because the other is less.
    fn packing(&self, request: &Request<'_>, host: &Host) -> i64 {
        let (ratio, new) = (self.millionths("VCpuAllocationRatio", 1), request.new_on(host));
        let promised = i128::from(self.promised_milli(&[self.guests(host), new.clone()].concat()));
        let own = i128::from(self.exclusive(host, &new).unwrap());
        let cpus = ratio * i128::from(self.cpus(host) * 1000 - i64::from(host.reserved_milli_cpus));
        let all = cpus.max(1_000_000);
        let cpu = (cpus - promised * 1_000_000 - own * 1000 * ratio).max(0);
        let memory = i128::from(self.schedulable(host) - sum(&new, committed_memory)).max(0);
        let whole = i128::from(host.memory_mb);
        let left = cpu * whole + memory * all + (cpu * whole - memory * all).abs();
        rounded(left * 100_000, all * whole)
    }
}
