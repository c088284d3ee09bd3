//! What docs/placement.md says is complete.
#![allow(clippy::unwrap_used)]

use ringway_place::{FIGURES, balancers, filters, policy, unit, weights};

fn page() -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/placement.md");
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn every_unit_and_property_has_a_row() {
    let page = page();
    let filters = filters::MANDATORY.iter().chain(filters::SELECTABLE).map(|it| (it.name(), it.describes()));
    let weights = weights::ALL.iter().map(|it| (it.name(), it.describes()));
    for (name, describes) in filters.chain(weights) {
        assert!(page.contains(&format!("| `{name}` | {describes} |")), "{name} has no row, or another one");
    }
    let names = balancers::NAMES.into_iter().chain(unit::PARAMETERS.iter().map(|it| it.name));
    for name in names {
        assert!(page.contains(&format!("| `{name}` |")), "{name} has no row");
    }
    let words = policy::built_in().into_iter().map(|it| it.name);
    for name in words.chain(FIGURES.iter().map(|(name, _)| name.to_string())) {
        assert!(page.contains(&format!("`{name}`")), "{name} is not there");
    }
}

/// What oVirt's engine enables: filters, weights, balancers, by the names it gives them.
const OVIRT: [&str; 38] = [
    "Compatibility-Version",
    "CPU-Level",
    "CPUTopology",
    "CpuPinning",
    "HostDevice",
    "PinToHost",
    "VM leases ready",
    "MDevice",
    "ClusterInMaintenance",
    "CPUOverloaded",
    "CPU",
    "Emulated-Machine",
    "HA",
    "HostedEngineSpares",
    "HugePages",
    "Memory",
    "NUMA",
    "Migration",
    "Network",
    "Swap",
    "VmAffinityGroups",
    "VmToHostsAffinityGroups",
    "InClusterUpgrade",
    "Migration-Tsc-Frequency",
    "Host-hooks",
    "OptimalForCpuEvenDistribution",
    "OptimalForMemoryEvenDistribution",
    "OptimalForEvenGuestDistribution",
    "OptimalForHaReservation",
    "Fit VM to single host NUMA node",
    "OptimalForCpuPowerSaving",
    "OptimalForMemoryPowerSaving",
    "PreferredHosts",
    "CPU for high performance VMs",
    "CPU and NUMA pinning compatibility",
    "None",
    "OptimalForEvenDistribution",
    "OptimalForPowerSaving",
];

#[test]
fn every_unit_of_ovirt_is_there() {
    let filters = filters::MANDATORY.iter().chain(filters::SELECTABLE).map(|it| it.name());
    let known: Vec<&str> =
        filters.chain(weights::ALL.iter().map(|it| it.name())).chain(balancers::NAMES).collect();
    let page = page();
    for name in OVIRT {
        assert!(known.contains(&name), "{name} is not built");
        assert!(page.contains(&format!("| `{name}` |")), "{name} has no row");
    }
}
