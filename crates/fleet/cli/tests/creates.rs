//! Thousands of functions requested at once of the real program.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::lab::frames::{LONG, next, program, send};
use crate::lab::http::{answer, ask};
use crate::lab::{Lab, isolations};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use std::collections::BTreeSet;

const REQUESTS: usize = 5000;
const PORTS: usize = 80;

/// Ring ports for functions, and two programs.
fn fabric() -> String {
    let port = |name: &str| format!("[port.{name}]\nkind = \"ring\"\nsocket = \"{name}.sock\"\n");
    let switched = |number: usize| port(&format!("p{number}")) + "switch = \"s\"\n";
    let ports: String = (0..PORTS).map(switched).collect();
    format!("[switch.s]\n{ports}{}{}[patch.x]\nports = [\"left\", \"right\"]\n", port("left"), port("right"))
}

/// A request for a function on one of the ports; some have a wrong configuration.
fn request(number: usize, isolation: &str) -> Value {
    let port = format!("p{}", number % PORTS);
    let element = if number % 7 == 3 { "Nonsense" } else { "Counter" };
    serde_json::json!({
        "name": format!("f{number}"),
        "configuration": format!("FromPort({port}) -> {element} -> ToPort({port});"),
        "isolation": isolation,
        "memory": 32 << 20,
        "ports": [port],
    })
}

/// Connections that this process may have at the same time, with some for the rest.
fn connections() -> usize {
    let maximum = getrlimit(Resource::Nofile).maximum;
    // The fabric inherits it.
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    maximum.map_or(REQUESTS, |maximum| maximum as usize / 4).min(REQUESTS)
}

#[test]
fn thousands_of_requests_at_once_are_served_or_refused_with_a_reason() {
    let at_once = connections();
    let isolation = *isolations().last().unwrap();
    let lab = Lab::new("creates", &fabric());
    lab.ok(&["up", "lab.toml", "--detach"]);
    let [mut left, mut right] = ["left", "right"].map(|name| program(&lab, name));
    let list = || lab.json(&["function", "list"]).as_array().unwrap().clone();
    let states = |list: &[Value], state: &str| list.iter().filter(|one| one["state"] == state).count();
    let (mut made, mut waited) = (BTreeSet::new(), false);
    for (round, numbers) in (0..).zip((0..REQUESTS).collect::<Vec<_>>().chunks(at_once)) {
        let request =
            |number: &usize| (*number, ask(&lab, "POST", "/v1/functions", &request(*number, isolation)));
        let asked: Vec<_> = numbers.iter().map(request).collect();
        // The function answers, and frames pass.
        assert!(lab.ok(&["ps"]).contains("left"));
        assert!(send(&mut left, round));
        assert_eq!(next(&mut right, LONG), Some(round), "frames pass");
        // Whether some wait depends on the time that starts take; those that wait are shown.
        loop {
            let list = list();
            waited |= states(&list, "queued") > 0;
            if waited || states(&list, "starting") == 0 {
                break;
            }
        }
        for (number, stream) in asked {
            let (status, body) = answer(stream);
            if status == 201 {
                made.insert(format!("f{number}"));
                continue;
            }
            let error_body: Value = serde_json::from_str(&body).unwrap();
            let why = error_body["error"].as_str().unwrap();
            assert!(
                status == 422
                    && ["already", "Nonsense", "did not start within"].iter().any(|one| why.contains(one)),
                "{status}: {why}"
            );
        }
    }
    eprintln!("functions waited for their turn: {waited}");
    let list = list();
    let names: BTreeSet<String> = list.iter().map(|one| one["name"].as_str().unwrap().into()).collect();
    assert_eq!((names.len(), states(&list, "running")), (made.len(), made.len()), "{list:?}");
    assert!(made == names && made.len() > PORTS / 2, "{made:?}");
    assert_eq!(lab.json(&["ps"])["fabric"]["restarts"], 0, "the data process goes on");
}
