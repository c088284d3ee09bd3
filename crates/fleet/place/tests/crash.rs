//! Crashes at every point: acknowledged changes survive, no change is partial, no reservation stays forever.
#![allow(clippy::unwrap_used)]

use ringway_place::decide::PlacementRequest;
use ringway_place::engine::{Engine, EngineError, LEASE, Object};
use ringway_place::object::{Host, Vm};
use ringway_place::store::*;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const HOSTS: usize = 4;
/// Number of VMs that fit.
const FIT: usize = HOSTS * 3;

fn objects() -> Vec<Object> {
    let host = |index: usize| {
        let size = Host { cores: 8, threads: 8, memory_mb: 4096, ..Host::default() };
        Object::Host(Box::new(Host { name: format!("h{index}"), ..size }))
    };
    let vm = |index: usize| {
        Object::Vm(Box::new(Vm { name: format!("v{index}"), memory_mb: 1100, ..Vm::default() }))
    };
    (0..HOSTS).map(host).chain((0..FIT + 4).map(vm)).collect()
}

fn ask(index: usize) -> PlacementRequest {
    PlacementRequest {
        vms: vec![format!("v{index}")],
        seed: index as u64,
        now: 1,
        ..PlacementRequest::default()
    }
}

/// Invariants after opening a store: reservations and decisions match, no host is overbooked, and all
/// reservations end.
fn check(store: Arc<dyn Store>) -> BTreeMap<String, u64> {
    let engine = Engine::open(store).unwrap();
    let pendings = engine.view(|model| model.pendings().clone()).unwrap();
    for pending in pendings.values() {
        let decision = engine.decision(pending.decision).unwrap();
        let chosen = decision.choices.iter().find(|choice| choice.vms.contains(&pending.vm)).unwrap();
        assert_eq!(chosen.host.as_ref(), Some(&pending.host));
        assert_eq!(engine.explain(pending.decision).unwrap().note, "");
    }
    let decisions = engine.decisions(100).unwrap();
    let placed: Vec<&String> = decisions
        .iter()
        .filter(|decision| decision.placed())
        .flat_map(|decision| &decision.ask.vms)
        .collect();
    assert_eq!(placed.len(), pendings.len());
    assert!(engine.hosts(1).unwrap().iter().all(|host| host.schedulable_mb >= 0 && host.pending <= 3));
    let promised = pendings.iter().map(|(vm, pending)| (vm.clone(), pending.decision)).collect();
    // The engine continues where it stopped.
    let next = (0..FIT + 4).find(|index| !pendings.contains_key(&format!("v{index}"))).unwrap();
    let decision = engine.place(ask(next)).unwrap();
    assert_eq!(decision.placed(), pendings.len() < FIT);
    engine.expire(1 + LEASE).unwrap();
    assert!(engine.view(|model| model.pendings().is_empty()).unwrap());
    assert!(engine.hosts(1).unwrap().iter().all(|host| host.pending == 0));
    promised
}

/// A store that accepts a number of modifying calls and then fails.
struct Dying(Arc<Memory>, AtomicUsize);

impl Dying {
    fn lives(&self) -> Result<(), StoreError> {
        let left = self.1.load(Ordering::Relaxed);
        self.1.store(left.saturating_sub(1), Ordering::Relaxed);
        if left > 0 { Ok(()) } else { Err(StoreError::File("it died".into())) }
    }
}

impl Store for Dying {
    fn range(&self, prefix: &str, at: Option<Revision>) -> Result<(Revision, Vec<Entry>), StoreError> {
        self.0.range(prefix, at)
    }
    fn transact(&self, compares: &[Compare], ops: Vec<Op>) -> Result<Revision, StoreError> {
        self.lives()?;
        self.0.transact(compares, ops)
    }
    fn watch(&self, after: Revision) -> Result<Vec<Event>, StoreError> {
        self.0.watch(after)
    }
    fn oldest(&self) -> Revision {
        self.0.oldest()
    }
    fn lease(&self, ttl: u64, now: u64) -> Result<LeaseId, StoreError> {
        self.lives()?;
        self.0.lease(ttl, now)
    }
    fn keep_alive(&self, lease: LeaseId, now: u64) -> Result<(), StoreError> {
        self.0.keep_alive(lease, now)
    }
    fn expire(&self, now: u64) -> Result<(), StoreError> {
        self.0.expire(now)
    }
    fn compact(&self, before: Revision) -> Result<(), StoreError> {
        self.0.compact(before)
    }
    fn durable(&self, revision: Revision) -> Result<(), StoreError> {
        self.lives()?;
        self.0.durable(revision)
    }
}

#[test]
fn a_crash_between_any_two_steps_loses_nothing() {
    for lives in 0..3 * FIT {
        let memory = Arc::new(Memory::default());
        Engine::open(memory.clone()).unwrap().put(objects()).unwrap();
        let engine = Engine::open(Arc::new(Dying(memory.clone(), AtomicUsize::new(lives)))).unwrap();
        let mut acknowledged = Vec::new();
        for index in 0..FIT + 4 {
            match engine.place(ask(index)) {
                Ok(decision) => acknowledged.push((format!("v{index}"), decision.id)),
                Err(error) => {
                    assert_eq!(error, EngineError::Store(StoreError::File("it died".into())));
                    break;
                }
            }
        }
        drop(engine);
        let promised = check(memory);
        for (vm, id) in acknowledged.iter().take(FIT) {
            assert_eq!(promised.get(vm), Some(id), "after {lives} steps");
        }
        // An unacknowledged change is complete or absent; at most the last one is unacknowledged.
        assert!(promised.len() <= acknowledged.len() + 1, "after {lives} steps");
    }
}

const FILE: &str = "RINGWAY_PLACE_CRASH";

/// Places VMs one by one in the store at `path`, and prints each when it is acknowledged.
fn place_until_killed(path: &str) -> ! {
    let engine = Engine::open(Arc::new(Embedded::open(Path::new(path), 1).unwrap())).unwrap();
    engine.put(objects()).unwrap();
    for index in 0..FIT {
        let decision = engine.place(ask(index)).unwrap();
        println!("\nplaced v{index} {}", decision.id);
    }
    loop {
        std::thread::park();
    }
}

#[test]
fn a_killed_process_keeps_acknowledged_decisions() {
    if let Ok(path) = std::env::var(FILE) {
        place_until_killed(&path);
    }
    for after in [1, 4, FIT] {
        let folder = std::env::temp_dir().join(format!("rw-place-crash-{}-{after}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("placement.redb");
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::a_killed_process_keeps_acknowledged_decisions", "--nocapture"])
            .env(FILE, &path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let decisions = lines.filter_map(|line| {
            let mut words = line.strip_prefix("placed ")?.split(' ').map(str::to_string);
            Some((words.next()?, words.next()?.parse().ok()?))
        });
        let acknowledged: Vec<(String, u64)> = decisions.take(after).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(acknowledged.len(), after);
        let promised = check(Arc::new(Embedded::open(&path, 1).unwrap()));
        std::fs::remove_dir_all(&folder).unwrap();
        for (vm, id) in &acknowledged {
            assert_eq!(promised.get(vm), Some(id));
        }
    }
}
