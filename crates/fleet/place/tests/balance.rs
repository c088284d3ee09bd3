//! Balancing: which VMs move or stay, and that no VM moves back and forth.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringway_place::engine::{Engine, Object};
use ringway_place::object::*;
use ringway_place::store::Memory;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

const MINUTE: u64 = 60_000;

fn host(name: &str) -> Host {
    Host {
        name: name.into(),
        cores: 8,
        threads: 8,
        memory_mb: 32_768,
        power_managed: true,
        ..Host::default()
    }
}

fn vm(name: &str, on: &str, percent: u32) -> Vm {
    Vm {
        name: name.into(),
        cores: 2,
        memory_mb: 1024,
        cpu_percent: Some(percent),
        status: VmStatus::Up,
        host: Some(on.into()),
        ..Vm::default()
    }
}

fn engine(policy: &str, properties: &[(&str, &str)], objects: Vec<Object>) -> Engine {
    let engine = Engine::open(Arc::new(Memory::default())).unwrap();
    let properties: BTreeMap<String, String> =
        properties.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect();
    let cluster = Cluster { policy: policy.into(), properties, ..Cluster::default() };
    engine.put(vec![Object::Cluster(cluster)]).unwrap();
    engine.put(objects).unwrap();
    engine
}

fn load(host: &str, percent: u32, over_since: Option<u64>) -> Object {
    Object::Load(Load { host: host.into(), cpu_percent: Some(percent), over_since, ..Load::default() })
}

#[test]
fn an_overloaded_host_migrates_its_smallest_vm() {
    let objects = ["a", "b"].map(|name| Object::Host(Box::new(host(name))));
    let engine = engine("evenly_distributed", &[], objects.to_vec());
    let vms =
        [("big", 90), ("small", 40)].map(|(name, percent)| Object::Vm(Box::new(vm(name, "a", percent))));
    engine.put(vms.to_vec()).unwrap();
    engine.put(vec![load("a", 90, Some(0)), load("b", 10, None)]).unwrap();
    assert!(engine.balance("default", MINUTE).unwrap().migrations.is_empty(), "not for long enough");
    let preview = engine.preview("default", 3 * MINUTE, 5, MINUTE).unwrap();
    let step = engine.balance("default", 3 * MINUTE).unwrap();
    let [migration] = step.migrations.as_slice() else { panic!("{step:?}") };
    assert_eq!((migration.vm.as_str(), migration.to.as_str()), ("small", "b"));
    assert_eq!(preview[0].migrations[0].vm, "small");
    // The migration occupies both hosts: nothing else moves.
    assert!(engine.balance("default", 4 * MINUTE).unwrap().migrations.is_empty());
    engine.confirm("small", 4 * MINUTE).unwrap();
    let explained = engine.explain(migration.decision).unwrap();
    assert!(explained.decision.placed());
}

#[test]
fn maintenance_empties_a_host_in_order() {
    let leaving = Host { status: HostStatus::PreparingForMaintenance, ..host("a") };
    let objects = vec![Object::Host(Box::new(leaving)), Object::Host(Box::new(host("b")))];
    let engine = engine("none", &[], objects);
    let ha = Vm { ha: true, ..vm("ha", "a", 10) };
    let big = Vm { memory_mb: 4096, ..vm("big", "a", 10) };
    engine.put([ha, big, vm("small", "a", 10)].map(|vm| Object::Vm(Box::new(vm))).to_vec()).unwrap();
    let mut order = Vec::new();
    for minute in 1..=4 {
        let step = engine.balance("default", minute * MINUTE).unwrap();
        for migration in step.migrations {
            engine.confirm(&migration.vm, minute * MINUTE).unwrap();
            order.push(migration.vm);
        }
    }
    assert_eq!(order, ["ha", "big", "small"]);
}

#[test]
fn power_saving_keeps_spare_hosts() {
    let objects = ["a", "b", "c", "d"].map(|name| Object::Host(Box::new(host(name))));
    let on = [("EnableAutomaticHostPowerManagement", "true"), ("HostsInReserve", "1")];
    let engine = engine("power_saving", &on, objects.to_vec());
    engine.put([vm("one", "a", 10), vm("two", "b", 20)].map(|vm| Object::Vm(Box::new(vm))).to_vec()).unwrap();
    let mut moved = 0;
    for minute in 10..40 {
        let step = engine.balance("default", minute * MINUTE).unwrap();
        assert!(step.migrations.len() <= 1);
        for migration in step.migrations {
            engine.confirm(&migration.vm, minute * MINUTE).unwrap();
            moved += 1;
        }
    }
    let up = engine.hosts(0).unwrap().into_iter().filter(|host| host.status == HostStatus::Up);
    let (empty, used): (Vec<_>, Vec<_>) = up.partition(|host| host.vms == 0);
    assert_eq!((moved, used.len(), empty.len()), (1, 1, 1));
}

#[test]
fn hosts_without_ha_reserve_are_reported() {
    let small = Host { memory_mb: 2048, ..host("b") };
    let objects = vec![Object::Host(Box::new(host("a"))), Object::Host(Box::new(small))];
    let engine = engine("none", &[], objects);
    engine.put(vec![Object::Cluster(Cluster { ha_reservation: true, ..Cluster::default() })]).unwrap();
    let vm = Vm { ha: true, memory_mb: 8192, ..vm("big", "a", 10) };
    engine.put(vec![Object::Vm(Box::new(vm))]).unwrap();
    assert_eq!(engine.balance("default", 1).unwrap().unsafe_hosts, ["a"]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Under any load, no VM moves twice in its cool-down, and no round moves more than one.
    #[test]
    fn balancing_causes_no_migration_storm(
        policy in prop::sample::select(vec!["evenly_distributed", "power_saving", "vm_evenly_distributed"]),
        loads in prop::collection::vec(prop::collection::vec(0u32..=100, 4), 40),
        groups in prop::collection::vec((0usize..12, 0usize..12, any::<bool>(), any::<bool>()), 40),
    ) {
        let names = ["a", "b", "c", "d"];
        let properties = [("HighVmCount", "2"), ("MigrationThreshold", "2")];
        let hosts = names.map(|name| Object::Host(Box::new(host(name))));
        let engine = engine(policy, &properties, hosts.to_vec());
        let vms = (0..12).map(|n| Object::Vm(Box::new(vm(&format!("v{n:02}"), names[n % 4], 5 * n as u32))));
        engine.put(vms.collect()).unwrap();
        let mut over: HashMap<&str, u64> = HashMap::new();
        let mut last: HashMap<String, u64> = HashMap::new();
        for (minute, (loads, (one, other, near, now_and_then))) in loads.into_iter().zip(groups).enumerate() {
            let now = (minute as u64 + 10) * MINUTE;
            // Groups change as well, and are then violated.
            if now_and_then {
                let rule = if near { Rule::Positive } else { Rule::Negative };
                let vms = [format!("v{one:02}"), format!("v{other:02}")];
                engine.put(vec![Object::Group(group("g", &[&vms[0], &vms[1]], rule))]).unwrap();
            }
            for (name, percent) in names.into_iter().zip(loads) {
                if percent >= 75 { over.entry(name).or_insert(now - 5 * MINUTE); } else { over.remove(name); }
                engine.put(vec![load(name, percent, over.get(name).copied())]).unwrap();
            }
            let step = engine.balance("default", now).unwrap();
            prop_assert!(step.migrations.len() <= 1);
            for migration in step.migrations {
                let before = last.insert(migration.vm.clone(), now);
                prop_assert!(before.is_none_or(|before| now - before >= 10 * MINUTE), "{:?}", migration);
                // Some migrations fail, and must not be retried at once.
                match minute % 3 {
                    0 => engine.release(&migration.vm).unwrap(),
                    _ => engine.confirm(&migration.vm, now).unwrap(),
                }
            }
        }
    }
}

fn group(name: &str, vms: &[&str], rule: Rule) -> AffinityGroup {
    AffinityGroup {
        name: name.into(),
        cluster: "default".into(),
        vms: vms.iter().map(|vm| vm.to_string()).collect(),
        vm_rule: rule,
        vm_enforcing: true,
        ..AffinityGroup::default()
    }
}

#[test]
fn enforced_groups_that_are_broken_are_repaired_one_vm_a_round() {
    let mut objects = ["a", "b", "c"].map(|name| Object::Host(Box::new(host(name)))).to_vec();
    let places = [("apart-1", "a"), ("apart-2", "a"), ("near-1", "b"), ("near-2", "b"), ("near-3", "c")];
    objects.extend(places.map(|(name, on)| Object::Vm(Box::new(vm(name, on, 10)))));
    objects.push(Object::Vm(Box::new(vm("home", "c", 10))));
    let at_home = AffinityGroup {
        hosts: vec!["a".into()],
        host_rule: Rule::Positive,
        host_enforcing: true,
        priority: 9,
        ..group("home", &["home"], Rule::Disabled)
    };
    let apart = AffinityGroup { priority: 5, ..group("apart", &["apart-1", "apart-2"], Rule::Negative) };
    let near = group("near", &["near-1", "near-2", "near-3"], Rule::Positive);
    let soft = AffinityGroup { vm_enforcing: false, ..group("soft", &["near-1", "home"], Rule::Positive) };
    objects.extend([at_home, apart, near, soft].map(Object::Group));
    let engine = engine("none", &[], objects);
    let preview = engine.preview("default", MINUTE, 10, MINUTE).unwrap();
    let mut moves = Vec::new();
    for minute in 1..=6 {
        let step = engine.balance("default", minute * MINUTE).unwrap();
        assert!(step.migrations.len() <= 1);
        for migration in step.migrations {
            assert_eq!(migration.reason, "affinity");
            engine.confirm(&migration.vm, minute * MINUTE).unwrap();
            moves.push((migration.vm, migration.to));
        }
    }
    let previewed: Vec<_> =
        preview.iter().flat_map(|step| &step.migrations).map(|it| (it.vm.clone(), it.to.clone())).collect();
    assert_eq!(moves, previewed, "a preview says what happens");
    let [(home, a), (apart, elsewhere), (near, b)] = moves.as_slice() else { panic!("{moves:?}") };
    assert_eq!((home.as_str(), a.as_str(), near.as_str(), b.as_str()), ("home", "a", "near-3", "b"));
    assert!(apart.starts_with("apart-") && elsewhere != "a");
}

#[test]
fn groups_are_repaired_only_under_a_policy_with_the_filter() {
    let mut objects = ["a", "b"].map(|name| Object::Host(Box::new(host(name)))).to_vec();
    objects.extend(["one", "two"].map(|name| Object::Vm(Box::new(vm(name, "a", 10)))));
    objects.push(Object::Group(group("apart", &["one", "two"], Rule::Negative)));
    let engine = engine("none", &[], objects);
    let policy = ringway_place::policy::read("p", "[policy.bare]\nfilters = [\"Memory\"]\n", &[]).unwrap();
    engine.put(policy.into_iter().map(Object::Policy).collect()).unwrap();
    engine.put(vec![Object::Cluster(Cluster { policy: "bare".into(), ..Cluster::default() })]).unwrap();
    assert!(engine.balance("default", MINUTE).unwrap().migrations.is_empty());
}

#[test]
fn pushed_loads_count_from_their_arrival() {
    let objects = ["a", "b"].map(|name| Object::Host(Box::new(host(name))));
    let engine = engine("evenly_distributed", &[], objects.to_vec());
    let vms = ["one", "two"].map(|name| Object::Vm(Box::new(vm(name, "a", 90))));
    engine.put(vms.to_vec()).unwrap();
    let push = |minute: u64, percent| engine.put_at(vec![load("a", percent, None)], minute * MINUTE).unwrap();
    let moved = |minute: u64| engine.balance("default", minute * MINUTE).unwrap().migrations.len();
    for (minute, percent) in [(1, 90), (2, 95)] {
        push(minute, percent);
        assert_eq!(moved(minute), 0, "not for long enough");
    }
    push(3, 60);
    assert_eq!(moved(4), 0, "it was not too high all the time");
    push(5, 90);
    push(6, 91);
    push(7, 92);
    assert_eq!(moved(6), 0);
    assert_eq!(moved(7), 1);
}

#[test]
fn vm_loads_are_used_without_a_host_load() {
    let objects = ["a", "b"].map(|name| Object::Host(Box::new(host(name))));
    let engine = engine("evenly_distributed", &[], objects.to_vec());
    let vms = ["1", "2", "3", "4"].map(|name| Object::Vm(Box::new(vm(name, "a", 90))));
    engine.put(vms.to_vec()).unwrap();
    let moved = |minute: u64| engine.balance("default", minute * MINUTE).unwrap().migrations.len();
    assert_eq!([1, 2, 3].map(moved), [0, 0, 1]);
}

#[test]
fn a_host_in_maintenance_stays_in_maintenance() {
    let status = |name: &str, status| Object::Host(Box::new(Host { status, ..host(name) }));
    let objects = vec![
        status("a", HostStatus::Up),
        status("b", HostStatus::Up),
        status("c", HostStatus::Maintenance),
        status("d", HostStatus::Down),
    ];
    let reserve =
        |hosts: &'static str| [("EnableAutomaticHostPowerManagement", "true"), ("HostsInReserve", hosts)];
    let engine = engine("power_saving", &reserve("2"), objects);
    engine.put(vec![Object::Vm(Box::new(vm("one", "a", 50)))]).unwrap();
    let power = |minute: u64| engine.balance("default", minute * MINUTE).unwrap().power;
    assert_eq!(power(1), None, "one empty host of two in reserve, and nobody to wake");
    let want = |hosts| {
        let properties = reserve(hosts).map(|(key, value)| (key.to_string(), value.to_string())).into();
        let cluster = Cluster { policy: "power_saving".into(), properties, ..Cluster::default() };
        engine.put(vec![Object::Cluster(cluster)]).unwrap();
    };
    want("0");
    assert_eq!(power(2), Some(("b".into(), HostStatus::Maintenance)));
    assert_eq!(power(3), Some(("b".into(), HostStatus::Down)));
    assert_eq!(power(4), None);
    want("1");
    assert_eq!(power(5), Some(("b".into(), HostStatus::Up)), "the policy's own comes back");
    want("0");
    assert_eq!(power(6), Some(("b".into(), HostStatus::Maintenance)));
    // An operator changes the status of a host: policies no longer control it.
    let read = || engine.view(|model| (*model.slot(model.host("b").unwrap()).unwrap().host).clone()).unwrap();
    for status in [HostStatus::Up, HostStatus::Maintenance] {
        engine.put(vec![Object::Host(Box::new(Host { status, ..read() }))]).unwrap();
    }
    assert_eq!(power(7), None);
    want("2");
    assert_eq!(power(8), None);
}

#[test]
fn power_is_saved_on_hosts_with_much_free_memory() {
    let objects = ["a", "b", "c"].map(|name| Object::Host(Box::new(host(name))));
    let properties = [("LowUtilization", "0"), ("MinFreeMemoryForUnderUtilized", "20000")];
    let engine = engine("power_saving", &properties, objects.to_vec());
    let big = Vm { memory_mb: 16_384, ..vm("big", "b", 50) };
    engine.put([vm("small", "a", 50), big].map(|vm| Object::Vm(Box::new(vm))).to_vec()).unwrap();
    let step = engine.balance("default", MINUTE).unwrap();
    let [migration] = step.migrations.as_slice() else { panic!("{step:?}") };
    assert_eq!((migration.vm.as_str(), migration.to.as_str()), ("small", "b"));
}
