//! Each filter and weight on a small cluster.
#![allow(clippy::unwrap_used)]

use ringway_place::decide::{PlacementRequest, Trace};
use ringway_place::engine::{Engine, Object};
use ringway_place::object::*;
use ringway_place::policy::{FilterUse, Policy, WeightUse};
use ringway_place::store::Memory;
use std::sync::Arc;

fn host(name: &str) -> Host {
    Host { name: name.into(), cores: 4, threads: 8, memory_mb: 32_768, ..Host::default() }
}

fn vm(name: &str) -> Vm {
    Vm { name: name.into(), ..Vm::default() }
}

fn on(host: &str, vm: Vm) -> Vm {
    Vm { status: VmStatus::Up, host: Some(host.into()), ..vm }
}

/// An engine whose policy has only these filters and weights.
fn engine(filters: &[&str], weights: &[&str], cluster: Cluster, hosts: Vec<Host>, vms: Vec<Vm>) -> Engine {
    let filters = filters.iter().map(|name| FilterUse { name: name.to_string(), ..FilterUse::default() });
    let weights = weights.iter().map(|name| WeightUse { name: name.to_string(), factor: 1, required: false });
    let policy = Policy {
        name: "p".into(),
        filters: filters.collect(),
        weights: weights.collect(),
        ..Policy::default()
    };
    let engine = Engine::open(Arc::new(Memory::default())).unwrap();
    let mut objects =
        vec![Object::Policy(policy), Object::Cluster(Cluster { policy: "p".into(), ..cluster })];
    objects.extend(hosts.into_iter().map(|host| Object::Host(Box::new(host))));
    objects.extend(vms.into_iter().map(|vm| Object::Vm(Box::new(vm))));
    engine.put(objects).unwrap();
    engine
}

fn trace(engine: &Engine, vm: &str) -> Trace {
    let ask = PlacementRequest { vms: vec![vm.into()], stay: true, now: 1, ..PlacementRequest::default() };
    engine.attempt(&ask, Vec::new()).unwrap().1.remove(0)
}

/// Hosts that a filter rejects for a VM.
fn rejected(engine: &Engine, filter: &str, vm: &str) -> Vec<String> {
    let hosts = trace(engine, vm).hosts.into_iter();
    let by_filter = hosts.filter(|host| host.rejected.iter().any(|verdict| verdict.filter == filter));
    by_filter.map(|host| host.host).collect()
}

/// The score of each host by the only weight.
fn weighed(engine: &Engine, vm: &str) -> Vec<i64> {
    trace(engine, vm).hosts.iter().map(|host| host.weights[0].raw).collect()
}

#[test]
fn a_vms_own_emulated_machine_replaces_the_clusters() {
    let machines = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    let hosts = vec![
        Host { machines: machines(&["i440fx"]), ..host("a") },
        Host { machines: machines(&["q35"]), ..host("b") },
    ];
    let cluster = Cluster { machine: Some("q35".into()), ..Cluster::default() };
    let own = Vm { machine: Some("i440fx".into()), ..vm("own") };
    let engine = engine(&["Emulated-Machine"], &[], cluster, hosts, vec![own, vm("usual")]);
    assert_eq!(rejected(&engine, "Emulated-Machine", "own"), ["b"]);
    assert_eq!(rejected(&engine, "Emulated-Machine", "usual"), ["a"]);
}

#[test]
fn tsc_frequencies_may_differ_by_250_ppm_of_the_source() {
    let hz = |name: &str, hz| Host { tsc_hz: Some(hz), ..host(name) };
    // 250 ppm of 1,999,999 Hz are 499.99 Hz.
    let hosts = vec![hz("a", 1_999_999), hz("b", 1_999_999 + 499), hz("c", 1_999_999 + 500)];
    let vms = vec![on("a", Vm { use_tsc: true, ..vm("one") })];
    let engine = engine(&["Migration-Tsc-Frequency"], &[], Cluster::default(), hosts, vms);
    assert_eq!(rejected(&engine, "Migration-Tsc-Frequency", "one"), ["c"]);
}

#[test]
fn same_host_uses_the_last_host_of_a_stopped_vm() {
    let with = |name: &str, other: &str| Vm { same_host: vec![other.into()], ..vm(name) };
    let stopped = Vm { last_host: Some("b".into()), ..vm("stopped") };
    let vms = vec![
        on("a", vm("running")),
        stopped,
        vm("new"),
        with("1", "running"),
        with("2", "stopped"),
        with("3", "new"),
        with("4", "nobody"),
        vm("5"),
    ];
    let engine = engine(&["SameHost"], &[], Cluster::default(), vec![host("a"), host("b")], vms);
    let all = ["1", "2", "3", "4", "5"].map(|vm| rejected(&engine, "SameHost", vm).join(" "));
    assert_eq!(all, ["b", "a", "a b", "a b", ""]);
}

#[test]
fn a_vm_in_two_affinity_groups_counts_once() {
    let group = |name: &str, vms: &[&str]| {
        Object::Group(AffinityGroup {
            name: name.into(),
            cluster: "default".into(),
            vms: vms.iter().map(ToString::to_string).collect(),
            vm_rule: Rule::Positive,
            ..AffinityGroup::default()
        })
    };
    let vms = vec![vm("new"), on("a", vm("both")), on("b", vm("first")), on("b", vm("second"))];
    let engine = engine(&[], &["VmAffinityGroups"], Cluster::default(), vec![host("a"), host("b")], vms);
    let groups = [group("1", &["new", "both", "first"]), group("2", &["new", "both", "second"])];
    engine.put(groups.to_vec()).unwrap();
    // One VM of the groups on a, two on b.
    assert_eq!(weighed(&engine, "new"), [2, 1]);
}

#[test]
fn cpu_load_is_rounded_after_the_penalty_for_too_many_virtual_cpus() {
    let size = |name: &str| Host { cores: 10, threads: 10, ..host(name) };
    let load = |name: &str, percent| Vm { cpu_percent: Some(percent), ..vm(name) };
    let vms = vec![vm("new"), on("a", load("one", 94)), on("b", load("two", 91))];
    let properties = [("VCpuToPhysicalCpuRatio".to_string(), "0.1".to_string())].into();
    let cluster = Cluster { properties, ..Cluster::default() };
    let engine = engine(&[], &["OptimalForCpuEvenDistribution"], cluster, vec![size("a"), size("b")], vms);
    // 10.4% and 10.1%, both times 1000.
    assert_eq!(weighed(&engine, "new"), [1000, 1]);
}

#[test]
fn cores_of_vms_are_counted_against_cores_of_hosts() {
    let sized = |name: &str, cores, threads| Vm { cores, threads, ..vm(name) };
    let own = |vm: Vm| Vm { pinning: Pinning::Dedicated, ..vm };
    let vms = vec![
        sized("4x2", 4, 2),
        sized("5x1", 5, 1),
        own(sized("own-4x2", 4, 2)),
        own(sized("own-8x1", 8, 1)),
        own(sized("own-9x1", 9, 1)),
        own(sized("own-3x3", 3, 3)),
    ];
    let filters = ["CPU", "VCpuCapacity"];
    let engine = engine(&filters, &[], Cluster::default(), vec![host("a")], vms);
    let refused = |vm: &str| {
        let hosts = trace(&engine, vm).hosts;
        hosts[0].rejected.iter().map(|verdict| verdict.filter.clone()).collect::<Vec<_>>().join(" ")
    };
    let all = ["4x2", "5x1", "own-4x2", "own-8x1", "own-9x1", "own-3x3"].map(refused);
    assert_eq!(
        all,
        [
            "",
            "CPU VCpuCapacity",
            "",
            "",
            "CpuPinning CPU VCpuCapacity",
            "CPUTopology CpuPinning CPU VCpuCapacity"
        ]
    );
}

#[test]
fn isolated_threads_take_a_core_each() {
    let isolated = |name: &str, cores, threads| {
        let pinning = Pinning::IsolateThreads;
        Vm { cores, threads, pinning, ..vm(name) }
    };
    let vms = vec![
        on("a", isolated("there", 1, 2)),
        isolated("1x2", 1, 2),
        isolated("1x3", 1, 3),
        isolated("2x1", 2, 1),
        isolated("3x1", 3, 1),
        Vm { cores: 2, ..vm("shared-2") },
        Vm { cores: 3, ..vm("shared-3") },
    ];
    let engine = engine(&["CPU"], &[], Cluster::default(), vec![host("a")], vms);
    let fits = |vm: &str| trace(&engine, vm).hosts[0].rejected.is_empty();
    let all = ["1x2", "1x3", "2x1", "3x1", "shared-2", "shared-3"].map(fits);
    assert_eq!(all, [true, false, true, false, true, false]);
}

#[test]
fn pinned_cpus_and_cpus_of_ones_own_exclude_each_other() {
    let manual = |name: &str, pins: &[u32]| Vm { pinning: Pinning::Manual, pins: pins.to_vec(), ..vm(name) };
    let own = |name: &str, cores| Vm { cores, pinning: Pinning::Dedicated, ..vm(name) };
    let vms = vec![
        on("a", manual("low", &[0, 1])),
        own("six", 6),
        own("seven", 7),
        on("b", own("all", 8)),
        manual("again", &[1]),
        manual("beyond", &[8]),
    ];
    let engine = engine(&[], &[], Cluster::default(), vec![host("a"), host("b")], vms);
    let all = ["six", "seven", "again", "beyond"].map(|vm| rejected(&engine, "CpuPinning", vm).join(" "));
    assert_eq!(all, ["b", "a b", "b", "a b"]);
}

#[test]
fn a_virtual_socket_stays_on_a_socket() {
    let hosts = vec![Host { sockets: 2, cores: 6, threads: 6, ..host("a") }];
    let own = |name: &str, sockets, cores| Vm { sockets, cores, pinning: Pinning::Dedicated, ..vm(name) };
    let vms = vec![own("1x4", 1, 4), own("4x1", 4, 1), own("2x2", 2, 2), own("2x3", 2, 3), own("3x2", 3, 2)];
    let engine = engine(&[], &[], Cluster::default(), hosts, vms);
    let fits = |vm: &str| rejected(&engine, "CpuPinning", vm).is_empty();
    assert_eq!(["1x4", "4x1", "2x2", "2x3", "3x2"].map(fits), [false, true, true, true, false]);
}

#[test]
fn huge_pages_beyond_the_reserved_ones_use_memory() {
    let pages =
        |name: &str, memory_mb, count| Host { memory_mb, huge_pages: [(2048, count)].into(), ..host(name) };
    let huge = |name: &str, memory_mb| Vm { memory_mb, huge_page_kb: Some(2048), ..vm(name) };
    // Besides huge pages, a has 7 GB, b 2 GB, both with 1 GB of huge pages; c has 8 GB and none.
    let hosts = vec![pages("a", 8192, 512), pages("b", 3072, 512), pages("c", 8192, 0)];
    let vms = vec![huge("three", 3072), on("c", huge("four", 4096)), huge("six", 6144)];
    let engine = engine(&["Memory"], &[], Cluster::default(), hosts, vms);
    assert_eq!(rejected(&engine, "Memory", "three"), ["b"]);
    assert_eq!(rejected(&engine, "Memory", "six"), ["b", "c"]);
}

#[test]
fn pinned_cpus_must_be_in_the_numa_nodes_that_a_vm_pins() {
    let nodes = |lists: [&[u32]; 2]| {
        let node = |index: usize| NumaNode {
            index: index as u32,
            cpus: 4,
            memory_mb: 16_384,
            cpu_list: lists[index].to_vec(),
        };
        vec![node(0), node(1)]
    };
    // Without CPU lists node 0 has cores 0 and 1 with their siblings 4 and 5.
    let hosts = vec![
        Host { numa: nodes([&[], &[]]), ..host("a") },
        Host { numa: nodes([&[0, 1, 2, 3], &[4, 5, 6, 7]]), ..host("b") },
    ];
    let vm = |name: &str, pins: &[u32], node: u32| Vm {
        pinning: Pinning::Manual,
        pins: pins.to_vec(),
        numa: vec![VmNumaNode { memory_mb: 512, cpus: 1, host_nodes: vec![node], ..VmNumaNode::default() }],
        ..vm(name)
    };
    let vms = vec![vm("low", &[4], 0), vm("high", &[4], 1), vm("both", &[0, 6], 1), vm("free", &[], 1)];
    let engine = engine(&[], &["CPU and NUMA pinning compatibility"], Cluster::default(), hosts, vms);
    let all = ["low", "high", "both", "free"].map(|vm| weighed(&engine, vm));
    assert_eq!(all, [[1, 1000], [1000, 1], [1, 1], [1, 1]]);
}

/// Whether `VCpuCapacity` and a fact filter place a VM of so many cores on a host of 100.
fn fits(cores: u32, ratio: &str) -> [bool; 2] {
    ["VCpuCapacity", "Facts"].map(|filter| {
        let host = Host { cores: 100, threads: 100, memory_mb: 1 << 20, ..host("a") };
        let big = Vm { cores, memory_mb: 1, ..vm("big") };
        let properties = [
            ("VCpuAllocationRatio".to_string(), ratio.to_string()),
            ("FactFilter".to_string(), format!("cpus * {ratio} >= {cores}")),
        ];
        let cluster = Cluster { properties: properties.into(), ..Cluster::default() };
        let engine = engine(&[filter], &[], cluster, vec![host], vec![big]);
        rejected(&engine, filter, "big").is_empty()
    })
}

#[test]
fn decimal_limits_are_exact() {
    // 100 times the double next to 1.15 is below 115, and 100 times that of 1.1 above 110.
    for (ratio, most) in [("1.15", 115), ("1.1", 110), ("2.3", 230), ("0.29", 29), ("1", 100), ("1.150", 115)]
    {
        assert_eq!(fits(most, ratio), [true, true], "{most} on 100 with {ratio}");
        assert_eq!(fits(most + 1, ratio), [false, false], "{} on 100 with {ratio}", most + 1);
    }
}

#[test]
fn a_host_is_full_at_its_ratio_of_virtual_cpus_exactly() {
    // 100 times the double next to 1.15 is below 115. A full host's load counts a thousandfold.
    for (cores, weights) in [(1, [1, 1000]), (2, [1000, 1]), (3, [1000, 1])] {
        let size = |name: &str| Host { cores: 100, threads: 100, memory_mb: 1 << 20, ..host(name) };
        let sized = |name: &str, cores, percent| Vm { cores, cpu_percent: Some(percent), ..vm(name) };
        let there = vec![
            on("a", sized("big", 57, 1)),
            on("a", sized("bigger", 56, 1)),
            on("b", sized("other", 50, 50)),
            sized("new", cores, 1),
        ];
        let properties = [("VCpuToPhysicalCpuRatio".to_string(), "1.15".to_string())].into();
        let cluster = Cluster { properties, ..Cluster::default() };
        let engine =
            engine(&[], &["OptimalForCpuEvenDistribution"], cluster, vec![size("a"), size("b")], there);
        assert_eq!(weighed(&engine, "new"), weights, "{} of 100", 113 + cores);
    }
}
