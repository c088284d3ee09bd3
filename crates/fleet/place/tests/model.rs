//! Random clusters, decided here and by a second placement that is written from the documentation.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::naive::{Request, World, filters, weights};
use proptest::prelude::*;
use ringway_place::balancers::{Scene, propose};
use ringway_place::decide::{Outside, PlacementRequest, Scratch, Trace, explain};
use ringway_place::model::{Change, Model};
use ringway_place::object::*;
use ringway_place::policy::{FilterUse, Policy, WeightUse};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Choices that random numbers make; when these have run out, the first choice.
struct Choices(std::vec::IntoIter<u16>);

impl Choices {
    fn below(&mut self, count: usize) -> usize {
        (usize::from(self.0.next().unwrap_or(0)) * count) >> 16
    }

    fn one<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// True once in `times` calls on average.
    fn rarely(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    fn rare<T>(&mut self, times: usize, value: impl FnOnce(&mut Choices) -> T) -> Option<T> {
        if self.rarely(times) { Some(value(self)) } else { None }
    }

    /// Some of a few names.
    fn some(&mut self, of: &[&str]) -> Vec<String> {
        let mut some: Vec<&str> = of.to_vec();
        some.retain(|_| !self.rarely(3));
        some.into_iter().map(String::from).collect()
    }

    fn few(&mut self, of: &[&str]) -> Vec<String> {
        self.rare(6, |choices| vec![choices.one(of).to_string()]).unwrap_or_default()
    }
}

const HOSTS: [&str; 5] = ["a", "b", "c", "d", "e"];
const LABELS: [&str; 2] = ["red", "blue"];
const SYSTEMS: [&str; 4] = ["RHEL - 8.2 - 1.el8", "RHEL - 9.0 - 1.el9", "Debian - 12 - 1", ""];

fn host(choices: &mut Choices, name: &str) -> Host {
    use HostStatus::*;
    let sockets = choices.one(&[1, 2]);
    let cores = sockets * choices.one(&[2, 4, 1, 3]);
    let threads = cores * choices.one(&[1, 2]);
    let memory_mb = choices.one(&[16_384, 8192, 4096]);
    let listed = choices.rarely(3);
    let node = |index: u32| {
        let (cpus, first) = (threads / sockets, index * threads / sockets);
        let cpu_list = if listed { (first..first + cpus).collect() } else { Vec::new() };
        NumaNode { index, cpus, memory_mb: memory_mb / u64::from(sockets), cpu_list }
    };
    let agent = |choices: &mut Choices| HaAgent {
        score: choices.one(&[3400, 2000, 0]),
        active: !choices.rarely(5),
        local_maintenance: choices.rarely(5),
        global_maintenance: choices.rarely(8),
    };
    Host {
        name: name.into(),
        status: choices.one(&[Up, Up, Up, Up, Up, Up, PreparingForMaintenance, Maintenance, Down]),
        sockets,
        cores,
        threads,
        memory_mb,
        reserved_milli_cpus: choices.one(&[0, 0, 500]),
        swap_mb: choices.one(&[0, 1024]),
        cpu_flags: choices.some(&["aes", "avx"]),
        machines: choices.some(&["q35", "i440fx"]),
        versions: choices.some(&["4.6", "4.7"]),
        networks: choices.some(&["front", "back"]),
        labels: choices.few(&LABELS),
        aggregates: choices.some(&["fast"]),
        numa: if choices.rarely(4) { Vec::new() } else { (0..sockets).map(node).collect() },
        huge_pages: choices.rare(3, |choices| (2048, choices.one(&[512, 1024]))).into_iter().collect(),
        devices: choices.few(&["gpu"]).into_iter().map(|name| Device { name, numa: None }).collect(),
        passthrough: !choices.rarely(4),
        mdevs: choices.rare(3, |choices| ("vgpu".to_string(), choices.one(&[1, 2]))).into_iter().collect(),
        leases: choices.some(&["store"]),
        hooks: choices.some(&["hook"]),
        tsc_hz: choices.one(&[Some(2_000_000_000), Some(2_000_400_000), Some(3_000_000_000), None]),
        tsc_scaling: choices.rarely(6),
        os: choices.one(&SYSTEMS).into(),
        spm: name == "a",
        ha_agent: choices.rare(2, agent),
        power_managed: !choices.rarely(4),
        policy_controlled: choices.rarely(2),
        ports: choices.rare(2, ports).unwrap_or_default(),
        ..Host::default()
    }
}

fn ports(choices: &mut Choices) -> Vec<Port> {
    let port = |name: &str, network: &str, vfs| {
        let (name, network) = (name.into(), network.into());
        Port { name, network, vfs, ..Port::default() }
    };
    vec![port("p0", "front", choices.one(&[0, 1, 2])), port("p1", "", choices.one(&[0, 1]))]
}

/// A VM that runs on one of `hosts`, or is down. A running VM pins each of its NUMA nodes to one host node,
/// since the node in use would otherwise be unknown.
fn vm(choices: &mut Choices, name: String, hosts: &[&str]) -> Vm {
    use Pinning::*;
    let on = choices.rare(2, |choices| choices.one(hosts).to_string());
    let pinning = choices.one(&[None, None, None, None, Manual, Dedicated, IsolateThreads, ResizeAndPinNuma]);
    let status = match (&on, choices.below(12)) {
        (Option::None, _) => VmStatus::Down,
        (Some(_), 10) => VmStatus::Paused,
        (Some(_), 11) => VmStatus::Migrating,
        _ => VmStatus::Up,
    };
    let node = |choices: &mut Choices| VmNumaNode {
        memory_mb: choices.one(&[256, 1024, 3072]),
        cpus: choices.one(&[0, 1]),
        host_nodes: match on {
            Some(_) => choices.one(&[vec![], vec![0], vec![1]]),
            Option::None => choices.one(&[vec![], vec![0], vec![1], vec![0, 1], vec![1, 2]]),
        },
        mode: choices.one(&[NumaMode::Strict, NumaMode::Interleave, NumaMode::Preferred]),
    };
    let nodes = |choices: &mut Choices| (0..choices.one(&[1, 2])).map(|_| node(choices)).collect();
    let nic = |choices: &mut Choices| VmNic {
        network: choices.one(&["front", "back", ""]).to_string(),
        passthrough: choices.rarely(2),
    };
    Vm {
        name,
        kind: if choices.rarely(8) { VmKind::Function } else { VmKind::Vm },
        status,
        last_host: choices.rare(3, |choices| choices.one(hosts).to_string()),
        sockets: choices.one(&[1, 1, 2]),
        cores: choices.one(&[1, 2, 3, 4]),
        threads: choices.one(&[1, 2]),
        milli_cpus: choices.one(&[Option::None, Option::None, Some(250), Some(1500)]),
        memory_mb: choices.one(&[256, 1000, 2048, 4096]),
        cpu_percent: choices.one(&[Option::None, Some(3), Some(40), Some(95)]),
        pinning,
        pins: match pinning {
            Manual => choices.one(&[vec![0], vec![1, 2], vec![3, 9], vec![5]]),
            _ => Vec::new(),
        },
        numa: choices.rare(3, nodes).unwrap_or_default(),
        huge_page_kb: choices.rare(5, |_| 2048),
        nics: choices.rare(3, |choices| vec![nic(choices)]).unwrap_or_default(),
        devices: choices.few(&["gpu"]),
        mdevs: choices.few(&["vgpu"]),
        lease: choices.rare(6, |_| "store".into()),
        ha: choices.rarely(3),
        migration: choices.one(&[
            Migration::Migratable,
            Migration::Migratable,
            Migration::Migratable,
            Migration::Manual,
            Migration::PinnedToHost,
        ]),
        hosts: choices.few(hosts),
        high_performance: choices.rarely(5),
        cpu_passthrough: choices.rarely(6),
        cpu_flags: choices.few(&["aes", "avx"]),
        version: choices.rare(6, |choices| choices.one(&["4.6", "4.7"]).into()),
        machine: choices.rare(6, |_| "q35".into()),
        hooks: choices.few(&["hook"]),
        use_tsc: choices.rarely(3),
        labels: choices.few(&LABELS),
        different_host: choices.few(&["v0", "v1"]),
        same_host: choices.few(&["v1", "v2"]),
        aggregates: choices.few(&["fast"]),
        host: on,
        ..Vm::default()
    }
}

fn group(choices: &mut Choices, name: &str, vms: &[String]) -> AffinityGroup {
    let rules = [Rule::Disabled, Rule::Positive, Rule::Negative];
    let mut members = vms.to_vec();
    members.retain(|_| choices.rarely(2));
    AffinityGroup {
        name: name.into(),
        cluster: "default".into(),
        vms: members,
        vm_labels: choices.few(&LABELS),
        hosts: choices.few(&HOSTS[..3]),
        host_labels: choices.few(&LABELS),
        vm_rule: choices.one(&rules),
        vm_enforcing: choices.rarely(2),
        max_per_host: choices.one(&[0, 2]),
        host_rule: choices.one(&rules),
        host_enforcing: choices.rarely(2),
        priority: choices.one(&[0, 1, 5]),
    }
}

fn load(choices: &mut Choices, host: &str, now: u64) -> Load {
    Load {
        host: host.into(),
        cpu_percent: choices.one(&[None, Some(5), Some(15), Some(50), Some(70), Some(85), Some(99)]),
        over_since: choices.one(&[None, Some(now - 300_000), Some(now - 300_000), Some(now - 60_000)]),
        free_mb: choices.one(&[None, Some(600), Some(6000)]),
        swap_free_mb: choices.one(&[None, Some(0)]),
        ports: Vec::new(),
    }
}

/// Values of properties; the first of each leaves it unset.
const PROPERTIES: [(&str, [&str; 3]); 15] = [
    ("HighUtilization", ["", "80", "57"]),
    ("LowUtilization", ["", "0", "45"]),
    ("CpuOverCommitDurationMinutes", ["", "1", "4"]),
    ("MaximumAllowedSwapUsage", ["", "5", "10"]),
    ("VCpuToPhysicalCpuRatio", ["", "1", "1.1"]),
    ("SpmVmGrace", ["", "0", "2"]),
    ("HighVmCount", ["2", "3", ""]),
    ("MigrationThreshold", ["2", "3", ""]),
    ("MaxFreeMemoryForOverUtilized", ["", "3000", "6000"]),
    ("MinFreeMemoryForUnderUtilized", ["", "5000", "7000"]),
    ("HeSparesCount", ["", "2", "4"]),
    ("ScaleDown", ["", "3", "100"]),
    ("HostsInReserve", ["", "1", "2"]),
    ("EnableAutomaticHostPowerManagement", ["true", "true", ""]),
    ("VCpuAllocationRatio", ["", "1.15", "1.5"]),
];

fn world(choices: &mut Choices) -> World {
    let now = 1_000_000_000;
    let names = &HOSTS[..choices.one(&[3, 4, 5, 2])];
    let hosts: Vec<Host> = names.iter().map(|name| host(choices, name)).collect();
    let mut vms: Vec<Vm> =
        (0..choices.one(&[6, 8, 10, 3])).map(|n| vm(choices, format!("v{n}"), names)).collect();
    let last = vms.len() - 1;
    match choices.below(4) {
        2 => vms[0].hosted_engine = true,
        3 => vms[last].hosted_engine = true,
        _ => {}
    }
    let all: Vec<String> = vms.iter().map(|vm| vm.name.clone()).collect();
    let groups = ["g1", "g2"].iter().filter_map(|name| choices.rare(2, |choices| group(choices, name, &all)));
    let groups = groups.collect();
    let loads = names.iter().filter_map(|name| choices.rare(2, |choices| load(choices, name, now))).collect();
    let mut pending = BTreeMap::new();
    for vm in &mut vms[2..] {
        if let Some(to) = choices.rare(12, |choices| choices.one(names)) {
            pending.insert(vm.name.clone(), to.to_string());
            vm.numa.iter_mut().for_each(|node| node.host_nodes.truncate(1));
        }
    }
    let mut properties = BTreeMap::new();
    for (name, values) in PROPERTIES {
        let value = choices.one(&values);
        if !value.is_empty() {
            properties.insert(name.to_string(), value.to_string());
        }
    }
    let cluster = Cluster {
        policy: "p".into(),
        threads_as_cores: choices.rarely(2),
        memory_overcommit: choices.one(&[100, 150]),
        ha_reservation: choices.rarely(2),
        cpu_flags: choices.few(&["aes"]),
        machine: choices.rare(3, |_| "i440fx".into()),
        ..Cluster::default()
    };
    World { cluster, hosts, vms, groups, loads, pending, properties, now }
}

/// The balancers of the model.
const BALANCERS: [&str; 3] =
    ["OptimalForEvenDistribution", "OptimalForEvenGuestDistribution", "OptimalForPowerSaving"];

/// The world as placement's model, with a policy of these filters and weights.
fn model(world: &World, filters: &[&str], weights: &[&str]) -> Model {
    let own = |name: &&&str| ringway_place::filters::find(name).is_some();
    let filters = filters.iter().filter(own);
    let weights = weights.iter().map(|name| WeightUse { name: name.to_string(), factor: 3, required: false });
    let policy = Policy {
        name: "p".into(),
        filters: filters.map(|name| FilterUse { name: name.to_string(), ..FilterUse::default() }).collect(),
        weights: weights.collect(),
        properties: world.properties.clone(),
        ..Policy::default()
    };
    let mut model = Model::default();
    let mut changes = vec![Change::Policy(Arc::new(policy)), Change::Cluster(world.cluster.clone())];
    // VMs added before their hosts are attached to them later.
    let (early, late) = world.vms.split_at(world.vms.len() / 2);
    changes.extend(early.iter().cloned().map(Change::Vm));
    changes.extend(world.hosts.iter().cloned().map(Change::Host));
    changes.extend(late.iter().cloned().map(Change::Vm));
    changes.extend(world.groups.iter().cloned().map(Change::Group));
    changes.extend(world.loads.iter().cloned().map(Change::Load));
    let pending =
        |(vm, host): (&String, &String)| Pending { vm: vm.clone(), host: host.clone(), decision: 0 };
    changes.extend(world.pending.iter().map(pending).map(Change::Pending));
    changes.into_iter().for_each(|change| model.apply(change));
    model
}

fn decided(world: &World, request: &Request<'_>, filters: &[&str], weights: &[&str]) -> Trace {
    let vms = request.vms.iter().map(|vm| vm.name.clone()).collect();
    let ask = PlacementRequest { vms, stay: request.stay, now: world.now, ..PlacementRequest::default() };
    let mut model = model(world, filters, weights);
    explain(&mut model, &ask, &mut Outside::None, &mut Scratch::default()).unwrap().1.remove(0)
}

/// One VM, or two that a group binds together.
fn request<'w>(world: &'w World, stay: bool) -> Request<'w> {
    let binds = |group: &&AffinityGroup| {
        let both = world.vms[..2].iter().all(|vm| crate::naive::is_member(group, vm));
        both && group.vm_enforcing && group.vm_rule == Rule::Positive
    };
    let count = if world.groups.iter().any(|group| binds(&group)) { 2 } else { 1 };
    Request { vms: world.vms[..count].iter().collect(), stay }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases * 8))]

    /// Both implementations reject the same hosts in every filter, and compute the same scores and totals.
    #[test]
    fn decisions_equal_the_model(
        numbers in prop::collection::vec(any::<u16>(), 900),
        stay in any::<bool>(),
    ) {
        let world = world(&mut Choices(numbers.into_iter()));
        let request = request(&world, stay);
        let trace = decided(&world, &request, &filters::NAMES, &[]);
        for (host, traced) in world.hosts.iter().zip(&trace.hosts) {
            for filter in filters::NAMES {
                let verdict = traced.rejected.iter().find(|verdict| verdict.filter == filter);
                let passes = world.passes(filter, &request, host);
                let what = format!("{filter} on {}: {verdict:?}", host.name);
                prop_assert_eq!(verdict.is_none(), passes, "{} {:#?}", what, &world);
            }
        }
        let trace = decided(&world, &request, &[], &weights::NAMES);
        let both = world.hosts.iter().zip(&trace.hosts);
        let left = both.filter(|(_, traced)| traced.rejected.is_empty()).map(|(host, _)| host);
        let left: Vec<&Host> = left.collect();
        let mut scores = vec![0.0; left.len()];
        for (index, weight) in weights::NAMES.into_iter().enumerate().filter(|_| left.len() > 1) {
            let expected = world.weigh(weight, &request, &left);
            let traced = trace.hosts.iter().filter(|host| host.rejected.is_empty());
            let given: Vec<i64> = traced.map(|host| host.weights[index].raw).collect();
            prop_assert_eq!(&given, &expected, "{} {:#?}", weight, &world);
            for (score, raw) in scores.iter_mut().zip(&expected) {
                let better = expected.iter().filter(|other| *other < raw).count();
                *score += 3.0 * (left.len() - 1 - better) as f64;
            }
        }
        let given: Vec<f64> = trace.hosts.iter().filter_map(|host| host.score).collect();
        prop_assert_eq!(given, scores);
    }

    /// Both implementations propose the same moves in the same order, and switch the same host.
    #[test]
    fn balancers_equal_the_model(numbers in prop::collection::vec(any::<u16>(), 900)) {
        let world = world(&mut Choices(numbers.into_iter()));
        let model = model(&world, &[], &[]);
        let (_, state) = model.cluster("default").unwrap();
        let scene = Scene::new(&model, state, world.now, world.properties.clone());
        for name in BALANCERS {
            let (proposals, power) = propose(name, &scene).unwrap();
            let name_of = |row: u32| state.name(row).to_string();
            let moves: Vec<_> = proposals.iter().map(|it| {
                let vm = model.vm_by(it.vm).unwrap().vm.name.clone();
                (vm, name_of(it.from), it.to.iter().map(|row| name_of(*row)).collect::<Vec<_>>())
            }).collect();
            prop_assert_eq!(moves, world.balance(name), "{} {:#?}", name, &world);
            if name == "OptimalForPowerSaving" {
                let power = power.map(|power| (name_of(power.host), power.to));
                prop_assert_eq!(power, world.power(), "{:#?}", &world);
            }
        }
    }
}

/// The random worlds are not all alike: filters reject and pass, weights tell hosts apart, balancers move and
/// switch.
#[test]
fn random_worlds_reach_every_unit() {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut seed = 1u32;
    let mut number = |_| {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 16) as u16
    };
    for round in 0..300 {
        let numbers: Vec<u16> = (0..900).map(&mut number).collect();
        let world = world(&mut Choices(numbers.into_iter()));
        let request = request(&world, round % 2 == 0);
        let mut see = |what: String| *seen.entry(what).or_default() += 1;
        for host in &world.hosts {
            let passes = |filter: &&str| format!("filter {filter} {}", world.passes(filter, &request, host));
            filters::NAMES.iter().map(passes).for_each(&mut see);
        }
        let fits = |host: &&Host| world.passes("CpuPinning", &request, host);
        let left: Vec<&Host> = world.hosts.iter().filter(fits).collect();
        for weight in weights::NAMES.into_iter().filter(|_| left.len() > 1) {
            let figures = world.weigh(weight, &request, &left);
            see(format!("weight {weight} {}", figures.iter().any(|figure| *figure != figures[0])));
        }
        for balancer in BALANCERS {
            see(format!("balancer {balancer} {}", !world.balance(balancer).is_empty()));
        }
        see(format!("power {:?}", world.power().map(|(_, status)| status)));
    }
    let both = |kind: &str, names: &[&str]| {
        names.iter().flat_map(|name| ["true", "false"].map(|way| format!("{kind} {name} {way}"))).collect()
    };
    let power = ["None", "Some(Up)", "Some(Maintenance)", "Some(Down)"].map(|to| format!("power {to}"));
    let units: [Vec<String>; 4] = [
        both("filter", &filters::NAMES),
        both("weight", &weights::NAMES),
        both("balancer", &BALANCERS),
        power.to_vec(),
    ];
    let never: Vec<_> = units.iter().flatten().filter(|what| !seen.contains_key(*what)).collect();
    assert!(never.is_empty(), "{never:?} of {seen:#?}");
}
