//! Updates to external units, and actions of their balancers.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use ringway_place::decide::PlacementRequest;
use ringway_place::engine::{Action, Engine, Object};
use ringway_place::object::*;
use ringway_place::policy::Policy;
use ringway_place::store::{Memory, Store};
use ringway_place::unit::*;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// All updates received, and the action of the balancer.
#[derive(Clone, Debug, Default, PartialEq)]
struct Received {
    hosts: BTreeMap<String, HostView>,
    vms: BTreeMap<String, Vm>,
    at: u64,
    /// Number of objects in the last update.
    last: usize,
    wants: Option<(String, bool)>,
    more: Vec<ExternalAction>,
}

#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Received>>);

impl Listener {
    fn put(&self, delta: Delta) {
        let mut received = self.0.lock().unwrap();
        match delta {
            Delta::Host(mut view) => {
                // The order is unspecified.
                view.vms.sort();
                view.pending_vms.sort();
                received.hosts.insert(view.host.name.clone(), *view);
            }
            Delta::NoHost(name) => assert!(received.hosts.remove(&name).is_some(), "{name} was never sent"),
            Delta::Vm(vm) => drop(received.vms.insert(vm.name.clone(), *vm)),
            Delta::NoVm(name) => assert!(received.vms.remove(&name).is_some(), "{name} was never sent"),
        }
    }

    fn received(&self) -> (BTreeMap<String, HostView>, BTreeMap<String, Vm>) {
        let received = self.0.lock().unwrap();
        (received.hosts.clone(), received.vms.clone())
    }
}

impl External for Listener {
    fn units(&mut self) -> Vec<ExternalUnit> {
        let (description, properties) = (String::new(), String::new());
        vec![ExternalUnit { name: "Power".into(), kind: ExternalKind::Balance, description, properties }]
    }
    fn at(&mut self, now: u64, _: u64) {
        self.0.lock().unwrap().at = now;
    }
    fn snapshot(&mut self, hosts: Vec<HostView>, vms: Vec<VmView>) -> Result<(), ExternalError> {
        let mut received = self.0.lock().unwrap();
        let (wants, more) = (received.wants.take(), std::mem::take(&mut received.more));
        *received = Received { wants, more, ..Received::default() };
        drop(received);
        hosts.into_iter().for_each(|host| self.put(Delta::Host(Box::new(host))));
        vms.into_iter().for_each(|vm| self.put(Delta::Vm(Box::new(vm))));
        Ok(())
    }
    fn deltas(&mut self, deltas: Vec<Delta>) -> Result<(), ExternalError> {
        self.0.lock().unwrap().last = deltas.len();
        deltas.into_iter().for_each(|delta| self.put(delta));
        Ok(())
    }
    fn filter(&mut self, _: &[String], _: &Question<'_>) -> Outcome<Rejected> {
        Outcome::new()
    }
    fn score(&mut self, _: &[(String, u32)], _: &Question<'_>) -> Outcome<Scores> {
        Outcome::new()
    }
    fn balance(&mut self, _: &str, _: &[String], _: &Given) -> Result<Vec<ExternalAction>, ExternalError> {
        let wants = self.0.lock().unwrap().wants.clone();
        let power = wants.map(|(host, on)| ExternalAction::Power { host, on, reason: "late".into() });
        Ok(power.into_iter().chain(self.0.lock().unwrap().more.clone()).collect())
    }
}

type Given = BTreeMap<String, String>;

fn host(name: String, status: HostStatus) -> Object {
    let power_managed = name != "h3";
    let size = Host { cores: 8, threads: 8, memory_mb: 8192, ..Host::default() };
    Object::Host(Box::new(Host { name, status, power_managed, ..size }))
}

fn vm(name: String, host: Option<String>) -> Object {
    let status = if host.is_some() { VmStatus::Up } else { VmStatus::Down };
    Object::Vm(Box::new(Vm { name, host, status, ..Vm::default() }))
}

fn ask(vm: &str, now: u64) -> PlacementRequest {
    PlacementRequest { vms: vec![vm.into()], now, ..PlacementRequest::default() }
}

fn listening(store: &Arc<dyn Store>) -> (Engine, Listener) {
    let (engine, listener) = (Engine::open(store.clone()).unwrap(), Listener::default());
    engine.attach(Box::new(listener.clone()));
    (engine, listener)
}

proptest! {
    #[test]
    fn followers_have_the_same_state_as_late_readers(
        steps in prop::collection::vec((0_u8..6, 0_u8..4, 0_u8..6), 1..30),
    ) {
        let store: Arc<dyn Store> = Arc::new(Memory::default());
        let (engine, follower) = listening(&store);
        engine.put(vec![host("h9".into(), HostStatus::Up), vm("v9".into(), None)]).unwrap();
        for (step, (what, h, v)) in steps.into_iter().enumerate() {
            let (now, h, v) = (step as u64 + 1, format!("h{h}"), format!("v{v}"));
            // Impossible changes have no effect.
            let _ = match what {
                0 => engine.put(vec![host(h, HostStatus::Up)]).map(drop),
                1 => engine.remove("host", &h).map(drop),
                2 => engine.put(vec![vm(v, Some(h))]).map(drop),
                3 => engine.remove("vm", &v).map(drop),
                4 => engine.put(vec![vm(v.clone(), None)]).and_then(|_| engine.place(ask(&v, now))).map(drop),
                _ => {
                    let fact = Fact { host: h, name: "heat".into(), value: 1.0, until: None, pushed: None };
                    engine.put(vec![Object::Fact(fact)]).map(drop)
                }
            };
            engine.attempt(&ask("v9", now), Vec::new()).unwrap();
            let (later, listener) = listening(&store);
            later.attempt(&ask("v9", now), Vec::new()).unwrap();
            prop_assert_eq!(follower.received(), listener.received());
        }
    }
}

#[test]
fn a_decision_reports_only_its_changes() {
    let (engine, listener) = listening(&(Arc::new(Memory::default()) as Arc<dyn Store>));
    engine.put((0..100).map(|index| host(format!("n{index}"), HostStatus::Up)).collect()).unwrap();
    engine.put(vec![vm("one".into(), None), vm("two".into(), None)]).unwrap();
    engine.place(ask("one", 5)).unwrap();
    engine.place(ask("two", 6)).unwrap();
    let received = listener.0.lock().unwrap();
    assert_eq!((received.last, received.at), (1, 6), "the host that one was promised");
    assert_eq!((received.hosts.len(), received.vms.len()), (100, 2));
}

#[test]
fn balancers_switch_empty_hosts_only() {
    let (engine, listener) = listening(&(Arc::new(Memory::default()) as Arc<dyn Store>));
    let policy = Policy { name: "night".into(), balancer: "Power".into(), ..Policy::default() };
    let cluster = Cluster { policy: "night".into(), ..Cluster::default() };
    engine.put(vec![Object::Policy(policy)]).unwrap();
    engine.put(vec![Object::Cluster(cluster)]).unwrap();
    engine.put((0..4).map(|index| host(format!("h{index}"), HostStatus::Up)).collect()).unwrap();
    engine.put(vec![host("h2".into(), HostStatus::Down), vm("v".into(), Some("h0".into()))]).unwrap();
    let wants = |host: &str, on: bool| {
        listener.0.lock().unwrap().wants = Some((host.into(), on));
        let step = engine.balance("default", 1).unwrap();
        assert_eq!(step.power_reason, if step.power.is_some() { "Power: late" } else { "" });
        step.power.ok_or(step.errors.join("; "))
    };
    // A preview queries simulated states, and afterwards the real state is restored.
    listener.0.lock().unwrap().wants = Some(("h1".into(), false));
    let steps = engine.preview("default", 1, 3, 60_000).unwrap();
    let observed: Vec<_> =
        steps.iter().map(|step| (step.at, step.power.clone(), step.errors.clone())).collect();
    let off = Some(("h1".to_string(), HostStatus::Down));
    let not_up = vec!["Power: h1: is not up".to_string()];
    assert_eq!(observed, [(1, off, vec![]), (60_001, None, not_up)]);
    engine.attempt(&ask("v", 2), Vec::new()).unwrap();
    assert_eq!(listener.received().0["h1"].host.status, HostStatus::Up);
    assert_eq!(wants("h1", false), Ok(("h1".into(), HostStatus::Down)));
    assert_eq!(wants("h2", true), Ok(("h2".into(), HostStatus::Up)));
    for (host, on, why) in [
        ("h0", false, "Power: h0: is not empty"),
        ("h0", true, "Power: h0: is not switched off"),
        ("h1", false, "Power: h1: is not up"),
        ("h3", false, "Power: h3: can't be switched on and off"),
        ("nobody", true, "Power: nobody: is no host of this cluster"),
    ] {
        assert_eq!(wants(host, on), Err(why.to_string()));
    }
}

#[test]
fn balancers_stop_vms_and_switch_the_use_of_hosts() {
    let (engine, listener) = listening(&(Arc::new(Memory::default()) as Arc<dyn Store>));
    let policy = Policy { name: "night".into(), balancer: "Power".into(), ..Policy::default() };
    let cluster = Cluster { policy: "night".into(), ..Cluster::default() };
    engine.put(vec![Object::Policy(policy)]).unwrap();
    engine.put(vec![Object::Cluster(cluster)]).unwrap();
    engine.put((0..3).map(|index| host(format!("h{index}"), HostStatus::Up)).collect()).unwrap();
    engine.put(vec![vm("v".into(), Some("h0".into())), vm("w".into(), None)]).unwrap();
    let stop = |vm: &str| ExternalAction::Stop { vm: vm.into(), reason: "night".into() };
    let rest = |host: &str, on| ExternalAction::Maintenance { host: host.into(), on, reason: String::new() };
    let does = |more: Vec<ExternalAction>| {
        listener.0.lock().unwrap().more = more;
        let step = engine.balance("default", 1).unwrap();
        let words = |it: &Action| format!("{:?} {} {:?}", it.kind, it.name, it.state);
        (step.actions.iter().map(words).collect::<Vec<_>>(), step.errors)
    };
    let status = |index: usize| engine.hosts(1).unwrap()[index].status;
    // A preview changes nothing.
    listener.0.lock().unwrap().more = vec![stop("v"), rest("h0", true)];
    let preview = engine.preview("default", 1, 3, 60_000).unwrap();
    assert_eq!((preview[0].actions.len(), preview[1].actions.len(), status(0)), (2, 0, HostStatus::Up));
    // What is so already is left out, and so is what is asked for twice.
    let asked = vec![stop("v"), stop("v"), stop("w"), stop("x"), rest("h0", true), rest("h1", true)];
    let (done, errors) = does(asked);
    assert_eq!(done, ["Stop v Reserved", "Deactivate h0 Done", "Deactivate h1 Done"]);
    assert_eq!(errors, ["Power: x: is no VM"]);
    assert_eq!([status(0), status(1)], [HostStatus::PreparingForMaintenance, HostStatus::Maintenance]);
    engine.stop("v").unwrap();
    assert_eq!(engine.end_emptying().unwrap(), ["h0"]);
    let stopped = engine.view(|model| (*model.vm("v").unwrap().vm).clone()).unwrap();
    assert_eq!((stopped.status, stopped.host, stopped.last_host), (VmStatus::Down, None, Some("h0".into())));
    // What the policy put into maintenance it takes back, and nothing that an operator did.
    engine.maintain("h2").unwrap();
    let (done, errors) = does((0..3).map(|index| rest(&format!("h{index}"), false)).collect());
    assert_eq!(done, ["Activate h0 Done", "Activate h1 Done"]);
    assert_eq!(errors, ["Power: h2: is in an operator's maintenance"]);
    assert_eq!([status(0), status(1), status(2)], [HostStatus::Up, HostStatus::Up, HostStatus::Maintenance]);
}
