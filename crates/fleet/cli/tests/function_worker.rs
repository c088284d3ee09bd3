//! Functions on workers of the data path: what they must not do to the rest of the fabric.
#![allow(clippy::unwrap_used)]

use crate::lab::frames::{next, program, send};
use crate::lab::{Lab, isolations, until};
use ringway_ring_client::Ring;
use serde_json::Value;
use std::time::Duration;

/// A function between two programs, and two programs that have nothing to do with it, all on one worker.
const PORTS: &str = r#"
[port.one]
kind = "ring"
socket = "one.sock"
[port.in]
kind = "ring"
socket = "in.sock"
[port.out]
kind = "ring"
socket = "out.sock"
[port.two]
kind = "ring"
socket = "two.sock"
[port.left]
kind = "ring"
socket = "left.sock"
[port.right]
kind = "ring"
socket = "right.sock"
[patch.inner]
ports = ["one", "in"]
[patch.outer]
ports = ["out", "two"]
[patch.others]
ports = ["left", "right"]
"#;
const WIRE: &str = "FromPort(in) -> c :: Counter -> ToPort(out); FromPort(out) -> ToPort(in);";
const LONG: Duration = Duration::from_secs(20);

fn lab(name: &str, click: &str, more: &str) -> Lab {
    lab_of("worker", name, click, more)
}

fn lab_of(isolation: &str, name: &str, click: &str, more: &str) -> Lab {
    let function = format!(
        "[function.f]\nports = [\"in\", \"out\"]\nisolation = \"{isolation}\"\nconfig = \"f.click\"\n{more}"
    );
    let lab = Lab::new(&format!("{isolation}-{name}"), &format!("{PORTS}{function}"));
    write(&lab, click);
    lab.ok(&["up", "lab.toml", "--detach"]);
    lab
}

fn write(lab: &Lab, click: &str) {
    std::fs::write(lab.folder.join("f.click"), click).unwrap();
}

fn function(lab: &Lab) -> Value {
    lab.json(&["function", "list"])[0].clone()
}

fn runs(lab: &Lab) -> bool {
    function(lab)["state"] == "running"
}

fn read(lab: &Lab, handler: &str) -> u64 {
    lab.ok(&["function", "read", "f", handler]).trim().parse().unwrap()
}

#[test]
fn a_busy_function_leaves_the_worker_to_other_ports() {
    let busy = format!("{WIRE} InfiniteSource(LENGTH 60) -> b :: Counter -> Discard;");
    let lab = lab("busy", &busy, "");
    until("it runs", || runs(&lab));
    let (mut left, mut right) = (program(&lab, "left"), program(&lab, "right"));
    let (mut one, mut two) = (program(&lab, "one"), program(&lab, "two"));
    for number in 0..200 {
        assert!(send(&mut left, number) && send(&mut one, number));
        assert_eq!((next(&mut right, LONG), next(&mut two, LONG)), (Some(number), Some(number)));
    }
    assert!(read(&lab, "b.count") > 0 && read(&lab, "c.count") == 200);
    lab.ok(&["function", "stop", "f"]);
    until("its ports are free", || lab.state("in") == "waiting");
    assert!(send(&mut left, 7) && next(&mut right, LONG) == Some(7));
}

#[test]
fn a_greedy_function_ends_alone() {
    let greedy = format!(
        "{WIRE} InfiniteSource(LENGTH 1500, LIMIT 1) -> t :: Tee(2);
        t[0] -> q :: Queue(16000000) -> Unqueue -> t; t[1] -> q;"
    );
    let lab = lab("greedy", &greedy, "memory = \"32MB\"\n");
    let (mut left, mut right) = (program(&lab, "left"), program(&lab, "right"));
    until("it ends and comes again", || function(&lab)["restarts"].as_u64() > Some(1));
    let reason = || function(&lab)["reason"].as_str().unwrap().to_string();
    until("the reason is shown", || reason().contains("its packets exceed its memory"));
    assert!(send(&mut left, 7) && next(&mut right, LONG) == Some(7));
    assert_eq!(lab.json(&["ps"])["fabric"]["restarts"], 0, "the data process goes on");
}

/// Numbered frames pass a function whose configuration changes under way; all arrive, once and in order.
#[test]
fn a_change_under_load_loses_no_frame() {
    isolations().into_iter().chain(["worker"]).for_each(change_under_load);
}

fn change_under_load(isolation: &str) {
    let lab = lab_of(isolation, "change", WIRE, "memory = \"64MB\"\n");
    until("it runs", || runs(&lab) && lab.state("in") == "up" && lab.state("out") == "up");
    let sent = pass_during(&lab, 5, |change| {
        write(&lab, &WIRE.replace("c ::", &format!("Counter -> x{change} :: Counter -> c ::")));
        vec!["apply", "lab.toml"]
    });
    assert_eq!(read(&lab, "c.count"), u64::from(sent), "elements hand over what they know");
}

/// Passes numbered frames through the function, in order and without loss, while commands run; returns how many.
fn pass_during(lab: &Lab, commands: usize, words: impl Fn(usize) -> Vec<&'static str>) -> u32 {
    let (mut one, mut two) = (program(lab, "one"), program(lab, "two"));
    let (mut sent, mut got, mut begun) = (0, 0, 0);
    while begun < commands || got < sent {
        if begun < commands && sent == got + 100 {
            begun += 1;
            let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_ringway"));
            command.args(words(begun)).current_dir(&lab.folder);
            command.env("RINGWAY_RUN", lab.folder.join("run")).stdout(std::process::Stdio::null());
            let mut command = command.spawn().unwrap();
            while command.try_wait().unwrap().is_none() {
                if sent < got + 100 && send(&mut one, sent) {
                    sent += 1;
                }
                while let Some(number) = next(&mut two, Duration::ZERO) {
                    assert_eq!(number, got, "{}", lab.log());
                    got += 1;
                }
            }
            assert!(command.wait().unwrap().success(), "{}", lab.log());
        } else if begun < commands && send(&mut one, sent) {
            sent += 1;
        } else {
            assert_eq!(next(&mut two, LONG), Some(got), "{}", lab.log());
            got += 1;
        }
    }
    sent
}

/// The next process runs the function before it gets the frames, which wait meanwhile.
#[test]
fn an_upgrade_loses_no_frame_for_a_function() {
    let lab = lab("upgrade", WIRE, "");
    until("it runs", || runs(&lab) && lab.state("in") == "up" && lab.state("out") == "up");
    pass_during(&lab, 3, |_| vec!["upgrade"]);
    assert_eq!(lab.json(&["ps"])["fabric"]["restarts"], 3);
    until("it runs", || runs(&lab));
}

#[test]
fn a_function_is_removed_while_frames_are_in_hand() {
    let lab = lab("removed", WIRE, "");
    until("it runs", || runs(&lab));
    let (mut one, mut two) = (program(&lab, "one"), program(&lab, "two"));
    for round in 0..5 {
        for number in 0..100 {
            assert!(send(&mut one, number));
        }
        lab.ok(&["function", "stop", "f"]);
        until("its ports are free", || lab.state("in") == "waiting");
        while next(&mut two, Duration::from_millis(50)).is_some() {}
        lab.ok(&["function", "start", "f"]);
        until("it runs", || runs(&lab));
        until("frames pass", || {
            send(&mut one, 1000 + round) && next(&mut two, Duration::from_millis(100)) == Some(1000 + round)
        });
    }
    assert_eq!(lab.json(&["ps"])["fabric"]["restarts"], 0, "the data process goes on");
}

#[test]
fn functions_come_back_with_the_data_process() {
    let lab = lab("back", WIRE, "");
    until("it runs", || runs(&lab));
    let pid = lab.json(&["ps"])["fabric"]["data_pid"].as_u64().unwrap().to_string();
    assert!(std::process::Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    until("the data process is back", || lab.json(&["ps"])["fabric"]["restarts"] == 1);
    until("it runs again", || runs(&lab) && function(&lab)["restarts"].as_u64() > Some(0));
    let (mut one, mut two) = (program(&lab, "one"), program(&lab, "two"));
    until("frames pass", || send(&mut one, 7) && next(&mut two, Duration::from_millis(100)) == Some(7));
}

#[test]
fn a_port_of_a_function_admits_no_program() {
    let lab = lab("taken", WIRE, "");
    until("it runs", || runs(&lab));
    let refused = Ring::connect(&lab.socket("in.sock"));
    until("it is sent away", || lab.log().contains("function f has the port"));
    drop(refused);
    let (mut one, mut two) = (program(&lab, "one"), program(&lab, "two"));
    assert!(send(&mut one, 7) && next(&mut two, LONG) == Some(7));
}
