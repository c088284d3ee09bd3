//! Remaining capacity of a host's CPUs, NUMA nodes and ports, computed from its VMs in the order of names, so
//! that the result is reproducible.

use crate::model::{CpuMap, HostSlot, Row, VmSlot, order};
use crate::object::{Host, Pinning, PortNeed, Vm, VmNumaNode};
use crate::unit::Context;

/// Remaining capacity of a NUMA node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeFree {
    /// Its number.
    pub index: u32,
    /// CPUs that are not exclusive to a VM.
    pub cpus: i64,
    /// Memory in MB.
    pub memory: i64,
}

/// Remaining capacity of a port.
#[derive(Clone, Debug, PartialEq)]
pub struct PortFree<'m> {
    /// The port.
    pub port: &'m crate::object::Port,
    /// Megabits per second.
    pub mbps: i64,
    /// Packets per second.
    pub pps: i64,
}

/// A host's CPUs after pinning `vms` too, or why they don't fit.
pub fn cpus<'v>(slot: &HostSlot, vms: impl Iterator<Item = &'v Vm>) -> Result<CpuMap, String> {
    let mut map = slot.cpus.clone().unwrap_or_else(|| CpuMap::new(&slot.host, std::iter::empty()));
    let (mut own, shared): (Vec<&Vm>, Vec<&Vm>) = vms.partition(|vm| vm.pinning.is_exclusive());
    for vm in &shared {
        if let Some(cpu) = vm.pins.iter().find(|cpu| !map.has(**cpu)) {
            return Err(format!("it has no CPU {cpu}"));
        }
        if let Some(cpu) = vm.pins.iter().find(|cpu| map.is_exclusive(**cpu)) {
            return Err(format!("its CPU {cpu} is dedicated to another VM"));
        }
        map.share(&vm.pins);
    }
    own.sort_by(|a, b| order(a).cmp(&order(b)));
    for vm in own {
        let size = format!("{} sockets, {} cores and {} threads", vm.sockets, vm.cores, vm.threads);
        map.dedicate(vm).ok_or_else(|| format!("its free CPUs have no room for {size} of {}", vm.name))?;
    }
    if map.any_exclusive() && shared.iter().any(|vm| vm.pinning == Pinning::ResizeAndPinNuma) {
        return Err("a VM that takes the whole host can't be beside VMs with CPUs of their own".into());
    }
    Ok(map)
}

/// Others on a host, by name.
fn others<'m>(context: &Context<'m>, row: Row) -> Vec<&'m VmSlot> {
    let mut others: Vec<_> = context.others_on(row).collect();
    others.sort_by(|a, b| a.vm.name.cmp(&b.vm.name));
    others
}

/// Remaining capacity of a host's NUMA nodes.
pub fn numa_free(context: &Context<'_>, row: Row) -> Vec<NodeFree> {
    let Some(slot) = context.cluster.slot(row) else { return Vec::new() };
    let nodes = slot.host.numa.iter();
    let mut free: Vec<NodeFree> = nodes
        .map(|node| NodeFree { index: node.index, cpus: node.cpus.into(), memory: node.memory_mb as i64 })
        .collect();
    for other in others(context, row) {
        take_nodes(&mut free, &slot.host, &other.vm);
    }
    free
}

/// Subtracts a VM's share from the nodes where it fits, or else from those with the most capacity.
fn take_nodes(free: &mut [NodeFree], host: &Host, vm: &Vm) {
    if vm.numa_local {
        let (cpus, memory) = (i64::from(vm.vcpus()), vm.memory_mb as i64);
        let fits = free.iter().position(|node| node.cpus >= cpus && node.memory >= memory);
        let most = || free.iter().enumerate().max_by_key(|(_, node)| node.memory).map(|(at, _)| at);
        if let Some(at) = fits.or_else(most) {
            free[at].cpus -= cpus;
            free[at].memory -= memory;
        }
        return;
    }
    let pinned = pinned_nodes(std::iter::once(vm));
    let places = assign(free, &pinned, Some(host)).or_else(|| assign(free, &pinned, None));
    for (index, (_, node)) in pinned.iter().enumerate() {
        let first = || free.iter().position(|free| node.host_nodes.contains(&free.index));
        if let Some(at) = places.as_ref().map(|places| places[index]).or_else(first) {
            free[at].memory -= node.memory_mb as i64;
        }
    }
}

/// Attack: NUMA pinnings that take exponential time to search. Largest number of search steps.
const STEPS: u32 = 10_000;

/// A NUMA node that a VM pins, with the VM.
pub type PinnedNode<'v> = (&'v Vm, &'v VmNumaNode);

/// The NUMA nodes that VMs pin. The host places the others.
pub fn pinned_nodes<'v>(vms: impl Iterator<Item = &'v Vm>) -> Vec<PinnedNode<'v>> {
    let nodes = vms.flat_map(|vm| vm.numa.iter().map(move |node| (vm, node)));
    nodes.filter(|(_, node)| !node.host_nodes.is_empty()).collect()
}

/// Assigns each VM node to a host node so that memory suffices; with `host`, also so that a VM node's pinned
/// CPUs are in its host node. None if there is no assignment, or none was found within the limit of steps.
pub fn assign(free: &[NodeFree], nodes: &[PinnedNode<'_>], host: Option<&Host>) -> Option<Vec<usize>> {
    let known = |index: &u32| free.iter().any(|free| free.index == *index);
    if !nodes.iter().all(|(_, node)| node.host_nodes.iter().all(known)) {
        return None;
    }
    let mut order: Vec<usize> = (0..nodes.len()).collect();
    // Nodes with the fewest choices first, then the largest.
    order.sort_by_key(|at| (nodes[*at].1.host_nodes.len(), std::cmp::Reverse(nodes[*at].1.memory_mb)));
    let mut search = Search { free: free.to_vec(), nodes, order, host, steps: STEPS };
    let mut places = vec![0; nodes.len()];
    search.place(0, &mut places).then_some(places)
}

struct Search<'n> {
    free: Vec<NodeFree>,
    nodes: &'n [PinnedNode<'n>],
    order: Vec<usize>,
    host: Option<&'n Host>,
    steps: u32,
}

impl Search<'_> {
    fn place(&mut self, depth: usize, places: &mut [usize]) -> bool {
        let Some(at) = self.order.get(depth).copied() else { return true };
        let (vm, node) = self.nodes[at];
        for host in 0..self.free.len() {
            let Some(steps) = self.steps.checked_sub(1) else { return false };
            self.steps = steps;
            let free = self.free[host];
            let memory = node.memory_mb as i64;
            let cpus = |host: &Host| vm.pins.iter().any(|cpu| host.node_of(*cpu) == Some(free.index));
            let agrees = vm.pins.is_empty() || node.cpus == 0 || self.host.is_none_or(cpus);
            if !agrees || !node.host_nodes.contains(&free.index) || free.memory < memory {
                continue;
            }
            self.free[host].memory = free.memory - memory;
            places[at] = host;
            if self.place(depth + 1, places) {
                return true;
            }
            self.free[host] = free;
        }
        false
    }
}

/// Remaining capacity of a host's ports after the group's needs, or why they don't fit. Used capacity is the
/// larger of the reserved and the measured one. With `numa`, only ports of that node are used.
pub fn ports<'m>(context: &Context<'m>, row: Row, numa: Option<u32>) -> Result<Vec<PortFree<'m>>, String> {
    let Some(slot) = context.cluster.slot(row) else { return Ok(Vec::new()) };
    let part = context.whole("PortUtilization", 100);
    let mut free: Vec<PortFree<'m>> = slot
        .host
        .ports
        .iter()
        .map(|port| PortFree { port, mbps: port.mbps as i64 * part / 100, pps: port.pps as i64 * part / 100 })
        .collect();
    for other in others(context, row) {
        for need in &other.vm.ports {
            let at = choose(&free, need, None).or_else(|| most(&free, need));
            if let Some(at) = at {
                take(&mut free[at], need);
            }
        }
    }
    for measured in slot.load.iter().flat_map(|load| &load.ports) {
        if let Some(free) = free.iter_mut().find(|free| free.port.name == measured.name) {
            let left = |limit: u64, used: u64| limit as i64 * part / 100 - used as i64;
            free.mbps = free.mbps.min(left(free.port.mbps, measured.mbps));
            free.pps = free.pps.min(left(free.port.pps, measured.pps));
        }
    }
    for slot in context.new_on(row) {
        for need in &slot.vm.ports {
            let Some(at) = choose(&free, need, numa) else {
                let network = if need.network.is_empty() { "any network" } else { need.network.as_str() };
                return Err(format!(
                    "no port to {network} has {} Mbit/s and {} packets/s left",
                    need.mbps, need.pps
                ));
            };
            take(&mut free[at], need);
        }
    }
    Ok(free)
}

fn serves(free: &PortFree<'_>, need: &PortNeed) -> bool {
    need.network.is_empty() || free.port.network.is_empty() || free.port.network == need.network
}

/// The fullest port that still has the needed capacity.
fn choose(free: &[PortFree<'_>], need: &PortNeed, numa: Option<u32>) -> Option<usize> {
    let near = |free: &PortFree<'_>| numa.is_none() || free.port.numa.is_none() || free.port.numa == numa;
    let enough = |free: &PortFree<'_>| free.mbps >= need.mbps as i64 && free.pps >= need.pps as i64;
    let fit = free.iter().enumerate().filter(|(_, free)| serves(free, need) && near(free) && enough(free));
    fit.min_by_key(|(at, free)| (free.mbps, *at)).map(|(at, _)| at)
}

fn most(free: &[PortFree<'_>], need: &PortNeed) -> Option<usize> {
    let fit = free.iter().enumerate().filter(|(_, free)| serves(free, need));
    fit.max_by_key(|(at, free)| (free.mbps, std::cmp::Reverse(*at))).map(|(at, _)| at)
}

fn take(free: &mut PortFree<'_>, need: &PortNeed) {
    free.mbps -= need.mbps as i64;
    free.pps -= need.pps as i64;
}

/// A NUMA node, with its port, for each VM of the group that must be on a single one, or why there is none.
pub fn locality(context: &Context<'_>, row: Row) -> Result<Vec<u32>, String> {
    let mut free = numa_free(context, row);
    let mut chosen = Vec::new();
    for slot in context.new_on(row).filter(|slot| slot.vm.numa_local) {
        let (cpus, memory) = (i64::from(slot.vm.vcpus()), slot.vm.memory_mb as i64);
        let fits = |node: &NodeFree| {
            let near = slot.vm.ports.is_empty() || ports(context, row, Some(node.index)).is_ok();
            node.cpus >= cpus && node.memory >= memory && near
        };
        let Some(node) = free.iter_mut().find(|node| fits(node)) else {
            return Err(format!(
                "no NUMA node has {cpus} CPUs, {memory} MB and the port that {} needs",
                slot.vm.name
            ));
        };
        node.cpus -= cpus;
        node.memory -= memory;
        chosen.push(node.index);
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_assigned_where_a_greedy_choice_fails() {
        let free = [0, 1].map(|index| NodeFree { index, cpus: 4, memory: 1000 });
        let assigned = |nodes: &[(u64, &[u32])]| {
            let node = |(memory_mb, host_nodes): &(u64, &[u32])| VmNumaNode {
                memory_mb: *memory_mb,
                host_nodes: host_nodes.to_vec(),
                ..VmNumaNode::default()
            };
            let vm = Vm { numa: nodes.iter().map(node).collect(), ..Vm::default() };
            assign(&free, &pinned_nodes([&vm].into_iter()), None)
        };
        assert_eq!(assigned(&[(600, &[0, 1]), (900, &[0])]), Some(vec![1, 0]));
        assert_eq!(assigned(&[(1001, &[1])]), None);
        assert_eq!(assigned(&[(1, &[0, 2])]), None, "there is no node 2");
        assert_eq!(assigned(&[(1001, &[])]), Some(vec![]), "a node that is not pinned goes anywhere");
    }
}
