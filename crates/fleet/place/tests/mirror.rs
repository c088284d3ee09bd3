//! Mirrored inventories, decisions for external schedulers, and fractions of CPUs.
#![allow(clippy::unwrap_used)]

use ringway_place::decide::PlacementRequest;
use ringway_place::engine::{Engine, Gone, Object};
use ringway_place::object::{Host, Vm, VmKind, VmStatus};
use ringway_place::store::Memory;
use std::sync::Arc;

fn host(name: &str, cores: u32, reserved_milli_cpus: u32) -> Object {
    let host = Host {
        name: name.into(),
        cores,
        threads: cores,
        reserved_milli_cpus,
        memory_mb: 8192,
        ..Host::default()
    };
    Object::Host(Box::new(host))
}

fn pod(name: &str, milli: u32) -> Vm {
    let policy = Some("packing".to_string());
    let cores = milli.div_ceil(1000).max(1);
    Vm {
        name: name.into(),
        kind: VmKind::Function,
        cores,
        milli_cpus: Some(milli),
        memory_mb: 1,
        policy,
        ..Vm::default()
    }
}

fn on(host: &str, vm: Vm) -> Object {
    Object::Vm(Box::new(Vm { host: Some(host.into()), status: VmStatus::Up, ..vm }))
}

fn engine() -> Engine {
    let engine = Engine::open(Arc::new(Memory::default())).unwrap();
    engine.put(vec![host("a", 2, 80), host("b", 4, 0)]).unwrap();
    engine
}

fn ask(vm: &str) -> PlacementRequest {
    PlacementRequest { vms: vec![vm.into()], now: 1, seed: 7, ..PlacementRequest::default() }
}

fn best(engine: &Engine, vm: Vm) -> Option<String> {
    let (decision, _) = engine.advise(&ask(&vm.name), vec![vm.clone()], |_| true).unwrap();
    decision.choices[0].host.clone()
}

#[test]
fn cpus_are_counted_in_thousandths() {
    let engine = engine();
    let pods = |range: std::ops::Range<u32>| range.map(|at| on("a", pod(&format!("p{at}"), 100))).collect();
    engine.mirror(pods(0..18), &[]).unwrap();
    let row = engine.hosts(1).unwrap().remove(0);
    assert_eq!((row.vms, row.vcpus), (18, 1.8));
    // Of 2 CPUs the host keeps 0.08.
    assert_eq!(best(&engine, pod("fits", 120)).as_deref(), Some("a"));
    let (decision, traces) = engine.advise(&ask("over"), vec![pod("over", 121)], |_| true).unwrap();
    assert_eq!(decision.choices[0].host.as_deref(), Some("b"));
    let reason = &traces[0].hosts.iter().find(|host| host.host == "a").unwrap().rejected[0];
    assert_eq!(reason.reason, "1.8 virtual CPUs are on its 1.92 CPUs; 0.121 more exceed the limit");
    assert_eq!(best(&engine, pod("nothing", 0)).as_deref(), Some("a"));
}

#[test]
fn advice_is_stored_and_explained_and_reserves_nothing() {
    let engine = engine();
    let (decision, _) = engine.advise(&ask("p"), vec![pod("p", 1500)], |_| true).unwrap();
    assert!(decision.placed() && decision.id == 1);
    assert!(engine.view(|model| model.pendings().is_empty() && model.vm("p").is_none()).unwrap());
    assert_eq!(engine.decisions(5).unwrap().first(), Some(&decision));
    // Everything has changed since.
    engine.mirror(vec![on("a", pod("q", 1900))], &[Gone::Host("b".into())]).unwrap();
    let explained = engine.explain(1).unwrap();
    assert_eq!((explained.decision, explained.note.as_str()), (decision, ""));
    assert_eq!(explained.traces[0].hosts.len(), 2);
    let (failed, _) = engine.advise(&ask("p"), vec![pod("p", 1500)], |_| true).unwrap();
    assert!(!failed.placed() && failed.id == 2);
    let explained = engine.explain(2).unwrap();
    assert!(explained.traces[0].hosts[0].rejected[0].reason.contains("1.5 more exceed the limit"));
}

#[test]
fn vms_running_elsewhere_lose_reservations_and_hosts_are_removed_with_their_vms() {
    let engine = engine();
    engine.put(vec![Object::Vm(Box::new(pod("p", 1000)))]).unwrap();
    let only = std::collections::BTreeSet::from(["a".to_string()]);
    assert!(engine.place(PlacementRequest { only, ..ask("p") }).unwrap().placed());
    assert_eq!(engine.hosts(1).unwrap()[0].pending, 1);
    engine.mirror(vec![on("b", pod("p", 1000))], &[]).unwrap();
    let rows = engine.hosts(1).unwrap();
    assert_eq!((rows[0].pending, rows[1].vms), (0, 1));
    let revision = engine.mirror(Vec::new(), &[Gone::Host("b".into())]).unwrap();
    assert_eq!(engine.hosts(1).unwrap().len(), 1);
    assert_eq!(engine.mirror(Vec::new(), &[]).unwrap(), revision, "nothing is written for nothing");
    // The node is back: its VMs count.
    engine.mirror(vec![host("b", 4, 0)], &[]).unwrap();
    assert_eq!(engine.hosts(1).unwrap()[1].vms, 1);
    engine.mirror(Vec::new(), &[Gone::Vm("p".into())]).unwrap();
    assert_eq!(engine.hosts(1).unwrap()[1].vms, 0);
}
