//! Filters, one per file.

mod aggregates;
mod blacklist;
mod cluster_in_maintenance;
mod compatibility_version;
mod cpu;
mod cpu_level;
mod cpu_overloaded;
mod cpu_pinning;
mod cpu_topology;
mod different_host;
mod emulated_machine;
mod facts;
mod fault_domains;
mod ha;
mod host_device;
mod host_hooks;
mod hosted_engine_spares;
mod huge_pages;
mod in_cluster_upgrade;
mod mdevice;
mod memory;
mod migration;
mod migration_tsc_frequency;
mod network;
mod numa;
mod numa_locality;
mod pin_to_host;
mod port_budget;
mod same_host;
mod status;
mod swap;
mod vcpu_capacity;
mod vm_affinity_groups;
mod vm_leases_ready;
mod vm_to_hosts_affinity_groups;

use crate::model::{Row, VmId, VmSlot};
use crate::object::{AffinityGroup, Host};
use crate::unit::{Context, Filter};

/// Filters that every policy runs before its own.
pub const MANDATORY: &[&dyn Filter] = &[
    &status::Status,
    &blacklist::Blacklist,
    &compatibility_version::CompatibilityVersion,
    &cpu_level::CpuLevel,
    &cpu_topology::CpuTopology,
    &cpu_pinning::CpuPinning,
    &host_device::HostDevice,
    &pin_to_host::PinToHost,
    &vm_leases_ready::VmLeasesReady,
    &mdevice::MDevice,
];

/// Filters that policies choose from.
pub const SELECTABLE: &[&dyn Filter] = &[
    &cpu::Cpu,
    &cpu_overloaded::CpuOverloaded,
    &emulated_machine::EmulatedMachine,
    &ha::Ha,
    &swap::Swap,
    &memory::Memory,
    &numa::Numa,
    &huge_pages::HugePages,
    &migration::Migration,
    &vm_affinity_groups::VmAffinityGroups,
    &vm_to_hosts_affinity_groups::VmToHostsAffinityGroups,
    &network::Network,
    &hosted_engine_spares::HostedEngineSpares,
    &migration_tsc_frequency::MigrationTscFrequency,
    &host_hooks::HostHooks,
    &cluster_in_maintenance::ClusterInMaintenance,
    &in_cluster_upgrade::InClusterUpgrade,
    &different_host::DifferentHost,
    &same_host::SameHost,
    &aggregates::Aggregates,
    &facts::Facts,
    &vcpu_capacity::VCpuCapacity,
    &port_budget::PortBudget,
    &numa_locality::NumaLocality,
    &fault_domains::FaultDomains,
];

/// A filter that policies may name.
pub fn find(name: &str) -> Option<&'static dyn Filter> {
    SELECTABLE.iter().copied().find(|filter| filter.name() == name)
}

/// Whether a host is in a group, by name or by label.
pub(crate) fn in_group(context: &Context<'_>, group: &AffinityGroup, row: Row) -> bool {
    context.cluster.slot(row).is_some_and(|slot| is_member(group, &slot.host))
}

/// Whether `host` is in a group.
pub(crate) fn is_member(group: &AffinityGroup, host: &Host) -> bool {
    group.hosts.contains(&host.name) || group.host_labels.iter().any(|label| host.labels.contains(label))
}

/// The other functions of the group's chains.
pub(crate) fn chain_mates<'m>(context: &Context<'m>) -> Vec<(VmId, &'m VmSlot)> {
    let mut chains: Vec<&str> = context.vms().filter_map(|vm| vm.chain.as_deref()).collect();
    chains.sort_unstable();
    chains.dedup();
    let model = context.model;
    let slots = chains.into_iter().flat_map(|chain| model.chain(chain));
    let known = slots.filter_map(|slot| Some((model.vm_id(&slot.vm.name)?, slot)));
    known.filter(|(id, _)| !context.has(*id)).collect()
}
