//! docs/placement.md is complete.
#![allow(clippy::unwrap_used)]

use ringway_place::{FIGURES, balancers, filters, policy, unit, weights};

fn page() -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/placement.md");
    std::fs::read_to_string(path).unwrap()
}

/// Every unit: name, description, names of its properties.
fn units() -> impl Iterator<Item = (&'static str, &'static str, &'static [&'static str])> {
    let filters = filters::MANDATORY.iter().chain(filters::SELECTABLE);
    let filters = filters.map(|it| (it.name(), it.describes(), it.parameters()));
    let weights = weights::ALL.iter().map(|it| (it.name(), it.describes(), it.parameters()));
    filters.chain(weights).chain(balancers::ALL.iter().map(|it| (it.name, it.describes, it.parameters)))
}

#[test]
fn every_property_of_a_unit_is_defined() {
    for (name, _, properties) in units() {
        for property in properties {
            let defined = unit::describe(property).is_some();
            assert!(defined, "{name} reads {property}: add its row to PARAMETERS in src/unit/parameter.rs");
        }
    }
}

#[test]
fn every_unit_and_property_has_a_row() {
    let page = page();
    let mut missing = Vec::new();
    for (name, describes, properties) in units() {
        let quoted: Vec<String> = properties.iter().map(|property| format!("`{property}`")).collect();
        let (start, end) = (format!("| `{name}` | {describes}"), format!(" | {} |", quoted.join(", ")));
        if !page.lines().any(|line| line.starts_with(&start) && line.contains(&end)) {
            missing.push(start + &end);
        }
    }
    for it in unit::PARAMETERS {
        let default = if it.default.is_empty() { "none".into() } else { format!("`{}`", it.default) };
        let row = format!("| `{}` | `{}` | {default} |", it.name, it.regex.replace('|', "\\|"));
        if !page.lines().any(|line| line.starts_with(&row)) {
            missing.push(row);
        }
    }
    assert!(missing.is_empty(), "add to docs/placement.md:\n{}", missing.join("\n"));
    let words = policy::built_in().into_iter().map(|it| it.name);
    for name in words.chain(FIGURES.iter().map(|(name, _)| name.to_string())) {
        assert!(page.contains(&format!("`{name}`")), "{name} is not there");
    }
}

/// Filters, weights and balancers that oVirt's engine enables, under its names.
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
fn every_unit_of_ovirt_exists() {
    let known: Vec<&str> = units().map(|(name, ..)| name).collect();
    let page = page();
    for name in OVIRT {
        assert!(known.contains(&name), "{name} is not built");
        assert!(page.contains(&format!("| `{name}` |")), "{name} has no row");
    }
}

fn read(page: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs").join(page);
    std::fs::read_to_string(path).unwrap()
}

/// The part of a page below a heading.
fn part<'p>(page: &'p str, heading: &str) -> &'p str {
    let (_, below) = page.split_once(&format!("\n## {heading}\n")).expect(heading);
    below.split("\n## ").next().unwrap()
}

/// Keys in the first column of a section's tables.
fn keys(part: &str) -> std::collections::BTreeSet<String> {
    let first = part.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    first
        .flat_map(|cell| cell.split('`'))
        .filter(|key| !key.is_empty() && *key != ", ")
        .map(String::from)
        .collect()
}

/// Every inventory key has a row, and every row has a key.
#[test]
fn every_key_of_an_inventory_has_a_row() {
    use ringway_place::object::{AffinityGroup, Blacklist, Cluster, Fact, Host, Load, Vm};
    let page = read("inventory.md");
    let of = |heading: &str, object: serde_json::Value, without: &[&str], page: &str| {
        let all = object.as_object().unwrap().keys().map(|key| key.replace('_', "-"));
        let there: std::collections::BTreeSet<String> =
            all.filter(|key| !without.contains(&key.as_str())).collect();
        assert_eq!(keys(part(page, heading)), there, "{heading}");
    };
    of("`[host.NAME]`", json(&Host::default()), &["name"], &page);
    of("`[vm.NAME]`", json(&Vm::default()), &["name"], &page);
    of("`[group.NAME]`", json(&AffinityGroup::default()), &["name"], &page);
    of("`[[load]]`", json(&Load::default()), &[], &page);
    of("`[[fact]]`", json(&Fact { pushed: Some(1), ..Fact::default() }), &[], &page);
    of("`[[blacklist]]`", json(&Blacklist::default()), &[], &page);
    let fabric = read("fabric-file.md");
    let clusters =
        part(&fabric, "Placement: `[placement]`, `[plugins.NAME]`, `[policy.NAME]`, `[cluster.NAME]`");
    let rows = keys(clusters.split("`[cluster.NAME]`, hosts among").nth(1).unwrap());
    let cluster = json(&Cluster::default());
    let all =
        cluster.as_object().unwrap().keys().map(|key| key.replace('_', "-")).filter(|key| key != "name");
    assert_eq!(rows, all.collect(), "[cluster.NAME]");
}

fn json<T: serde::Serialize>(object: &T) -> serde_json::Value {
    serde_json::to_value(object).unwrap()
}

/// Every TOML example that placement can read is valid.
#[test]
fn the_example_inventories_are_valid() {
    use ringway_place::inventory::{KnownObjects, read as inventory};
    let beside = KnownObjects { hosts: ["node-2".to_string()].into(), ..KnownObjects::default() };
    let mut count = 0;
    for page in ["placement.md", "inventory.md"] {
        for block in read(page).split("```toml\n").skip(1) {
            let text = block.split("```").next().unwrap();
            count += 1;
            if let Err(problems) = inventory(page, text, &beside) {
                panic!("{problems}");
            }
        }
    }
    assert!(count >= 4, "{count}");
}
