//! Expressions over facts, as in custom properties.

use ringway_place::Expression;
use ringway_place::decide::PlacementRequest;
use ringway_place::engine::{Engine, Object};
use ringway_place::object::{Fact, Host, Vm};
use ringway_place::policy::{FilterUse, Policy, WeightUse};
use ringway_place::store::Memory;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Parses `data` as an expression, and filters and scores hosts with it.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Err(error) = Expression::read(text) {
        assert!(error.column > 0 && error.column <= text.chars().count() + 1, "{error}");
        return;
    }
    let properties = ["FactFilter", "MetricsWeightSetting"].map(|name| (name.to_string(), text.to_string()));
    let policy = Policy {
        name: "p".into(),
        filters: vec![FilterUse { name: "Facts".into(), ..FilterUse::default() }],
        weights: vec![WeightUse { name: "Metrics".into(), factor: 1, required: false }],
        ..Policy::default()
    };
    let host = |name: &str| Object::Host(Box::new(Host { name: name.into(), ..Host::default() }));
    let fact = Fact { host: "a".into(), name: "heat".into(), value: 71.5, pushed: None, until: None };
    let vm = Vm {
        name: "v".into(),
        policy: Some("p".into()),
        properties: BTreeMap::from(properties),
        ..Vm::default()
    };
    let Ok(engine) = Engine::open(Arc::new(Memory::default())) else { return };
    engine.put(vec![Object::Policy(policy), host("a"), host("b"), Object::Fact(fact)]).expect("objects");
    if engine.put(vec![Object::Vm(Box::new(vm))]).is_err() {
        return;
    }
    let ask = PlacementRequest { vms: vec!["v".into()], now: 1, ..PlacementRequest::default() };
    let (choices, _) = engine.attempt(&ask, Vec::new()).expect("a decision");
    let again = engine.attempt(&ask, Vec::new()).expect("a decision").0;
    assert_eq!(choices, again);
}

/// Expressions that cover the whole syntax.
pub fn seeds() -> Vec<Vec<u8>> {
    [
        "heat < 75 && fan > 500",
        "0 - heat",
        "!(cpus*2>=vcpus+1)||free_mb/0==-1.5",
        "((vms != 3))",
        "1 <= 2 < 3",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}
