//! Built-in policies: oVirt's five, and two of our own.

use super::{FilterUse, Policy, Position, WeightUse};

/// Filters that all of oVirt's policies share, in its order.
const COMMON: [&str; 15] = [
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
];

/// Weights that all of oVirt's policies share.
const WEIGHTS: [(&str, u32); 7] = [
    ("PreferredHosts", 99),
    ("HA", 1),
    ("OptimalForHaReservation", 1),
    ("VmAffinityGroups", 1),
    ("VmToHostsAffinityGroups", 20),
    ("CPU for high performance VMs", 4),
    ("CPU and NUMA pinning compatibility", 5),
];

/// Nova's filters and those for functions: they cost nothing for VMs that don't use them.
const OURS: [&str; 7] =
    ["DifferentHost", "SameHost", "Aggregates", "Facts", "PortBudget", "NumaLocality", "VCpuCapacity"];

fn policy(
    name: &str,
    filters: impl IntoIterator<Item = &'static str>,
    weights: &[(&str, u32)],
    balancer: &str,
    properties: &[(&str, &str)],
) -> Policy {
    let mut filters: Vec<FilterUse> =
        filters.into_iter().map(|name| FilterUse { name: name.into(), ..FilterUse::default() }).collect();
    if let Some(first) = filters.first_mut() {
        first.position = Position::First;
    }
    if let Some(last) = filters.last_mut() {
        last.position = Position::Last;
    }
    let weights = weights.iter().chain(&WEIGHTS);
    Policy {
        name: name.into(),
        filters,
        weights: weights
            .map(|(name, factor)| WeightUse { name: (*name).into(), factor: *factor, required: false })
            .collect(),
        balancer: balancer.into(),
        properties: properties.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect(),
        ..Policy::default()
    }
}

/// The built-in policies.
pub fn built_in() -> Vec<Policy> {
    const EVEN: [(&str, u32); 2] =
        [("OptimalForCpuEvenDistribution", 2), ("OptimalForMemoryEvenDistribution", 1)];
    const SAVING: [(&str, u32); 2] = [("OptimalForCpuPowerSaving", 2), ("OptimalForMemoryPowerSaving", 1)];
    const USUAL: [(&str, &str); 2] = [("CpuOverCommitDurationMinutes", "2"), ("HighUtilization", "80")];
    let with = |more: &[(&'static str, &'static str)]| [&USUAL[..], more].concat();
    let maintenance = std::iter::once("ClusterInMaintenance").chain(COMMON);
    vec![
        policy("none", COMMON, &EVEN, "None", &USUAL),
        policy(
            "evenly_distributed",
            COMMON,
            &EVEN,
            "OptimalForEvenDistribution",
            &with(&[("HeSparesCount", "0"), ("VCpuToPhysicalCpuRatio", "0")]),
        ),
        policy(
            "power_saving",
            COMMON,
            &SAVING,
            "OptimalForPowerSaving",
            &with(&[("HeSparesCount", "0"), ("LowUtilization", "20")]),
        ),
        policy(
            "vm_evenly_distributed",
            COMMON,
            &[("OptimalForEvenGuestDistribution", 2)],
            "OptimalForEvenGuestDistribution",
            &with(&[
                ("HeSparesCount", "0"),
                ("HighVmCount", "10"),
                ("MigrationThreshold", "5"),
                ("SpmVmGrace", "5"),
            ]),
        ),
        policy("cluster_maintenance", maintenance, &EVEN, "None", &USUAL),
        policy("packing", COMMON.into_iter().chain(OURS), &[("Packing", 10)], "None", &USUAL),
        policy(
            "chain_local",
            COMMON.into_iter().chain(OURS),
            &[
                ("ChainColocation", 50),
                ("NumaLocality", 10),
                ("PortLoad", 2),
                ("OptimalForCpuEvenDistribution", 1),
            ],
            "None",
            &USUAL,
        ),
    ]
}
