//! Which of a host's CPUs VMs are pinned to, by socket and core.

use crate::object::{Host, Pinning, Vm};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// The pinnings of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pin {
    None,
    /// Shared by VMs.
    Shared,
    /// One VM alone.
    Exclusive,
}

/// A host's CPUs. CPU n is a thread of core n mod the number of cores, as Linux numbers them on most
/// machines; a socket has consecutive cores.
#[derive(Clone, Debug)]
pub struct CpuMap {
    sockets: usize,
    cores: usize,
    pins: Vec<Pin>,
}

/// The order in which VMs get exclusive CPUs: larger virtual sockets first.
pub(crate) fn order(vm: &Vm) -> (Reverse<u32>, &str) {
    (Reverse(vm.cores * vm.threads), &vm.name)
}

impl CpuMap {
    /// The CPUs of `host` after pinning `vms`: CPUs that VMs name first, then exclusive ones. The result
    /// depends only on the set of VMs.
    pub fn new<'v>(host: &Host, vms: impl Iterator<Item = &'v Vm>) -> CpuMap {
        let pins = vec![Pin::None; host.threads as usize];
        let mut map = CpuMap { sockets: host.sockets as usize, cores: host.cores as usize, pins };
        let (mut own, shared): (Vec<&Vm>, Vec<&Vm>) = vms.partition(|vm| vm.pinning.is_exclusive());
        shared.into_iter().for_each(|vm| map.share(&vm.pins));
        own.sort_by(|a, b| order(a).cmp(&order(b)));
        for vm in own {
            if map.dedicate(vm).is_none() {
                map.force(vm);
            }
        }
        map
    }

    /// Whether the CPU exists.
    pub fn has(&self, cpu: u32) -> bool {
        (cpu as usize) < self.pins.len()
    }

    /// Whether a CPU is one VM's own.
    pub fn is_exclusive(&self, cpu: u32) -> bool {
        self.pins.get(cpu as usize) == Some(&Pin::Exclusive)
    }

    /// Whether any CPU is one VM's own.
    pub fn any_exclusive(&self) -> bool {
        self.pins.contains(&Pin::Exclusive)
    }

    /// Pins VMs that share CPUs.
    pub fn share(&mut self, cpus: &[u32]) {
        for cpu in cpus {
            if let Some(pin @ Pin::None) = self.pins.get_mut(*cpu as usize) {
                *pin = Pin::Shared;
            }
        }
    }

    /// Assigns exclusive CPUs to a VM: each virtual socket on one socket, those with the most free CPUs
    /// first. A virtual core uses threads of one core or, with isolated threads, one core per thread. None if
    /// they don't fit.
    pub fn dedicate(&mut self, vm: &Vm) -> Option<Vec<usize>> {
        let mut sockets: Vec<(usize, Vec<Vec<usize>>)> =
            (0..self.sockets).map(|socket| self.free_cores(socket)).collect();
        sockets.sort_by_key(|(free, _)| Reverse(*free));
        let (mut left, mut chosen) = (vm.sockets as usize, Vec::new());
        for (_, cores) in sockets {
            let virtual_cores = self.virtual_cores(vm, &cores);
            let fit = left.min(virtual_cores.len() / vm.cores as usize);
            chosen.extend(virtual_cores.into_iter().take(fit * vm.cores as usize).flatten());
            left -= fit;
        }
        if left > 0 {
            return None;
        }
        chosen.iter().for_each(|cpu| self.pins[*cpu] = Pin::Exclusive);
        Some(chosen)
    }

    /// The free CPUs of a socket, counted and by core.
    fn free_cores(&self, socket: usize) -> (usize, Vec<Vec<usize>>) {
        let first = |socket: usize| (socket * self.cores).div_ceil(self.sockets);
        let cores = first(socket)..first(socket + 1);
        let free = |core| self.threads(core).filter(|cpu| self.pins[*cpu] == Pin::None).collect();
        let cores: Vec<Vec<usize>> = cores.map(free).collect();
        (cores.iter().map(Vec::len).sum(), cores)
    }

    /// The virtual cores of `vm` that fit on free CPUs.
    fn virtual_cores(&self, vm: &Vm, free: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let threads = vm.threads as usize;
        if vm.pinning != Pinning::IsolateThreads {
            return free.iter().flat_map(|core| core.chunks_exact(threads)).map(<[_]>::to_vec).collect();
        }
        let whole = |core: &&Vec<usize>| {
            core.first().is_some_and(|cpu| core.len() == self.threads(cpu % self.cores).count())
        };
        let whole: Vec<&Vec<usize>> = free.iter().filter(whole).collect();
        whole.chunks_exact(threads).map(|cores| cores.iter().copied().flatten().copied().collect()).collect()
    }

    /// Pins a running VM although it does not fit.
    fn force(&mut self, vm: &Vm) {
        let threads =
            if vm.pinning == Pinning::IsolateThreads { self.pins.len().div_ceil(self.cores) } else { 1 };
        let others = self.pins.iter_mut().filter(|pin| **pin != Pin::Exclusive);
        others.take(vm.vcpus() as usize * threads).for_each(|pin| *pin = Pin::Exclusive);
    }

    fn threads(&self, core: usize) -> impl Iterator<Item = usize> + use<> {
        (core..self.pins.len()).step_by(self.cores)
    }

    /// CPUs unavailable to VMs without exclusive CPUs: threads, or cores of which another thread is used.
    pub fn taken(&self, count_threads: bool) -> i32 {
        if count_threads {
            return self.pins.iter().filter(|pin| **pin == Pin::Exclusive).count() as i32;
        }
        let taken = |core: &usize| self.threads(*core).all(|cpu| self.pins[cpu] == Pin::Exclusive);
        (0..self.cores).filter(taken).count() as i32
    }

    /// How many sockets and cores some CPUs are on.
    pub fn spread(&self, cpus: &[usize]) -> (usize, usize) {
        let cores: BTreeSet<usize> = cpus.iter().map(|cpu| cpu % self.cores).collect();
        let sockets: BTreeSet<usize> = cores.iter().map(|core| core * self.sockets / self.cores).collect();
        (sockets.len(), cores.len())
    }
}
