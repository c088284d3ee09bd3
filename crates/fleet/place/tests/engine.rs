//! The engine as a whole: decisions, reservations, explanations, balancing.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringway_place::decide::PlacementRequest;
use ringway_place::engine::{Engine, EngineError, HISTORY, LEASE, Object};
use ringway_place::object::*;
use ringway_place::store::{Embedded, Memory, Store, StoreError};
use ringway_place::unit::*;
use std::collections::BTreeMap;
use std::sync::Arc;

fn host(name: &str, cores: u32, memory_mb: u64) -> Object {
    Object::Host(Box::new(Host { name: name.into(), cores, threads: cores, memory_mb, ..Host::default() }))
}

fn vm(name: &str, cores: u32, memory_mb: u64) -> Vm {
    Vm { name: name.into(), cores, memory_mb, ..Vm::default() }
}

fn put(engine: &Engine, vm: Vm) {
    engine.put(vec![Object::Vm(Box::new(vm))]).unwrap();
}

fn engine(objects: Vec<Object>) -> Engine {
    let engine = Engine::open(Arc::new(Memory::default())).unwrap();
    engine.put(objects).unwrap();
    engine
}

fn ask(vms: &[&str], now: u64) -> PlacementRequest {
    PlacementRequest {
        vms: vms.iter().map(ToString::to_string).collect(),
        now,
        seed: 7,
        ..PlacementRequest::default()
    }
}

fn chosen(engine: &Engine, ask: PlacementRequest) -> Vec<Option<String>> {
    engine.place(ask).unwrap().choices.into_iter().map(|choice| choice.host).collect()
}

#[test]
fn the_emptier_host_is_chosen_and_recorded() {
    let engine = engine(vec![host("a", 4, 8192), host("b", 8, 16_384)]);
    put(&engine, vm("one", 2, 2048));
    assert_eq!(chosen(&engine, ask(&["one"], 1)), [Some("b".to_string())]);
    let rows = engine.hosts(1).unwrap();
    assert_eq!((rows[1].pending, rows[0].pending), (1, 0));
    engine.confirm("one", 2).unwrap();
    let rows = engine.hosts(2).unwrap();
    assert_eq!((rows[1].pending, rows[1].vms), (0, 1));
    assert!(matches!(engine.confirm("one", 3), Err(EngineError::NoPending(_))));
}

#[test]
fn a_reservation_ends_with_its_lease_or_by_request() {
    let engine = engine(vec![host("a", 4, 4096)]);
    put(&engine, vm("one", 1, 2048));
    put(&engine, vm("two", 1, 2048));
    assert!(engine.place(ask(&["one"], 1000)).unwrap().placed());
    let full = engine.place(ask(&["two"], 1000)).unwrap();
    assert!(!full.placed() && full.choices[0].may_wait);
    assert!(full.choices[0].why().contains("Memory removed 1"), "{}", full.choices[0].why());
    engine.expire(1000 + LEASE).unwrap();
    assert!(engine.place(ask(&["two"], 2000)).unwrap().placed());
    engine.release("two").unwrap();
    assert!(engine.place(ask(&["one"], 3000)).unwrap().placed());
}

#[test]
fn a_chain_is_placed_completely_or_not_at_all() {
    let engine = engine(vec![host("a", 4, 4096), host("b", 4, 4096)]);
    for name in ["f0", "f1", "f2"] {
        put(&engine, vm(name, 1, 2500));
    }
    let decision = engine.place(ask(&["f0", "f1", "f2"], 1)).unwrap();
    assert!(!decision.placed());
    assert!(engine.view(|model| model.pendings().is_empty()).unwrap());
    assert!(engine.place(ask(&["f0", "f1"], 1)).unwrap().placed());
}

#[test]
fn affinity_groups_attract_and_separate() {
    let engine = engine(vec![host("a", 8, 16_384), host("b", 8, 16_384), host("c", 8, 16_384)]);
    for name in ["x", "y", "z"] {
        put(&engine, vm(name, 1, 1024));
    }
    let group = |name: &str, vms: &[&str], rule| {
        Object::Group(AffinityGroup {
            name: name.into(),
            cluster: "default".into(),
            vms: vms.iter().map(ToString::to_string).collect(),
            vm_rule: rule,
            vm_enforcing: true,
            ..AffinityGroup::default()
        })
    };
    engine
        .put(vec![
            group("together", &["x", "y"], Rule::Positive),
            group("apart", &["y", "z"], Rule::Negative),
        ])
        .unwrap();
    let decision = engine.place(ask(&["x", "z", "y"], 1)).unwrap();
    assert_eq!(decision.choices[0].vms, ["x", "y"]);
    assert_ne!(decision.choices[0].host, decision.choices[1].host);
    // Contradicting groups are reported and cause no endless loop.
    engine.release("x").unwrap();
    engine.release("y").unwrap();
    engine.put(vec![group("contra", &["x", "y"], Rule::Negative)]).unwrap();
    let decision = engine.place(ask(&["x", "y"], 1)).unwrap();
    assert!(!decision.placed());
    let why = engine.why_not("a", &ask(&["x", "y"], 1)).unwrap();
    assert!(why.rejected.iter().any(|verdict| verdict.reason.contains("group contra")), "{why:?}");
}

#[test]
fn facts_affect_the_next_decision_and_expire() {
    let engine = engine(vec![host("a", 4, 8192), host("b", 4, 4096)]);
    let policy = ringway_place::policy::read(
        "p",
        "[policy.cool]\nbase = \"packing\"\nproperties = { FactFilter = \"temperature < 70\" }",
        &[],
    );
    engine.put(policy.unwrap().into_iter().map(Object::Policy).collect()).unwrap();
    put(&engine, Vm { policy: Some("cool".into()), ..vm("one", 1, 512) });
    let fact = |host: &str, value, until| {
        let fact = Fact { host: host.into(), name: "temperature".into(), value, until, pushed: None };
        engine.put(vec![Object::Fact(fact)]).unwrap();
    };
    assert!(!engine.place(ask(&["one"], 1)).unwrap().placed());
    fact("a", 80.0, None);
    fact("b", 50.0, Some(100));
    assert_eq!(chosen(&engine, ask(&["one"], 1)), [Some("b".to_string())]);
    assert!(!engine.place(ask(&["one"], 100)).unwrap().placed());
    let why = engine.why_not("a", &ask(&["one"], 1)).unwrap();
    assert!(why.rejected.iter().any(|verdict| verdict.reason == "temperature is 80"), "{why:?}");
    let entry = Blacklist { host: "b".into(), reason: "fan".into(), until: None };
    fact("a", 60.0, None);
    engine.put(vec![Object::Blacklist(entry)]).unwrap();
    assert_eq!(chosen(&engine, ask(&["one"], 1)), [Some("a".to_string())]);
}

#[test]
fn absurd_figures_are_refused() {
    let engine = engine(vec![]);
    let absurd = engine.put(vec![host("a", 4, 1 << 40)]).unwrap_err().to_string();
    assert_eq!(absurd, "host a: `memory_mb` is 1099511627776; permitted: 1 to 1073741824");
    let fact = Fact { host: "a".into(), name: "t".into(), value: f64::NAN, until: None, pushed: None };
    assert!(engine.put(vec![Object::Fact(fact)]).is_err());
    assert!(engine.hosts(0).unwrap().is_empty());
    assert!(engine.remove("policy", "none").is_err());
}

#[test]
fn a_decision_is_explained_from_its_revision() {
    let engine = engine((0..30).map(|n| host(&format!("h{n:02}"), 4 + n % 3, 8192)).collect());
    for n in 0..20u32 {
        put(&engine, vm(&format!("v{n}"), 1 + n % 3, 1024));
    }
    let mut decisions = Vec::new();
    for n in 0..20u32 {
        let decision = engine.place(ask(&[&format!("v{n}")], u64::from(n))).unwrap();
        if n % 2 == 0 {
            engine.confirm(&format!("v{n}"), u64::from(n)).unwrap();
        }
        decisions.push(decision);
    }
    engine.remove("host", "h29").unwrap_err();
    for decision in decisions {
        let explained = engine.explain(decision.id).unwrap();
        assert_eq!((explained.note.as_str(), &explained.decision), ("", &decision));
        let choice = &decision.choices[0];
        let trace = &explained.traces[0];
        assert_eq!(trace.hosts.len(), 30);
        let best = trace.hosts.iter().filter_map(|host| host.score).fold(f64::MIN, f64::max);
        let host = trace.hosts.iter().find(|host| Some(&host.host) == choice.host.as_ref()).unwrap();
        assert_eq!(host.score, Some(best));
        for host in &trace.hosts {
            let sum: f64 = host.weights.iter().map(|weight| f64::from(weight.factor) * weight.points).sum();
            assert!(host.score.is_none_or(|score| (score - sum).abs() < 1e-6), "{host:?}");
            assert_eq!(host.removed_by.is_none(), host.rejected.is_empty());
        }
    }
}

#[test]
fn a_decision_outlives_the_revision_it_was_made_at() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let engine = Engine::open(store.clone()).unwrap();
    engine.put(vec![host("a", 8, 8192), host("b", 4, 1024)]).unwrap();
    put(&engine, vm("one", 1, 2048));
    let decision = engine.place(ask(&["one"], 1)).unwrap();
    let explained = engine.explain(decision.id).unwrap();
    for value in 0..HISTORY {
        let fact =
            Fact { host: "a".into(), name: "t".into(), value: value as f64, until: None, pushed: None };
        engine.put(vec![Object::Fact(fact)]).unwrap();
    }
    engine.tidy().unwrap();
    assert!(store.range("", Some(decision.revision)).is_ok(), "first it is written down");
    engine.tidy().unwrap();
    assert!(matches!(store.range("", Some(decision.revision)), Err(StoreError::Compacted { .. })));
    for engine in [&engine, &Engine::open(store.clone()).unwrap()] {
        assert_eq!(engine.explain(decision.id).unwrap(), explained);
        engine.tidy().unwrap();
    }
}

/// The reservations of hosts never exceed their resources.
fn nothing_is_overbooked(engine: &Engine, memory: u64) -> bool {
    let mut promised: BTreeMap<String, u64> = BTreeMap::new();
    let places = engine.view(|model| {
        let of = |slot: &ringway_place::model::VmSlot| {
            let place = slot.place().and_then(|place| model.slot(place));
            place.map(|host| (host.host.name.clone(), slot.need.committed as u64))
        };
        model.vm_slots().filter_map(of).collect::<Vec<_>>()
    });
    for (host, need) in places.unwrap() {
        *promised.entry(host).or_default() += need;
    }
    promised.values().all(|promised| *promised <= memory)
}

#[test]
fn concurrent_requests_never_overbook() {
    let store: Arc<dyn Store> = Arc::new(Memory::default());
    let engines: Vec<Engine> = (0..3).map(|_| Engine::open(store.clone()).unwrap()).collect();
    engines[0].put((0..6).map(|n| host(&format!("h{n}"), 64, 8192)).collect()).unwrap();
    for n in 0..60 {
        put(&engines[0], vm(&format!("v{n}"), 1, 1500));
    }
    let placed: usize = std::thread::scope(|scope| {
        let run = |index: usize| {
            let engine = &engines[index % 3];
            (0..10)
                .filter(|n| {
                    let name = format!("v{}", index * 10 + n);
                    engine.place(ask(&[&name], 1)).is_ok_and(|decision| decision.placed())
                })
                .count()
        };
        let threads: Vec<_> = (0..6).map(|index| scope.spawn(move || run(index))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    // Five VMs of 1500 MB, with overhead, fit on each host.
    assert_eq!(placed, 30);
    for engine in &engines {
        assert!(nothing_is_overbooked(engine, 8192));
        assert_eq!(engine.view(|model| model.pendings().len()).unwrap(), 30);
    }
}

#[derive(Clone, Debug)]
enum Step {
    Place(usize, usize),
    Confirm(usize, usize),
    Release(usize, usize),
    Stop(usize, usize),
    Expire(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let (engine, vm) = (0..2usize, 0..12usize);
    prop_oneof![
        4 => (engine.clone(), vm.clone()).prop_map(|(e, v)| Step::Place(e, v)),
        2 => (engine.clone(), vm.clone()).prop_map(|(e, v)| Step::Confirm(e, v)),
        1 => (engine.clone(), vm.clone()).prop_map(|(e, v)| Step::Release(e, v)),
        1 => (engine, vm).prop_map(|(e, v)| Step::Stop(e, v)),
        1 => (1..LEASE).prop_map(Step::Expire),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// With two engines on one store, nothing is overbooked, nothing leaks, and both have the same state.
    #[test]
    fn no_sequence_overbooks_or_leaks(steps in prop::collection::vec(step(), 1..60)) {
        let store: Arc<dyn Store> = Arc::new(Memory::default());
        let engines = [Engine::open(store.clone()).unwrap(), Engine::open(store.clone()).unwrap()];
        engines[0].put(vec![host("a", 16, 4096), host("b", 16, 4096)]).unwrap();
        for n in 0..12 {
            put(&engines[0], vm(&format!("v{n}"), 1, 900));
        }
        let mut now = 0;
        for step in steps {
            match step {
                Step::Place(e, v) => { let _ = engines[e].place(ask(&[&format!("v{v}")], now)); }
                Step::Confirm(e, v) => { let _ = engines[e].confirm(&format!("v{v}"), now); }
                Step::Release(e, v) => { let _ = engines[e].release(&format!("v{v}")); }
                Step::Stop(e, v) => {
                    let _ = engines[e].release(&format!("v{v}"));
                    put(&engines[e], vm(&format!("v{v}"), 1, 900));
                }
                Step::Expire(ms) => { now += ms; engines[0].expire(now).unwrap(); }
            }
            prop_assert!(nothing_is_overbooked(&engines[0], 4096));
        }
        let rows = engines[0].hosts(now).unwrap();
        prop_assert_eq!(&rows, &engines[1].hosts(now).unwrap());
        prop_assert_eq!(&rows, &Engine::open(store.clone()).unwrap().hosts(now).unwrap());
        engines[1].expire(now + LEASE).unwrap();
        prop_assert!(engines[0].view(|model| model.pendings().is_empty()).unwrap());
    }
}

/// Two filters, one of which hangs, and a weight that leaves a host out.
struct Plugin;
impl External for Plugin {
    fn units(&mut self) -> Vec<ExternalUnit> {
        let unit = |name: &str, kind| ExternalUnit {
            name: name.into(),
            kind,
            description: String::new(),
            properties: "most=[0-9]+".into(),
        };
        vec![
            unit("only_b", ExternalKind::Filter),
            unit("broken", ExternalKind::Filter),
            unit("names", ExternalKind::Score),
        ]
    }
    fn snapshot(&mut self, _: Vec<HostView>, _: Vec<VmView>) -> Result<(), ExternalError> {
        Ok(())
    }
    fn deltas(&mut self, _: Vec<Delta>) -> Result<(), ExternalError> {
        Ok(())
    }
    fn filter(&mut self, units: &[String], question: &Question<'_>) -> Outcome<Rejected> {
        assert!(question.hosts.is_sorted());
        let place = |name: &str| question.hosts.iter().position(|host| *host == name);
        let answer = |unit: &String| match unit.as_str() {
            "only_b" => {
                // An unused index is ignored.
                let hosts = place("a").into_iter().chain([77]);
                Ok(Rejected { hosts: hosts.map(|at| (at as u32, "it is a".to_string())).collect() })
            }
            _ => Err(ExternalError { unit: unit.clone(), what: "it hangs".into() }),
        };
        units.iter().map(|unit| (unit.clone(), answer(unit))).collect()
    }
    fn score(&mut self, units: &[(String, u32)], question: &Question<'_>) -> Outcome<Scores> {
        let score = |host: &&str| match *host {
            "c" => Some(1),
            "b" => Some(9),
            _ => None,
        };
        let scores: Scores = question.hosts.iter().map(score).collect();
        units.iter().map(|(unit, _)| (unit.clone(), Ok(scores.clone()))).collect()
    }
    fn balance(
        &mut self,
        _: &str,
        _: &[String],
        _: &BTreeMap<String, String>,
    ) -> Result<Vec<ExternalAction>, ExternalError> {
        Ok(Vec::new())
    }
}

#[test]
fn a_filter_that_fails_refuses_unless_the_policy_skips_it() {
    let engine = engine(vec![host("a", 8, 8192), host("b", 4, 4096), host("c", 4, 4096)]);
    engine.attach(Box::new(Plugin));
    let text = |required: &str| {
        format!(
            "[policy.p]\nfilters = [\"Memory\", \"only_b\", \"broken\"]\n\
            weights = {{ names = 1 }}\n{required}"
        )
    };
    let set = |required: &str| {
        let policies = ringway_place::policy::read("p", &text(required), &Plugin.units()).unwrap();
        engine.put(policies.into_iter().map(Object::Policy).collect()).unwrap();
    };
    set("on-error = { broken = \"skip\" }");
    put(&engine, Vm { policy: Some("p".into()), ..vm("one", 1, 512) });
    let decision = engine.place(ask(&["one"], 1)).unwrap();
    assert_eq!(decision.choices[0].host.as_deref(), Some("c"));
    assert_eq!(decision.choices[0].errors, ["broken: it hangs"]);
    let explained = engine.explain(decision.id).unwrap();
    assert_eq!((explained.note.as_str(), explained.decision), ("", decision));
    let [first, ..] = explained.traces[0].hosts.as_slice() else { panic!() };
    let [verdict] = first.rejected.as_slice() else { panic!("{first:?}") };
    assert_eq!((verdict.filter.as_str(), verdict.reason.as_str()), ("only_b", "it is a"));
    set("");
    // The placement fails for that reason, and its trace is kept as for any failure.
    let refused = engine.place(ask(&["one"], 2)).unwrap();
    let choice = &refused.choices[0];
    assert_eq!((refused.placed(), choice.refused.as_str(), choice.passed), (false, "broken: it hangs", 2));
    assert_eq!(choice.why(), "no host for one: policy p requires a unit that failed: broken: it hangs");
    assert_eq!(engine.decisions(1).unwrap()[0].id, refused.id);
    let explained = engine.explain(refused.id).unwrap();
    assert_eq!((explained.note.as_str(), explained.traces[0].hosts.len()), ("", 3));
    assert!(explained.traces[0].hosts.iter().all(|host| host.score.is_none()));
    // The previous reservation remains.
    assert_eq!(engine.view(|model| model.pendings()["one"].host.clone()).unwrap(), "c");
    let why = engine.why_not("b", &ask(&["one"], 2)).unwrap();
    assert_eq!((why.refused.as_str(), why.best), ("broken: it hangs", None));
    // VMs that it prevents from moving are reported too.
    put(&engine, Vm { host: Some("a".into()), status: VmStatus::Up, ..vm("away", 1, 512) });
    let (name, status) = ("a".to_string(), HostStatus::PreparingForMaintenance);
    let emptied = Host { name, status, memory_mb: 8192, ..Host::default() };
    engine.put(vec![Object::Host(Box::new(emptied))]).unwrap();
    engine.put(vec![Object::Cluster(Cluster { policy: "p".into(), ..Cluster::default() })]).unwrap();
    let step = engine.balance("default", 5).unwrap();
    let wanted = ["policy p requires a unit that failed: broken: it hangs"];
    assert_eq!((step.migrations.len(), step.errors.as_slice()), (0, wanted.map(String::from).as_slice()));
    assert_eq!(engine.preview("default", u64::MAX, 3, u64::MAX).unwrap()[0].migrations.len(), 0);
    engine.put(vec![host("a", 8, 8192)]).unwrap();
    set("on-error = \"skip\"\nrequired = [\"names\"]");
    let why = engine.why_not("a", &ask(&["one"], 2)).unwrap();
    assert_eq!((why.refused.as_str(), why.errors), ("", vec!["broken: it hangs".to_string()]));
}

/// A filter that blocks until enough requests wait.
struct Gate(Arc<std::sync::OnceLock<std::sync::Weak<Engine>>>, u32);
impl External for Gate {
    fn units(&mut self) -> Vec<ExternalUnit> {
        let (description, properties) = (String::new(), String::new());
        vec![ExternalUnit { name: "gate".into(), kind: ExternalKind::Filter, description, properties }]
    }
    fn snapshot(&mut self, _: Vec<HostView>, _: Vec<VmView>) -> Result<(), ExternalError> {
        Ok(())
    }
    fn deltas(&mut self, _: Vec<Delta>) -> Result<(), ExternalError> {
        Ok(())
    }
    fn filter(&mut self, units: &[String], _: &Question<'_>) -> Outcome<Rejected> {
        let most = std::mem::take(&mut self.1);
        while self.0.get().and_then(std::sync::Weak::upgrade).is_some_and(|engine| engine.waiting() < most) {
            std::thread::yield_now();
        }
        units.iter().map(|unit| (unit.clone(), Ok(Rejected::default()))).collect()
    }
    fn score(&mut self, _: &[(String, u32)], _: &Question<'_>) -> Outcome<Scores> {
        Outcome::new()
    }
    fn balance(
        &mut self,
        _: &str,
        _: &[String],
        _: &BTreeMap<String, String>,
    ) -> Result<Vec<ExternalAction>, ExternalError> {
        Ok(Vec::new())
    }
}

/// How many of several concurrent requests get resources that suffice for one.
fn let_through(optimise: &str, requests: u32) -> usize {
    let engine = engine(vec![host("a", 8, 4096)]);
    let known = Arc::new(std::sync::OnceLock::new());
    let gate = Gate(known.clone(), requests - 1);
    engine.attach(Box::new(gate));
    let text = format!("[policy.p]\nfilters = [\"Memory\", \"gate\"]\noptimise = \"{optimise}\"\n");
    let units = engine.external_units();
    let policies = ringway_place::policy::read("p", &text, &units).unwrap();
    engine.put(policies.into_iter().map(Object::Policy).collect()).unwrap();
    for index in 0..requests {
        put(&engine, Vm { policy: Some("p".into()), ..vm(&format!("v{index}"), 1, 3000) });
    }
    let engine = Arc::new(engine);
    known.set(Arc::downgrade(&engine)).unwrap();
    std::thread::scope(|scope| {
        let engine = &engine;
        let place = |index: u32| {
            move || {
                let decision = engine.place(ask(&[&format!("v{index}")], 1)).unwrap();
                assert_eq!(engine.explain(decision.id).unwrap().note, "");
                decision.placed()
            }
        };
        let threads: Vec<_> = (0..requests).map(|index| scope.spawn(place(index))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|placed| *placed).count()
    })
}

#[test]
fn overbooking_lets_requests_through_while_many_wait() {
    // The first request is deciding. A request that finds ten waiting releases them and itself; none of them
    // sees the others' reservations.
    assert_eq!(let_through("overbooking", 11), 1);
    assert_eq!(let_through("overbooking", 12), 12);
    assert_eq!(let_through("none", 12), 1);
}

/// The clock was set back while no engine ran, so stored times are in the future. Facts with a time limit are
/// deleted, a VM with a future move time counts as just moved, and a reservation lasts no longer than its
/// lease.
#[test]
fn a_clock_set_back_does_not_extend_leases() {
    const YEARS: u64 = 10 * 365 * 86_400_000;
    let folder = std::env::temp_dir().join(format!("rw-place-clock-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("place.redb");
    let engine = Engine::open(Arc::new(Embedded::open(&path, YEARS).unwrap())).unwrap();
    engine.put(vec![host("a", 4, 8192)]).unwrap();
    put(&engine, vm("one", 1, 512));
    put(&engine, Vm { moved_at: Some(YEARS), ..vm("two", 1, 512) });
    let fact = |name: &str, until, pushed| {
        Object::Fact(Fact { host: "a".into(), name: name.into(), value: 1.0, until, pushed })
    };
    let long = Some(YEARS + 60_000);
    engine.put(vec![fact("kept", None, None), fact("dated", long, None)]).unwrap();
    engine.put(vec![fact("stale", long, Some(YEARS))]).unwrap();
    let over = Load { host: "a".into(), over_since: Some(YEARS), ..Load::default() };
    engine.put(vec![Object::Load(over)]).unwrap();
    assert!(engine.place(ask(&["one"], YEARS)).unwrap().placed());
    drop(engine);

    let engine = Engine::open(Arc::new(Embedded::open(&path, 1_000).unwrap())).unwrap();
    assert_eq!(engine.correct_times(1_000).unwrap(), 3);
    assert_eq!(engine.correct_times(1_000).unwrap(), 0);
    let names: Vec<String> = engine.hosts(1_000).unwrap().remove(0).facts.into_keys().collect();
    assert_eq!(names, ["dated", "kept"]);
    let moved = engine.view(|model| model.vm("two").unwrap().vm.moved_at).unwrap();
    assert_eq!(moved, Some(1_000));
    engine.expire(999 + LEASE).unwrap();
    assert_eq!(engine.hosts(1_000).unwrap()[0].pending, 1);
    engine.expire(1_000 + LEASE).unwrap();
    assert_eq!(engine.hosts(1_000).unwrap()[0].pending, 0);
    drop(engine);
    std::fs::remove_dir_all(&folder).unwrap();
}
