//! The VMs that each balancer would move, best first, with their possible destinations.

use super::*;
use std::cmp::Reverse;

/// A VM, its host, its possible destinations.
pub type Move = (String, String, Vec<String>);

impl World {
    /// Hosts that are up and not part of a migration, by name.
    fn quiet_hosts(&self) -> Vec<&Host> {
        let leaves = |vm: &&Vm| {
            vm.status == VmStatus::Migrating
                || self.pending.get(&vm.name) != vm.host.as_ref() && self.pending.contains_key(&vm.name)
        };
        let quiet = |host: &&Host| {
            host.status == HostStatus::Up
                && self.coming(host).is_empty()
                && !self.running(host).iter().any(leaves)
        };
        let mut hosts: Vec<&Host> = self.hosts.iter().filter(quiet).collect();
        hosts.sort_by_key(|host| &host.name);
        hosts
    }

    fn load_percent(&self, host: &Host) -> f64 {
        self.cpu_load(host) as f64 / self.shared_cpus(host, &[]) as f64
    }

    fn lasts(&self, since: u64) -> bool {
        self.now >= since + self.number("CpuOverCommitDurationMinutes", 2.0) as u64 * 60_000
    }

    /// Whether a host's CPUs are loaded by `high` percent or more for long, or have too many virtual CPUs.
    fn is_over(&self, host: &Host, high: f64) -> bool {
        let vms = self.running(host);
        let long = self.over_since(host).is_some_and(|since| self.lasts(since));
        long && !vms.is_empty() && self.load_percent(host).ceil() >= high
            || self.is_full(sum(&vms, milli_vcpus), self.shared_cpus(host, &[]))
    }

    fn is_under(&self, host: &Host, low: f64) -> bool {
        self.over_since(host).is_none_or(|since| self.lasts(since)) && self.load_percent(host).ceil() < low
    }

    /// For each movable VM of the sources, the destinations that it would not overload in CPUs or memory.
    fn moves(&self, sources: &[&Host], destinations: &[&Host], high: f64, memory: f64) -> Vec<Move> {
        let mut moves = Vec::new();
        for from in sources {
            let mut vms = self.running(from);
            vms.retain(|vm| vm.migration == Migration::Migratable && vm.status == VmStatus::Up);
            vms.sort_by_key(|vm| (cpu_load(vm), &vm.name));
            for vm in vms {
                let bears = |host: &&&Host| {
                    let Some(own) = self.exclusive(host, &[vm]) else { return false };
                    let load =
                        (self.cpu_load(host) + cpu_load(vm)) as f64 / (self.cpus(host) - own).max(1) as f64;
                    let left = (self.schedulable(host) - committed_memory(vm)) as f64;
                    host.name != from.name && load <= high && left > memory
                };
                let to: Vec<String> =
                    destinations.iter().filter(bears).map(|host| host.name.clone()).collect();
                if !to.is_empty() {
                    moves.push((vm.name.clone(), from.name.clone(), to));
                }
            }
        }
        moves
    }

    pub fn balance(&self, balancer: &str) -> Vec<Move> {
        let hosts = self.quiet_hosts();
        match balancer {
            _ if hosts.len() < 2 => Vec::new(),
            "OptimalForEvenDistribution" => self.even_distribution(&hosts),
            "OptimalForEvenGuestDistribution" => self.even_guests(&hosts),
            "OptimalForPowerSaving" => self.power_saving(&hosts),
            _ => Vec::new(),
        }
    }

    fn hottest<'h>(&self, mut hosts: Vec<&'h Host>) -> Vec<&'h Host> {
        hosts.sort_by(|a, b| self.load_percent(b).total_cmp(&self.load_percent(a)));
        hosts
    }

    /// Well below `high`: 80% of it, or 10 percentage points less, whichever is lower.
    fn target(high: f64) -> f64 {
        (0.8 * high).floor().min(high - 10.0)
    }

    fn with_memory<'h>(&self, hosts: &[&'h Host], holds: impl Fn(f64, usize) -> bool) -> Vec<&'h Host> {
        let of = |host: &&&Host| holds(self.schedulable(host) as f64, self.running(host).len());
        hosts.iter().filter(of).copied().collect()
    }

    /// Moves VMs off hosts above `HighUtilization` to hosts well below it, then off hosts short of memory to hosts
    /// with enough.
    fn even_distribution(&self, hosts: &[&Host]) -> Vec<Move> {
        let high = self.number("HighUtilization", 75.0);
        let scarce = self.number("MaxFreeMemoryForOverUtilized", 0.0);
        let enough = self.number("MinFreeMemoryForUnderUtilized", 0.0);
        let hot: Vec<&Host> = hosts.iter().copied().filter(|host| self.is_over(host, high)).collect();
        let cool: Vec<&Host> =
            hosts.iter().copied().filter(|host| self.is_under(host, World::target(high))).collect();
        let short = self.with_memory(hosts, |left, vms| left < scarce && vms > 1);
        let rich = self.with_memory(hosts, |left, _| left > enough);
        let mut moves = self.moves(&self.hottest(hot), &cool, high, scarce);
        moves.extend(self.moves(&short, &rich, high, scarce));
        moves
    }

    fn even_guests(&self, hosts: &[&Host]) -> Vec<Move> {
        let grace = self.number("SpmVmGrace", 5.0) as usize;
        let count = |host: &Host| self.running(host).len() + if host.spm { grace } else { 0 };
        let most = hosts.iter().map(|host| count(host)).max().unwrap();
        if most < self.number("HighVmCount", 10.0) as usize {
            return Vec::new();
        }
        let threshold = self.number("MigrationThreshold", 5.0) as usize;
        let full: Vec<&Host> = hosts.iter().copied().filter(|host| count(host) == most).collect();
        let others: Vec<&Host> =
            hosts.iter().copied().filter(|host| most - count(host) >= threshold).collect();
        self.moves(&full, &others, self.number("HighUtilization", 75.0), 0.0)
    }

    /// Moves VMs off hosts above the target; then off hosts below `LowUtilization`, the emptiest first, to fuller
    /// ones; then off hosts short of memory; then off hosts with much free memory, again to fuller ones.
    fn power_saving(&self, hosts: &[&Host]) -> Vec<Move> {
        let high = self.number("HighUtilization", 75.0);
        let target = World::target(high);
        let scarce = self.number("MaxFreeMemoryForOverUtilized", 0.0);
        let calm: Vec<&Host> = hosts.iter().copied().filter(|host| !self.is_over(host, high)).collect();
        let hot: Vec<&Host> = hosts.iter().copied().filter(|host| self.is_over(host, target)).collect();
        let mut moves = self.moves(&self.hottest(hot), &calm, target, scarce);

        let used = |host: &Host| !self.running(host).is_empty();
        let fullness = |host: &Host| (used(host), self.load_percent(host).to_bits(), host.name.clone());
        let low = self.number("LowUtilization", 20.0);
        let idle = hosts.iter().copied().filter(|host| used(host) && self.is_under(host, low));
        let mut idle = self.hottest(idle.collect());
        idle.reverse();
        for from in idle {
            let fuller: Vec<&Host> =
                calm.iter().copied().filter(|host| fullness(host) > fullness(from)).collect();
            moves.extend(self.moves(&[from], &fuller, target, scarce));
        }

        let short = self.with_memory(hosts, |left, vms| left < scarce && vms > 1);
        let rich = self.with_memory(hosts, |left, _| left > scarce);
        moves.extend(self.moves(&short, &rich, high, scarce));

        let much = self.number("MinFreeMemoryForUnderUtilized", f64::MAX);
        let fullness = |host: &Host| (used(host), Reverse(self.schedulable(host)), host.name.clone());
        let mut idle = self.with_memory(hosts, |left, vms| left > much && vms > 0);
        idle.sort_by_key(|host| fullness(host));
        for from in idle {
            let fuller: Vec<&Host> =
                rich.iter().copied().filter(|host| fullness(host) > fullness(from)).collect();
            moves.extend(self.moves(&[from], &fuller, high, scarce));
        }
        moves
    }

    /// The host that power management would switch, and its new status. It only switches hosts that it took
    /// out of use itself.
    pub fn power(&self) -> Option<(String, HostStatus)> {
        if self.properties.get("EnableAutomaticHostPowerManagement").map(String::as_str) != Some("true") {
            return None;
        }
        let mut hosts: Vec<&Host> = self.hosts.iter().collect();
        hosts.sort_by_key(|host| &host.name);
        let ours =
            |host: &&Host, status| host.status == status && host.power_managed && host.policy_controlled;
        let resting: Vec<&Host> =
            hosts.iter().copied().filter(|it| ours(it, HostStatus::Maintenance)).collect();
        let down = hosts.iter().copied().find(|host| ours(host, HostStatus::Down));
        let empty = |host: &&Host| host.status == HostStatus::Up && self.guests(host).is_empty();
        let empty: Vec<&Host> = hosts.iter().copied().filter(empty).collect();
        let reserve = self.number("HostsInReserve", 0.0) as usize;
        let (host, status) = if empty.len() < reserve {
            (resting.first().copied().or(down), HostStatus::Up)
        } else if resting.len() > 1 || empty.len() == reserve {
            (resting.first().copied(), HostStatus::Down)
        } else {
            let spare = empty.into_iter().find(|host| host.power_managed && !host.spm);
            (spare, HostStatus::Maintenance)
        };
        Some((host?.name.clone(), status))
    }
}
