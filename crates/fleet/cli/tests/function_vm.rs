//! Functions in VMs of the real program: snapshots and clones, moves, hosts without KVM.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::lab::api::{function, is_running, processes};
use crate::lab::http::{answer, ask};
use crate::lab::vms::{control, count, exchange, fabric, mirror, program};
use crate::lab::{Lab, isolations, until};
use ringway_ring_client::Wait;
use serde_json::Value;
use std::process::Command;
use std::time::Duration;

#[test]
fn clones_go_on_from_a_snapshot_with_ports_of_their_own() {
    if !isolations().contains(&"vm") {
        return;
    }
    let names = ["one", "two", "three"];
    let lab = Lab::new("clone", &fabric(&names, &mirror("one", "")));
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("it runs", || is_running(&lab, "one"));
    let mut one = program(&lab, "one");
    exchange(&mut one);
    let before = count(&lab, "one");
    lab.ok(&["function", "snapshot", "one", "warm"]);
    let snapshots = lab.json(&["snapshot", "list"]);
    assert_eq!((&snapshots[0]["name"], &snapshots[0]["function"]), (&"warm".into(), &"one".into()));
    assert!(snapshots[0]["bytes"].as_u64().unwrap() > 0, "{snapshots}");
    assert!(lab.ok(&["snapshot", "list"]).contains("warm"));
    // The original runs on, and the snapshot does not change.
    exchange(&mut one);
    assert!(count(&lab, "one") > before);
    for name in ["two", "three"] {
        lab.ok(&["function", "clone", "warm", name, "--port", name]);
        assert!(count(&lab, name) >= before, "it knows what its original knew");
        exchange(&mut program(&lab, name));
        assert!(count(&lab, name) > before);
    }
    exchange(&mut one);
    // A killed clone resumes from the snapshot again.
    let pid = function(&lab, "two")["pid"].clone();
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    until("it runs again", || is_running(&lab, "two") && function(&lab, "two")["pid"] != pid);
    exchange(&mut program(&lab, "two"));
    lab.ok(&["snapshot", "remove", "warm"]);
    exchange(&mut program(&lab, "three"));
    let gone = lab.fails(&["function", "clone", "warm", "four", "--port", "one"]).1;
    assert!(gone.contains("there is no snapshot \"warm\""), "{gone}");
}

/// What a process has in memory that nobody else has, in bytes.
fn private(pid: &Value) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Private_Dirty:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

#[test]
fn a_clone_has_memory_of_its_own_only_where_it_writes() {
    if !isolations().contains(&"vm") {
        return;
    }
    let large = "[function.one]\nisolation = \"vm\"\nmemory = \"128MB\"\nport = \"one\"\nclick = \"\"\"\n\
                 FromPort(one) -> c :: Counter -> ToPort(one);\n\
                 RandomSource(1400, LIMIT 20000) -> q :: Queue(20000) -> Idle;\n\"\"\"\n";
    let lab = Lab::new("clone-memory", &fabric(&["one", "two"], large));
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("it runs", || is_running(&lab, "one"));
    let packets = |name: &str| lab.ok(&["function", "read", name, "q.length"]).trim().to_string();
    until("its queue is full", || packets("one") == "20000");
    lab.ok(&["function", "snapshot", "one", "warm"]);
    let bytes = lab.json(&["snapshot", "list"])[0]["bytes"].as_u64().unwrap();
    assert!(bytes > 28 << 20, "the packets are in the snapshot: {bytes}");
    lab.ok(&["function", "clone", "warm", "two", "--port", "two"]);
    exchange(&mut program(&lab, "two"));
    assert_eq!(packets("two"), "20000");
    let private = private(&function(&lab, "two")["pid"]);
    assert!(private < bytes / 2, "of {bytes} bytes it wrote {private}");
}

#[test]
fn what_can_not_be_snapshotted_or_cloned_is_refused_with_a_reason() {
    if !isolations().contains(&"vm") {
        return;
    }
    let process = "[function.plain]\nport = \"two\"\nclick = \"FromPort(two) -> ToPort(two);\"\n";
    let lab =
        Lab::new("noclone", &fabric(&["one", "two", "three"], &format!("{}{process}", mirror("one", ""))));
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("they run", || is_running(&lab, "one") && is_running(&lab, "plain"));
    let why = |words: &[&str]| lab.fails(words).1;
    assert!(why(&["function", "snapshot", "none", "a"]).contains("there is no function \"none\""));
    assert!(why(&["function", "snapshot", "plain", "a"]).contains("is not in a VM"));
    assert!(why(&["function", "snapshot", "one", "../a"]).contains("can't be a name"));
    assert!(
        why(&["function", "clone", "a", "new", "--port", "three"]).contains("there is no snapshot \"a\"")
    );
    assert!(why(&["snapshot", "remove", "a"]).contains("there is no snapshot \"a\""));
    lab.ok(&["function", "suspend", "one"]);
    assert!(why(&["function", "snapshot", "one", "a"]).contains("is suspended"));
    lab.ok(&["function", "resume", "one"]);
    lab.ok(&["function", "snapshot", "one", "a"]);
    assert!(why(&["function", "snapshot", "one", "a"]).contains("there is a snapshot a already"));
    let clone = ["function", "clone", "a", "new", "--port", "three"];
    assert!(why(&[&clone[..], &["--port", "one-far"]].concat()).contains("with 1 ports, not 2"));
    lab.ok(&clone);
    assert!(why(&["function", "snapshot", "new", "b"]).contains("it is a clone"));
    assert_eq!(lab.json(&["snapshot", "list"]).as_array().unwrap().len(), 1);
}

/// A function that keeps frames until its handler `u.active` says otherwise.
fn keeper(name: &str) -> String {
    format!(
        "[function.{name}]\nisolation = \"vm\"\nmemory = \"32MB\"\nport = \"{name}\"\n\
         click = \"FromPort({name}) -> c :: Counter -> Queue(1000) -> u :: Unqueue(ACTIVE false) \
         -> ToPort({name});\"\n"
    )
}

#[test]
fn a_function_moves_to_another_fabric_with_its_state_and_its_frames() {
    if !isolations().contains(&"vm") {
        return;
    }
    let here = Lab::new("leaving", &fabric(&["one"], &keeper("one")));
    let there = Lab::new("arriving", &fabric(&["one"], ""));
    [&here, &there].iter().for_each(|lab| drop(lab.ok(&["up", "lab.toml", "--detach"])));
    until("it runs", || is_running(&here, "one"));
    let mut near = program(&here, "one");
    // The port may not be up yet for the first frames.
    until("a frame arrives", || {
        near.tx.push(&[2; 60]).unwrap();
        near.sync().unwrap();
        count(&here, "one") > 0
    });
    until("all frames are taken", || {
        let before = count(&here, "one");
        std::thread::sleep(Duration::from_millis(20));
        count(&here, "one") == before
    });
    let kept = count(&here, "one");
    let socket = there.socket("api.sock");
    here.ok(&["function", "migrate", "one", "--to", socket.to_str().unwrap()]);
    assert!(function(&here, "one").is_null(), "it is gone here");
    assert!(is_running(&there, "one") && function(&there, "one")["isolation"] == "vm");
    assert_eq!(count(&there, "one"), kept, "with its state");
    let mut ring = program(&there, "one");
    until("its port is up", || there.state("one") == "up");
    there.ok(&["function", "write", "one", "u.active", "true"]);
    let (mut came, mut frame) = (0, [0; 2048]);
    until("the frames that it kept arrive", || {
        ring.wait(Wait::RX, Some(Duration::from_millis(20))).unwrap();
        while ring.rx.pop(&mut frame).unwrap().is_some() {
            came += 1;
        }
        came == kept
    });
    // The function has memory of its own, and so moves again: its former fabric has its port free.
    let back = here.socket("api.sock");
    there.ok(&["function", "migrate", "one", "--to", back.to_str().unwrap()]);
    assert!(count(&here, "one") >= kept && function(&there, "one").is_null());
    exchange(&mut near);
}

#[test]
fn a_function_that_can_not_move_goes_on_where_it_is() {
    if !isolations().contains(&"vm") {
        return;
    }
    let process = "[function.plain]\nport = \"two\"\nclick = \"FromPort(two) -> ToPort(two);\"\n";
    let here = Lab::new("staying", &fabric(&["one", "two"], &format!("{}{process}", mirror("one", ""))));
    let there = Lab::new("refusing", &fabric(&["other"], ""));
    [&here, &there].iter().for_each(|lab| drop(lab.ok(&["up", "lab.toml", "--detach"])));
    until("they run", || is_running(&here, "one") && is_running(&here, "plain"));
    let mut ring = program(&here, "one");
    exchange(&mut ring);
    let socket = there.socket("api.sock");
    let migrate = |name| here.fails(&["function", "migrate", name, "--to", socket.to_str().unwrap()]).1;
    let why = migrate("one");
    assert!(why.contains("port") && why.contains("one"), "{why}");
    assert!(is_running(&here, "one"), "it goes on");
    exchange(&mut ring);
    assert!(there.json(&["function", "list"]).as_array().unwrap().is_empty());
    let why = migrate("plain");
    assert!(why.contains("is not in a VM"), "{why}");
    let why = here.fails(&["function", "migrate", "one", "--to", "/nobody.sock"]).1;
    assert!(why.contains("no fabric answers on /nobody.sock"), "{why}");
    assert!(is_running(&here, "one"));
    exchange(&mut ring);
    // A descriptor that is not memory: the function is not created.
    let body = serde_json::json!({
        "name": "x", "function": "{}", "state": "", "process": 1, "descriptor": 999_999, "inode": 1
    });
    let (status, answer) = answer(ask(&there, "POST", "/v1/arrivals", &body));
    assert!(status == 422 && answer.contains("the function's description"), "{answer}");
}

/// What arrives is checked as what is created, and no file is opened for it.
#[test]
fn a_departure_that_was_changed_is_refused_with_the_messages_of_a_create() {
    if !isolations().contains(&"vm") {
        return;
    }
    let here = Lab::new("changed-here", &fabric(&["one"], &mirror("one", "")));
    let there = Lab::new("changed-there", &fabric(&["one"], ""));
    [&here, &there].iter().for_each(|lab| _ = lab.ok(&["up", "lab.toml", "--detach"]));
    until("it runs", || is_running(&here, "one"));
    let (_, departure) = answer(ask(&here, "POST", "/v1/functions/one/depart", &serde_json::Value::Null));
    let departure: serde_json::Value = serde_json::from_str(&departure).unwrap();
    let arrive = |key: &str, value: serde_json::Value| {
        let mut changed = departure.clone();
        let mut function: serde_json::Value =
            serde_json::from_str(departure["function"].as_str().unwrap()).unwrap();
        match function.get(key) {
            Some(_) => function[key] = value,
            None => changed[key] = value,
        }
        changed["function"] = function.to_string().into();
        let (status, text) = answer(ask(&there, "POST", "/v1/arrivals", &changed));
        assert_eq!(status, 422, "{key}: {text}");
        text
    };
    for (key, value, why) in [
        ("burst", serde_json::json!(0), "/burst: `burst` is 0; use a value from 1 to 64"),
        ("parameters", serde_json::json!([["a b", ""]]), "can't be a parameter"),
        ("devices", serde_json::json!([["eth0", "two"]]), "use one of the function's ports"),
        ("core", serde_json::json!(60_000), "there is no core 60000"),
        ("memory", serde_json::json!(0), "/memory: `memory` is "),
        ("memory", serde_json::json!(1u64 << 60), "; use a value from 32MB to 2000MB"),
        ("memory", serde_json::json!(96u64 << 20), "and its description says 100663296"),
        ("isolation", serde_json::json!("process"), "is not in a VM"),
        ("inode", serde_json::json!(1), "it no longer waits there to move"),
        ("descriptor", serde_json::json!(0), "is not memory"),
        ("process", serde_json::json!(999_999_999), "the function's memory"),
    ] {
        let text = arrive(key, value);
        assert!(text.contains(why), "{key}: {text}");
    }
    assert!(there.json(&["function", "list"]).as_array().unwrap().is_empty());
    here.ok(&["function", "resume", "one"]);
    exchange(&mut program(&here, "one"));
}

#[test]
fn a_process_waits_for_the_next_function_in_a_vm_and_goes_with_the_last() {
    if !isolations().contains(&"vm") {
        return;
    }
    let lab = Lab::new("spare", &fabric(&["one", "two"], &mirror("one", "")));
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("it runs", || is_running(&lab, "one"));
    let control = control(&lab);
    let monitors = || processes(control);
    let pid = |name: &str| function(&lab, name)["pid"].as_u64().unwrap();
    let mut spare = None;
    until("there is a spare process", || {
        let all = monitors();
        spare = all.iter().copied().find(|monitor| *monitor != pid("one")).filter(|_| all.len() == 2);
        spare.is_some()
    });
    let click = "FromPort(two) -> c :: Counter -> ToPort(two);";
    lab.ok(&["function", "create", "two", "--isolation", "vm", "--port", "two", "--click", click]);
    assert_eq!(Some(pid("two")), spare, "it runs there");
    exchange(&mut program(&lab, "two"));
    until("there is another", || monitors().len() == 3);
    lab.ok(&["function", "destroy", "one", "two"]);
    until("none is left", || monitors().is_empty());
}

#[test]
fn top_shows_what_vms_use() {
    if !isolations().contains(&"vm") {
        return;
    }
    let lab = Lab::new("top", &fabric(&["one"], &mirror("one", "")));
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("it runs", || is_running(&lab, "one"));
    exchange(&mut program(&lab, "one"));
    let top = lab.json(&["top", "--count", "1", "--interval", "0.05"]);
    let row =
        |name: &str| top["processes"].as_array().unwrap().iter().find(|row| row["name"] == name).cloned();
    let (one, data) = (row("one").unwrap(), row("data").unwrap());
    assert_eq!((&one["kind"], &one["pid"]), (&"vm".into(), &function(&lab, "one")["pid"]));
    assert!(one["memory"].as_u64().unwrap() > 100_000 && data["memory"].as_u64().unwrap() > 100_000, "{top}");
    let text = lab.ok(&["top", "--count", "1", "--interval", "0.05"]);
    assert!(text.contains("CPU %") && text.contains("one"), "{text}");
}

#[test]
fn a_monitor_has_no_privileges_while_its_guest_runs() {
    if !isolations().contains(&"vm") {
        return;
    }
    let lab = Lab::new("fenced", &fabric(&["one"], &mirror("one", "")));
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("it runs", || is_running(&lab, "one"));
    let tasks = std::fs::read_dir(format!("/proc/{}/task", function(&lab, "one")["pid"])).unwrap();
    let mut threads = 0;
    for task in tasks {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim_start_matches(':').trim().to_string()
        };
        assert_eq!((&*field("Seccomp"), &*field("NoNewPrivs")), ("2", "1"), "{status}");
        for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
            assert_eq!(field(set).trim_start_matches('0'), "", "{set}: {status}");
        }
        threads += 1;
    }
    assert!(threads > 1, "the guest has a thread");
}
