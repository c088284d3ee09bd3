//! Resource needs of VMs.

use crate::object::{Cluster, Vm, VmKind};

/// Load of a virtual CPU that was never measured, in percent (oVirt's `VcpuConsumptionPercentage`).
pub const VCPU_LOAD: i32 = 10;

/// Resources of one or more VMs on a host. The values are bounded, so that sums don't overflow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// VMs.
    pub count: i32,
    /// Highly available VMs.
    pub ha: i32,
    /// Share of CPUs that are not exclusive, in thousandths of a virtual CPU.
    pub milli: i32,
    /// Share of CPUs that are not exclusive, in thousandths of a virtual core.
    pub milli_cores: i32,
    /// Virtual cores of the largest VM that shares the host's CPUs.
    pub largest: i32,
    /// VMs with pinned CPUs or huge pages, for which sums are not enough.
    pub special: i32,
    /// Load in percent of one CPU, of VMs that share the host's.
    pub load: i32,
    /// Memory and its initial overhead, without memory in huge pages.
    pub memory: i32,
    /// Memory and its largest possible overhead, without memory in huge pages.
    pub committed: i32,
    /// All memory, huge pages and costs included.
    pub whole: i32,
}

impl Need {
    /// The needs of `vm`. `Vm::check` bounds its vcpus and memory.
    pub fn of(vm: &Vm) -> Need {
        let cpus = vm.vcpus() as i32;
        let exclusive = vm.pinning.is_exclusive();
        let (shared, cores) = if exclusive { (0, 0) } else { (cpus, (vm.sockets * vm.cores) as i32) };
        let part = vm.milli_cpus.filter(|_| !exclusive).map(|milli| milli as i32);
        let milli = part.unwrap_or(shared * 1000);
        let memory = vm.memory_mb as i32;
        // oVirt's VmOverheadCalculator: page tables and 64 MB from the start, 8 MB a virtual CPU later.
        let (fixed, later) = match vm.kind {
            VmKind::Vm => (memory / 512 + 64, 8 * cpus),
            VmKind::Function => (0, 0),
        };
        let plain = if vm.huge_page_kb.is_some() { 0 } else { memory };
        let percent = vm.cpu_percent.map_or(VCPU_LOAD, |percent| percent as i32);
        Need {
            count: 1,
            ha: vm.ha.into(),
            milli,
            milli_cores: part.unwrap_or(cores * 1000),
            largest: cores,
            special: (exclusive || !vm.pins.is_empty() || vm.huge_page_kb.is_some()).into(),
            load: (i64::from(milli) * i64::from(percent) / 1000) as i32,
            memory: plain + fixed,
            committed: plain + fixed + later,
            whole: memory + fixed + later,
        }
    }

    /// Share of CPUs that are not exclusive, in thousandths, in the unit of `cluster`: cores, or threads.
    pub fn cpus(&self, cluster: &Cluster) -> i32 {
        if cluster.threads_as_cores { self.milli } else { self.milli_cores }
    }

    /// The sum of two needs.
    pub fn and(self, other: Need) -> Need {
        Need {
            count: self.count + other.count,
            ha: self.ha + other.ha,
            milli: self.milli.saturating_add(other.milli),
            largest: self.largest.max(other.largest),
            milli_cores: self.milli_cores.saturating_add(other.milli_cores),
            special: self.special + other.special,
            load: self.load.saturating_add(other.load),
            memory: self.memory.saturating_add(other.memory),
            committed: self.committed.saturating_add(other.committed),
            whole: self.whole.saturating_add(other.whole),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Pinning;

    #[test]
    fn overhead_equals_ovirts() {
        let vm = Vm { sockets: 2, cores: 2, memory_mb: 4096, ..Vm::default() };
        let need = Need::of(&vm);
        assert_eq!((need.memory, need.committed), (4096 + 8 + 64, 4096 + 8 + 64 + 32));
        assert_eq!((need.milli, need.load, need.special), (4000, 40, 0));
        let function = Need::of(&Vm { kind: VmKind::Function, ..vm.clone() });
        assert_eq!(function.committed, 4096);
        let pinned = Need::of(&Vm { pinning: Pinning::Dedicated, huge_page_kb: Some(2048), ..vm });
        assert_eq!((pinned.milli, pinned.load, pinned.special, pinned.memory), (0, 0, 1, 72));
    }
}
