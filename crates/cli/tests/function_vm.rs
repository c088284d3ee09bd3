//! Functions in VMs of the real program: snapshots and clones, monitors that are killed, hosts without KVM.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod lab;

use lab::{Lab, isolations, until};
use ringway_client::{Ring, Wait};
use serde_json::Value;
use std::process::Command;
use std::time::{Duration, Instant};

const BOUND: Duration = Duration::from_secs(30);

/// Ports of these names for functions, each patched to `NAME-far` for a program.
fn fabric(names: &[&str], more: &str) -> String {
    let port = |name: &str| format!("[port.{name}]\nkind = \"ring\"\nsocket = \"{name}.sock\"\n");
    let pair = |name: &&str| {
        let far = format!("{name}-far");
        format!("{}{}[patch.{name}]\nports = [\"{name}\", \"{far}\"]\n", port(name), port(&far))
    };
    format!("{}{more}", names.iter().map(pair).collect::<String>())
}

/// A function on a port, which counts and returns frames.
fn mirror(name: &str, more: &str) -> String {
    format!(
        "[function.{name}]\nisolation = \"vm\"\nmemory = \"32MB\"\nport = \"{name}\"\n{more}\
         click = \"FromPort({name}) -> c :: Counter -> ToPort({name});\"\n"
    )
}

fn function(lab: &Lab, name: &str) -> Value {
    let list = lab.json(&["function", "list"]);
    list.as_array().unwrap().iter().find(|own| own["name"] == name).cloned().unwrap_or_default()
}

fn is_running(lab: &Lab, name: &str) -> bool {
    function(lab, name)["state"] == "running"
}

fn program(lab: &Lab, name: &str) -> Ring {
    Ring::connect(&lab.socket(&format!("{name}-far.sock"))).unwrap()
}

/// Sends frames until one comes back.
fn exchange(ring: &mut Ring) {
    let (end, mut frame) = (Instant::now() + BOUND, [0; 2048]);
    loop {
        assert!(Instant::now() < end, "no frame comes back");
        ring.tx.push(&[2; 60]).unwrap();
        ring.sync().unwrap();
        ring.wait(Wait::RX, Some(Duration::from_millis(100))).unwrap();
        if ring.rx.pop(&mut frame).unwrap().is_some() {
            break;
        }
    }
    while ring.rx.pop(&mut frame).unwrap().is_some() {}
    ring.rx.sync().unwrap();
}

fn count(lab: &Lab, name: &str) -> u64 {
    lab.ok(&["function", "read", name, "c.count"]).trim().parse().unwrap()
}

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
    let snapshots = lab.json(&["function", "snapshots"]);
    assert_eq!((&snapshots[0]["name"], &snapshots[0]["function"]), (&"warm".into(), &"one".into()));
    assert!(snapshots[0]["bytes"].as_u64().unwrap() > 0, "{snapshots}");
    assert!(lab.ok(&["function", "snapshots"]).contains("warm"));
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
    // A killed clone goes on from the snapshot again.
    let pid = function(&lab, "two")["pid"].clone();
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
    until("it runs again", || is_running(&lab, "two") && function(&lab, "two")["pid"] != pid);
    exchange(&mut program(&lab, "two"));
    lab.ok(&["function", "forget", "warm"]);
    exchange(&mut program(&lab, "three"));
    let gone = lab.fails(&["function", "clone", "warm", "four", "--port", "one"]).1;
    assert!(gone.contains("port one is one's already"), "{gone}");
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
    assert!(why(&["function", "forget", "a"]).contains("there is no snapshot \"a\""));
    lab.ok(&["function", "suspend", "one"]);
    assert!(why(&["function", "snapshot", "one", "a"]).contains("is suspended"));
    lab.ok(&["function", "resume", "one"]);
    lab.ok(&["function", "snapshot", "one", "a"]);
    assert!(why(&["function", "snapshot", "one", "a"]).contains("there is a snapshot a already"));
    let clone = ["function", "clone", "a", "new", "--port", "three"];
    assert!(why(&[&clone[..], &["--port", "one-far"]].concat()).contains("with 1 ports, not 2"));
    lab.ok(&clone);
    assert!(why(&["function", "snapshot", "new", "b"]).contains("it is a clone"));
    assert_eq!(lab.json(&["function", "snapshots"]).as_array().unwrap().len(), 1);
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
    // It has memory of its own, and so moves again: its former fabric has its port free.
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
    // A memory that is none: the function is not created.
    let body = r#"{"name":"x","function":"{}","state":"","process":1,"descriptor":999999,"inode":1}"#;
    let mut api = std::os::unix::net::UnixStream::connect(&socket).unwrap();
    let head =
        "POST /v1/arrivals HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\nconnection: close\r\n";
    std::io::Write::write_all(
        &mut api,
        format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes(),
    )
    .unwrap();
    let mut answer = String::new();
    std::io::Read::read_to_string(&mut api, &mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 422") && answer.contains("the function's description"), "{answer}");
}

#[test]
fn a_process_waits_for_the_next_function_in_a_vm_and_goes_with_the_last() {
    if !isolations().contains(&"vm") {
        return;
    }
    let lab = Lab::new("spare", &fabric(&["one", "two"], &mirror("one", "")));
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("it runs", || is_running(&lab, "one"));
    let control = lab.json(&["ps"])["fabric"]["pid"].as_u64().unwrap();
    // Children of control that are monitors, by number.
    let monitors = || -> Vec<u64> {
        let tasks = std::fs::read_dir(format!("/proc/{control}/task")).unwrap();
        let children =
            tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
        let all = children.flat_map(|line| line.split_whitespace().map(String::from).collect::<Vec<_>>());
        let is_monitor = |pid: &String| {
            std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(b"run-function\0"))
        };
        all.filter(is_monitor).filter_map(|pid| pid.parse().ok()).collect()
    };
    let pid = |name: &str| function(&lab, name)["pid"].as_u64().unwrap();
    until("there is a spare process", || monitors().len() == 2);
    let spare = *monitors().iter().find(|monitor| **monitor != pid("one")).unwrap();
    let click = "FromPort(two) -> c :: Counter -> ToPort(two);";
    lab.ok(&["function", "create", "two", "--isolation", "vm", "--port", "two", "--click", click]);
    assert_eq!(pid("two"), spare, "it runs there");
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
fn a_monitor_killed_at_any_point_comes_back_and_harms_nobody_else() {
    if !isolations().contains(&"vm") {
        return;
    }
    let lab =
        Lab::new("killed", &fabric(&["one", "two"], &format!("{}{}", mirror("one", ""), mirror("two", ""))));
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("they run", || is_running(&lab, "one") && is_running(&lab, "two"));
    let (mut one, mut two) = (program(&lab, "one"), program(&lab, "two"));
    exchange(&mut two);
    let other = function(&lab, "two")["pid"].clone();
    for round in 0..12 {
        lab.ok(&["function", "stop", "one"]);
        lab.ok(&["function", "start", "one"]);
        let pid = function(&lab, "one")["pid"].as_u64().unwrap();
        // Later in each round: from its first instruction until frames pass.
        let end = Instant::now() + Duration::from_micros(700 * round);
        while Instant::now() < end {
            std::thread::yield_now();
        }
        if pid > 0 {
            // It may have ended by itself.
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
        until("it runs again", || is_running(&lab, "one"));
        exchange(&mut one);
        exchange(&mut two);
    }
    assert_eq!(function(&lab, "two")["pid"], other, "the other one ran on");
    assert_eq!(lab.json(&["ps"])["fabric"]["restarts"], 0, "the data process went on");
}

/// Brings a fabric up where `/dev/kvm` is something else; `false` without the right to do so.
fn up_without_kvm(lab: &Lab) -> bool {
    let script = "mount --bind /dev/null /dev/kvm && exec \"$0\" up lab.toml --detach";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_ringway")]);
    command.current_dir(&lab.folder).env("RINGWAY_RUN", lab.folder.join("run"));
    let is_up = command.status().is_ok_and(|status| status.success());
    if !is_up {
        eprintln!("left out: /dev/kvm can't be replaced here");
    }
    is_up
}

#[test]
fn without_kvm_a_function_says_why_and_falls_back_only_if_its_file_says_so() {
    if !isolations().contains(&"vm") {
        return;
    }
    let functions = format!("{}{}", mirror("one", ""), mirror("two", "fallback = \"process\"\n"));
    let lab = Lab::new("nokvm", &fabric(&["one", "two"], &functions));
    if !up_without_kvm(&lab) {
        return;
    }
    until("the second runs", || is_running(&lab, "two"));
    let two = function(&lab, "two");
    let reason = |function: &Value| function["reason"].as_str().unwrap().to_string();
    assert_eq!(two["isolation"], "process");
    assert!(reason(&two).contains("a process instead of a VM") && reason(&two).contains("KVM"), "{two}");
    exchange(&mut program(&lab, "two"));
    until("the first says why", || reason(&function(&lab, "one")).contains("KVM"));
    assert!(!is_running(&lab, "one"));
}
