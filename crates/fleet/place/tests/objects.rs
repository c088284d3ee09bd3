//! Adding and deleting objects, and the checks on it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ringway_place::decide::PlacementRequest;
use ringway_place::engine::{Engine, EngineError, Object, REMOVABLE};
use ringway_place::object::{
    AffinityGroup, Blacklist, Cluster, Fact, Host, Load, Port, PortLoad, Vm, VmStatus,
};
use ringway_place::policy::Policy;
use ringway_place::store::{Embedded, Memory};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

const NOW: u64 = 1_800_000_000_000;

fn host(name: &str) -> Object {
    let ports = vec![Port { name: "p0".into(), ..Port::default() }];
    Object::Host(Box::new(Host { name: name.into(), memory_mb: 8192, ports, ..Host::default() }))
}

fn vm(name: &str, host: Option<&str>) -> Vm {
    let status = if host.is_some() { VmStatus::Up } else { VmStatus::Down };
    Vm { name: name.into(), host: host.map(String::from), status, memory_mb: 64, ..Vm::default() }
}

fn fact(host: &str, name: &str) -> Object {
    Object::Fact(Fact { host: host.into(), name: name.into(), value: 1.0, ..Fact::default() })
}

fn full() -> Engine {
    let engine = Engine::open(Arc::new(Memory::default())).unwrap();
    let policy = Policy { name: "night".into(), balancer: "None".into(), ..Policy::default() };
    let used = Cluster { name: "used".into(), policy: "night".into(), ..Cluster::default() };
    let objects = vec![
        Object::Policy(policy),
        Object::Cluster(used),
        Object::Cluster(Cluster { name: "empty".into(), interval: 7, ..Cluster::default() }),
        host("a"),
        host("b"),
        fact("b", "heat"),
        Object::Load(Load { host: "b".into(), cpu_percent: Some(3), ..Load::default() }),
        Object::Blacklist(Blacklist { host: "b".into(), ..Blacklist::default() }),
        Object::Vm(Box::new(vm("v", Some("a")))),
        Object::Vm(Box::new(Vm { cluster: "used".into(), ..vm("w", None) })),
        Object::Group(AffinityGroup {
            name: "g".into(),
            cluster: "default".into(),
            ..AffinityGroup::default()
        }),
    ];
    engine.put(objects).unwrap();
    engine
}

#[test]
fn only_unused_objects_can_be_removed() {
    let engine = full();
    let refused = |kind: &str, name: &str| engine.remove(kind, name).unwrap_err();
    for (kind, name, why) in [
        ("host", "a", "host a has VM v"),
        ("policy", "none", "policy none is built in"),
        ("policy", "night", "policy night is that of cluster used"),
        ("cluster", "used", "cluster used has VM w"),
        ("cluster", "default", "cluster default has host a"),
    ] {
        assert_eq!(refused(kind, name), EngineError::InUse(why.into()));
    }
    for kind in REMOVABLE {
        let EngineError::NoObject(what) = refused(kind, "nobody") else { panic!("{kind}") };
        assert!(what.starts_with("there is no ") && what.ends_with(" nobody"), "{what}");
    }
    for kind in ["", "pending", "fact", "claim", "decision", "described", "hosts"] {
        let EngineError::NoObject(what) = refused(kind, "b") else { panic!("{kind}") };
        assert!(what.contains("host, vm, group"), "{what}");
    }
    assert_eq!(
        engine.remove_fact("b", "cold").unwrap_err().to_string(),
        "there is no fact cold about host b"
    );
    engine.remove_fact("b", "heat").unwrap();
    for (kind, name) in [
        ("cluster", "empty"),
        ("vm", "w"),
        ("cluster", "used"),
        ("policy", "night"),
        ("group", "g"),
        ("load", "b"),
    ] {
        engine.remove(kind, name).unwrap();
        assert!(matches!(refused(kind, name), EngineError::NoObject(_)), "{kind}/{name} went twice");
    }
}

/// Measurements of a deleted host don't apply to a later host of the same name.
#[test]
fn removing_a_host_removes_its_facts_and_load() {
    let engine = full();
    engine.remove("host", "b").unwrap();
    engine.put(vec![host("b")]).unwrap();
    let row = engine.hosts(NOW).unwrap().into_iter().find(|row| row.name == "b").unwrap();
    assert!(row.facts.is_empty() && row.blacklisted.is_empty(), "{row:?}");
    assert!(engine.view(|model| model.load("b").is_none()).unwrap());
    // A reservation keeps its host.
    engine.put(vec![Object::Vm(Box::new(vm("n", None)))]).unwrap();
    let only = std::collections::BTreeSet::from(["b".to_string()]);
    let ask = PlacementRequest { vms: vec!["n".into()], only, now: NOW, ..PlacementRequest::default() };
    assert!(engine.place(ask).unwrap().placed());
    assert_eq!(engine.remove("host", "b").unwrap_err().to_string(), "host b has VM n");
    engine.remove("vm", "n").unwrap();
    engine.remove("host", "b").unwrap();
}

#[test]
fn objects_must_refer_to_existing_ones() {
    let engine = full();
    let load = |host: &str, port: &str| {
        let ports = vec![PortLoad { name: port.into(), ..PortLoad::default() }];
        Object::Load(Load { host: host.into(), ports, ..Load::default() })
    };
    let boxed = |vm: Vm| Object::Vm(Box::new(vm));
    let later = Some(NOW + 3_600_000);
    for (object, what) in [
        (fact("nobody", "t"), "fact t about host nobody: there is no host nobody"),
        (load("nobody", "p0"), "load of host nobody: there is no host nobody"),
        (load("a", "p9"), "load of host a: host a has no port p9"),
        (
            Object::Blacklist(Blacklist { host: "nobody".into(), ..Blacklist::default() }),
            "blacklist entry of host nobody: there is no host nobody",
        ),
        (boxed(vm("x", Some("nobody"))), "VM x: there is no host nobody"),
        (boxed(Vm { policy: Some("nobody's".into()), ..vm("x", None) }), "VM x: there is no policy"),
        (boxed(Vm { moved_at: later, ..vm("x", None) }), "VM x: `moved_at` is "),
        (
            Object::Load(Load { host: "a".into(), over_since: later, ..Load::default() }),
            "load of host a: `over_since` is ",
        ),
    ] {
        let error = engine.check_names(&[host("c"), object], NOW).unwrap_err();
        assert!(matches!(error, EngineError::Wrong(_)) && error.to_string().starts_with(what), "{error}");
    }
    // Objects of the same request count as existing.
    let good = [fact("c", "t"), load("c", "p0"), boxed(vm("x", Some("c"))), host("c")];
    engine.check_names(&good, NOW).unwrap();
    engine.check_names(&[boxed(Vm { moved_at: Some(NOW), ..vm("x", None) })], NOW).unwrap();
}

/// Names and locations of VMs are readable for the files' owner only.
#[test]
fn files_of_a_store_are_private() {
    let folder = std::env::temp_dir().join(format!("rw-private-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("placement.redb");
    let modes = || {
        let log = folder.join("placement.redb.log");
        [&path, &log].map(|file| std::fs::metadata(file).unwrap().permissions().mode() & 0o777)
    };
    drop(Embedded::open(&path, NOW).unwrap());
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    // Opening the store removes the permissions of other users.
    let store = Embedded::open(&path, NOW).unwrap();
    assert_eq!(modes(), [0o600, 0o600]);
    drop(store);
    std::fs::remove_dir_all(&folder).unwrap();
}
