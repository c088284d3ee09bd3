//! What a VM takes of a host.

use crate::object::{Kind, Vm, VmStatus};

/// Load of a virtual CPU that was never measured, in percent (oVirt's `VcpuConsumptionPercentage`).
pub const VCPU_LOAD: i32 = 10;

/// What one VM or several take of a host. Sums of bounded figures fit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// VMs.
    pub count: i32,
    /// Highly available VMs.
    pub ha: i32,
    /// What it takes of CPUs that are shared, in thousandths of one.
    pub milli: i32,
    /// Virtual CPUs of the largest VM that shares the host's.
    pub largest: i32,
    /// CPUs that are for the VM alone.
    pub exclusive: i32,
    /// Load in percent of one CPU, of VMs that share the host's.
    pub load: i32,
    /// Memory and what it costs from the start, less memory in huge pages.
    pub memory: i32,
    /// The same with all that it may cost later.
    pub committed: i32,
    /// All memory, huge pages and costs included.
    pub whole: i32,
}

impl Need {
    /// What `vm` takes. `vcpus` and memory are bounded by its check.
    pub fn of(vm: &Vm) -> Need {
        let cpus = vm.vcpus() as i32;
        let exclusive = match vm.pinning {
            crate::object::Pinning::IsolateThreads => (vm.sockets * vm.cores) as i32,
            pinning if pinning.is_exclusive() => cpus,
            _ => 0,
        };
        let shared = if exclusive > 0 { 0 } else { cpus };
        let milli = match vm.milli_cpus {
            Some(milli) if exclusive == 0 => milli as i32,
            _ => shared * 1000,
        };
        let memory = vm.memory_mb as i32;
        // oVirt's VmOverheadCalculator: page tables and 64 MB from the start, 8 MB a virtual CPU later.
        let (fixed, later) = match vm.kind {
            Kind::Vm => (memory / 512 + 64, 8 * cpus),
            Kind::Function => (0, 0),
        };
        let plain = if vm.huge_page_kb.is_some() { 0 } else { memory };
        let percent = vm.cpu_percent.map_or(VCPU_LOAD, |percent| percent as i32);
        Need {
            count: 1,
            ha: vm.ha.into(),
            milli,
            largest: shared,
            exclusive,
            load: (i64::from(milli) * i64::from(percent) / 1000) as i32,
            memory: plain + fixed,
            committed: plain + fixed + later,
            whole: memory + fixed + later,
        }
    }

    /// What a paused VM takes that stays where it is: its memory is there already.
    pub fn is_paused(vm: &Vm) -> bool {
        vm.status == VmStatus::Paused
    }

    /// Both.
    pub fn and(self, other: Need) -> Need {
        Need {
            count: self.count + other.count,
            ha: self.ha + other.ha,
            milli: self.milli.saturating_add(other.milli),
            largest: self.largest.max(other.largest),
            exclusive: self.exclusive.saturating_add(other.exclusive),
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
    fn overhead_is_ovirts() {
        let vm = Vm { sockets: 2, cores: 2, memory_mb: 4096, ..Vm::default() };
        let need = Need::of(&vm);
        assert_eq!((need.memory, need.committed), (4096 + 8 + 64, 4096 + 8 + 64 + 32));
        assert_eq!((need.milli, need.load, need.exclusive), (4000, 40, 0));
        let function = Need::of(&Vm { kind: Kind::Function, ..vm.clone() });
        assert_eq!(function.committed, 4096);
        let pinned = Need::of(&Vm { pinning: Pinning::Dedicated, huge_page_kb: Some(2048), ..vm });
        assert_eq!((pinned.milli, pinned.load, pinned.exclusive, pinned.memory), (0, 0, 4, 72));
    }
}
