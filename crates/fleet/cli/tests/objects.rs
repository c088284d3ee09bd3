//! Switches and ports that are added and removed while the fabric runs.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::lab::api::ask;
use crate::lab::frames::{LONG, next, program, send_to_all, switched};
use crate::lab::{Lab, until};
use ringway_ring_client::Ring;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn up(name: &str, file: &str) -> Lab {
    let lab = Lab::new(name, file);
    lab.ok(&["up", "lab.toml", "--detach"]);
    lab
}

/// Frames pass both ways.
fn passes(rings: &mut [Ring; 2], number: u32) {
    for (from, to) in [(0, 1), (1, 0)] {
        assert!(send_to_all(&mut rings[from], from as u8, number));
        while next(&mut rings[to], LONG).unwrap() != number {}
    }
}

/// The ports and the switches, without what changes while nothing is ordered.
fn objects(lab: &Lab) -> (Vec<Value>, Value) {
    let names = |list: Value| list.as_array().unwrap().iter().map(|one| one["name"].clone()).collect();
    (names(lab.json(&["port", "list"])), lab.json(&["switch", "list"]))
}

/// Kills the control process, and waits for the next one.
fn kill_control(lab: &Lab) {
    let pid = || lab.json(&["ps"])["fabric"]["pid"].as_u64().unwrap();
    let before = pid();
    kill_process(Pid::from_raw(before.try_into().unwrap()).unwrap(), Signal::KILL).unwrap();
    until("another one answers", || lab.run(&["ps"]).status.success() && pid() != before);
}

#[test]
fn a_switch_and_ports_are_added_used_and_removed() {
    let lab = up("objects", &switched(&["old"]));
    lab.ok(&["switch", "add", "lan", "ageing=60s"]);
    for name in ["left", "right"] {
        let socket = format!("socket={name}.sock");
        lab.ok(&[
            "port",
            "add",
            name,
            "--kind",
            "ring",
            "--switch",
            "lan",
            &socket,
            "mode=0660",
            "slots=128",
        ]);
    }
    lab.ok(&["port", "add", "sink", "--kind", "null", "--switch", "lan", "link.delay=1ms", "link.loss=1%"]);
    let mode = std::fs::metadata(lab.socket("left.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let mut rings = ["left", "right"].map(|name| program(&lab, name));
    passes(&mut rings, 1);
    assert_eq!(lab.json(&["link", "list", "sink"])[0]["name"], "sink");
    let (code, said) = lab.fails(&["switch", "remove", "lan"]);
    let expected = "switch lan has the ports left, right, sink/sink; remove its ports first";
    assert!(code == 1 && said.contains(expected), "{said}");
    assert_eq!(lab.ok(&["port", "remove", "sink", "left"]), "removed sink\nremoved left\n");
    assert!(!lab.socket("left.sock").exists());
    let (code, said) = lab.fails(&["switch", "remove", "lan"]);
    assert!(code == 1 && said.contains("switch lan has the port right; "), "{said}");
    lab.ok(&["port", "remove", "right"]);
    lab.ok(&["switch", "remove", "lan"]);
    let (ports, switches) = objects(&lab);
    assert_eq!((ports, &switches[1]), (vec![json!("old")], &Value::Null));
    lab.ok(&["down"]);
}

#[test]
fn what_was_added_outlives_control_and_an_upgrade_and_a_file_replaces_it() {
    let lab = up("objects-live", &switched(&["old"]));
    lab.ok(&["switch", "add", "lan"]);
    for name in ["left", "right"] {
        lab.ok(&["port", "add", name, "--kind", "ring", "--switch", "lan", &format!("socket={name}.sock")]);
    }
    let mut rings = ["left", "right"].map(|name| program(&lab, name));
    passes(&mut rings, 1);
    let before = objects(&lab);
    kill_control(&lab);
    assert_eq!(objects(&lab), before, "{}", lab.log());
    passes(&mut rings, 2);
    lab.ok(&["upgrade"]);
    assert_eq!(objects(&lab), before, "{}", lab.log());
    passes(&mut rings, 3);
    // Another program connects, and another port is added, as before.
    drop(rings);
    lab.ok(&["port", "add", "third", "--kind", "null", "--switch", "lan"]);
    let mut rings = ["left", "right"].map(|name| program(&lab, name));
    passes(&mut rings, 4);
    let said = lab.ok(&["apply", "lab.toml"]);
    for gone in ["remove port left", "remove port right", "remove port third", "remove switch lan"] {
        assert!(said.contains(gone), "{said}");
    }
    assert_eq!(objects(&lab).0, [json!("old")]);
    lab.ok(&["down"]);
}

/// Changes of a good request for a port, and what is said about each.
fn wrong_ports() -> Vec<(Value, &'static str)> {
    vec![
        (json!({ "name": "a" }), "/name: there is a port a already; use another name"),
        (json!({ "name": "../x" }), "/name: \"../x\" can't be a name; use letters"),
        (json!({ "name": 1 }), "/name: `name` is a string"),
        (json!({ "name": null }), "/name: `name` is a string"),
        (json!({ "kind": "rinq" }), "/kind: `kind` can't be \"rinq\"; did you mean \"ring\"?"),
        (json!({ "switch": "mein" }), "/switch: there is no switch \"mein\"; did you mean \"main\"?"),
        (json!({ "switch": null }), "port.new has no `switch`; add `switch`"),
        (json!({ "socket": null }), "port.new has no `socket`; add socket = \"new.sock\""),
        (json!({ "socket": "a.sock" }), "/socket: port a has the socket a.sock too"),
        (json!({ "socket": "api.sock" }), "/socket: api.sock in the run directory is Ringway's own"),
        (json!({ "socket": "no/x.sock" }), "/socket: there is no folder "),
        (json!({ "slots": 100 }), "/slots: `slots` is 100; use a power of two, such as 128"),
        (json!({ "slots": "100" }), "/slots: `slots` is a whole number, not a string"),
        (json!({ "mode": "0999" }), "/mode: \"0999\" is not a mode"),
        (json!({ "owner": "nobody-of-that-name" }), "/owner: there is no user "),
        (json!({ "notify": { "moderate": "5" } }), "/notify/moderate: "),
        (json!({ "link": { "delay": "-1" } }), "/link/delay: "),
        (json!({ "colour": "red" }), "port.new has no key `colour`"),
        (json!({ "kind": "tap", "interface": "rw0" }), "`socket`"),
        (
            json!({ "kind": "tap", "socket": null, "interface": "rw0", "host": "h" }),
            "/host: there is no host",
        ),
        (json!({ "kind": "pipe" }), "port new is a pipe; its two programs have only each other"),
    ]
}

/// Wrong requests for switches, and what is said about each.
fn wrong_switches() -> Vec<(Value, &'static str)> {
    vec![
        (json!({}), "the switch has no `name`"),
        (json!({ "name": "main" }), "/name: there is a switch main already"),
        (
            json!({ "name": "new", "lookup": "lerning" }),
            "/lookup: `lookup` can't be \"lerning\"; did you mean",
        ),
        (json!({ "name": "new", "entries": 0 }), "/entries: "),
        (json!({ "name": "new", "members": ["a"] }), "only lookup = \"hash\" has it"),
        (
            json!({ "name": "new", "lookup": "hash", "members": ["x"], "uplink": "y" }),
            "/members/0: there is no",
        ),
        (
            json!({ "name": "new", "lookup": "hash", "members": ["a"], "uplink": "b" }),
            "/members/0: port a is not on",
        ),
    ]
}

#[test]
fn a_wrong_request_changes_nothing_and_says_where_it_is_wrong() {
    let more = "[port.in]\nkind = \"ring\"\nsocket = \"in.sock\"\nswitch = \"main\"\n\
                [function.wall]\nclick = \"FromPort(in) -> Discard;\"\nport = \"in\"\n\
                [port.one]\nkind = \"null\"\n[port.two]\nkind = \"null\"\n\
                [patch.p]\nports = [\"one\", \"two\"]\n\
                [switch.fixed]\nlookup = \"static\"\nstatic = { \"02:00:00:00:00:09\" = \"named\" }\n\
                [port.named]\nkind = \"null\"\nswitch = \"fixed\"\n";
    let lab = up("objects-wrong", &(switched(&["a", "b"]) + more));
    let mut rings = ["a", "b"].map(|name| program(&lab, name));
    passes(&mut rings, 1);
    let before = objects(&lab);
    let refused = |path: &str, body: Value| {
        let (status, answer) = ask(&lab, "POST", path, &body);
        (status, answer["error"].as_str().unwrap_or_default().to_string())
    };
    let port = |changes: Value| {
        let mut keys = json!({ "name": "new", "kind": "ring", "switch": "main", "socket": "new.sock" });
        keys.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        refused("ports", keys)
    };
    for (changes, expected) in wrong_ports() {
        let (status, said) = port(changes.clone());
        assert!(status == 422 && said.contains(expected), "{changes}: {status} {said}");
    }
    for (body, expected) in wrong_switches() {
        let (status, said) = refused("switches", body.clone());
        assert!(status == 422 && said.contains(expected), "{body}: {status} {said}");
    }
    // Two ports can't bind one path: the system refuses it, and nothing is left of the port.
    let (status, said) = port(json!({ "kind": "vhost-user", "socket": lab.socket("lock") }));
    assert!(status == 422 && said.contains("is there already, and is no socket"), "{status} {said}");
    for (name, code, expected) in [
        ("none", 5, "there is no port \"none\""),
        ("in", 1, "port in is function wall's; destroy the function first"),
        ("one", 1, "port one is patched to port two; "),
        ("named", 1, "the lookup of switch fixed names port named; "),
    ] {
        let (found, said) = lab.fails(&["port", "remove", name]);
        assert!(found == code && said.contains(expected), "{name}: {said}");
    }
    assert_eq!(lab.fails(&["switch", "remove", "none"]).0, 5);
    assert_eq!(objects(&lab), before);
    passes(&mut rings, 2);
    lab.ok(&["function", "remove", "wall"]);
    lab.ok(&["port", "remove", "in"]);
    lab.ok(&["down"]);
}

/// The commands of a page's section.
fn commands(page: &str, section: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs").join(page);
    let text = std::fs::read_to_string(path).unwrap();
    let (_, rest) = text.split_once(&format!("\n{section}\n")).unwrap();
    let (_, block) = rest.split_once("```sh\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let words = |line: &str| line.split_whitespace().map(String::from).collect();
    block.lines().map(|line| line.split(" #").next().unwrap()).map(words).collect()
}

#[test]
fn the_commands_of_the_page_work_one_after_the_other() {
    let lab = up("objects-docs", &switched(&["a"]));
    let lines = commands("fabric-file.md", "## Switches and ports without a file");
    assert!(lines.len() > 4, "{lines:?}");
    for line in lines {
        let words: Vec<&str> = line.iter().map(|word| &**word).collect();
        assert_eq!(words[0], "ringway");
        lab.ok(&words[1..]);
    }
    lab.ok(&["down"]);
}
