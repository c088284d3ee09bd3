//! A host's CPUs as sockets, cores and threads, and the VMs that use them.

use super::is_exclusive;
use ringway_place::object::{Host, Pinning, Vm};
use std::cmp::Reverse;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    Shared,
    Own,
}

#[derive(Clone, Debug)]
struct Thread {
    number: u32,
    used: Use,
}

type Core = Vec<Thread>;

#[derive(Clone, Debug)]
pub struct Cpus {
    sockets: Vec<Vec<Core>>,
}

/// The core of a CPU: Linux numbers the first threads of all cores, then the second.
fn core_of(host: &Host, cpu: u32) -> u32 {
    cpu % host.cores
}

/// The NUMA node of a CPU: from the nodes' lists; otherwise nodes have consecutive cores.
pub fn node_of(host: &Host, cpu: u32) -> Option<u32> {
    if host.numa.iter().any(|node| !node.cpu_list.is_empty()) {
        return host.numa.iter().find(|node| node.cpu_list.contains(&cpu)).map(|node| node.index);
    }
    let threads = host.threads / host.cores;
    let cores = host.numa.iter().flat_map(|node| vec![node.index; (node.cpus / threads) as usize]);
    cores.collect::<Vec<u32>>().get(core_of(host, cpu) as usize).copied()
}

impl Cpus {
    /// A host's CPUs with its VMs: pinned ones first, then those with exclusive CPUs, larger virtual sockets
    /// first, then by name. A running VM that does not fit gets the first CPUs.
    pub fn of(host: &Host, vms: &[&Vm]) -> Cpus {
        let per_socket = host.cores / host.sockets;
        let threads = |core: u32| {
            let mine = (0..host.threads).filter(|cpu| core_of(host, *cpu) == core);
            mine.map(|number| Thread { number, used: Use::Free }).collect::<Core>()
        };
        let socket = |socket: u32| (socket * per_socket..(socket + 1) * per_socket).map(threads).collect();
        let mut cpus = Cpus { sockets: (0..host.sockets).map(socket).collect() };
        for vm in vms.iter().filter(|vm| !is_exclusive(vm)) {
            cpus.share(vm);
        }
        for vm in in_order(vms) {
            if let Some(with) = cpus.clone().dedicate(vm) {
                cpus = with;
                continue;
            }
            let whole = if vm.pinning == Pinning::IsolateThreads { host.threads / host.cores } else { 1 };
            let mut numbered: Vec<&mut Thread> = cpus.sockets.iter_mut().flatten().flatten().collect();
            numbered.sort_by_key(|thread| thread.number);
            let left = numbered.into_iter().filter(|thread| thread.used != Use::Own);
            left.take((vm.vcpus() * whole) as usize).for_each(|thread| thread.used = Use::Own);
        }
        cpus
    }

    /// The CPUs after more VMs are placed; `None` if they can't be pinned here.
    pub fn with(mut self, new: &[&Vm]) -> Option<Cpus> {
        for vm in new.iter().filter(|vm| !is_exclusive(vm)) {
            for cpu in &vm.pins {
                let used = self.threads().find(|thread| thread.number == *cpu)?.used;
                if used == Use::Own {
                    return None;
                }
            }
            self.share(vm);
        }
        for vm in in_order(new) {
            self = self.dedicate(vm)?;
        }
        let whole_host = new.iter().any(|vm| vm.pinning == Pinning::ResizeAndPinNuma);
        (!whole_host || self.own_threads() == 0).then_some(self)
    }

    fn threads(&self) -> impl Iterator<Item = &Thread> {
        self.sockets.iter().flatten().flatten()
    }

    fn share(&mut self, vm: &Vm) {
        for thread in self.sockets.iter_mut().flatten().flatten() {
            if vm.pins.contains(&thread.number) && thread.used == Use::Free {
                thread.used = Use::Shared;
            }
        }
    }

    /// Each virtual socket is placed on one socket; sockets with the most free CPUs are filled first.
    pub fn dedicate(mut self, vm: &Vm) -> Option<Cpus> {
        let free =
            |socket: &Vec<Core>| socket.iter().flatten().filter(|thread| thread.used == Use::Free).count();
        let mut order: Vec<usize> = (0..self.sockets.len()).collect();
        order.sort_by_key(|at| Reverse(free(&self.sockets[*at])));
        let mut left = vm.sockets;
        for at in order {
            while left > 0 {
                let Some(filled) = virtual_socket(self.sockets[at].clone(), vm) else { break };
                self.sockets[at] = filled;
                left -= 1;
            }
        }
        (left == 0).then_some(self)
    }

    pub fn own_threads(&self) -> i64 {
        self.threads().filter(|thread| thread.used == Use::Own).count() as i64
    }

    /// Number of cores whose threads are all exclusive to VMs.
    pub fn own_cores(&self) -> i64 {
        let own = |core: &&Core| core.iter().all(|thread| thread.used == Use::Own);
        self.sockets.iter().flatten().filter(own).count() as i64
    }

    /// Number of sockets and cores with more exclusive threads than in `before`.
    pub fn spread(&self, before: &Cpus) -> (i64, i64) {
        let own = |core: &Core| core.iter().filter(|thread| thread.used == Use::Own).count();
        let (mut sockets, mut cores) = (0, 0);
        for (now, then) in self.sockets.iter().zip(&before.sockets) {
            let more = now.iter().zip(then).filter(|(now, then)| own(now) > own(then)).count() as i64;
            cores += more;
            sockets += i64::from(more > 0);
        }
        (sockets, cores)
    }
}

/// VMs with exclusive CPUs, in the order of assignment.
fn in_order<'v>(vms: &[&'v Vm]) -> Vec<&'v Vm> {
    let mut own: Vec<&Vm> = vms.iter().copied().filter(|vm| is_exclusive(vm)).collect();
    own.sort_by_key(|vm| (Reverse(vm.cores * vm.threads), vm.name.clone()));
    own
}

/// A socket with one virtual socket of `vm` more.
fn virtual_socket(mut socket: Vec<Core>, vm: &Vm) -> Option<Vec<Core>> {
    let is_free = |thread: &&mut Thread| thread.used == Use::Free;
    for _ in 0..vm.cores {
        if vm.pinning == Pinning::IsolateThreads {
            // A whole core for each virtual CPU.
            for _ in 0..vm.threads {
                let core =
                    socket.iter_mut().find(|core| core.iter().all(|thread| thread.used == Use::Free))?;
                core.iter_mut().for_each(|thread| thread.used = Use::Own);
            }
        } else {
            // The threads of a virtual core are threads of one core.
            let free = |core: &Core| core.iter().filter(|thread| thread.used == Use::Free).count();
            let core = socket.iter_mut().find(|core| free(core) >= vm.threads as usize)?;
            core.iter_mut()
                .filter(is_free)
                .take(vm.threads as usize)
                .for_each(|thread| thread.used = Use::Own);
        }
    }
    Some(socket)
}
