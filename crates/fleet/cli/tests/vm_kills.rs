//! Monitors of functions in VMs of the real program, and commands, that are killed in the middle of something.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::lab::api::{function, is_running, kill, pid, processes};
use crate::lab::http::{answer, ask};
use crate::lab::vms::{control, count, exchange, fabric, mirror, program};
use crate::lab::{Lab, isolations, until};
use ringway_ring_client::Ring;
use serde_json::{Value, json};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Kills in a test, each later than the one before.
const KILLS: u32 = 8;

/// A fabric with a function `one`, another that must not notice anything, and a free port; none without KVM.
fn begin(name: &str) -> Option<(Lab, Ring, Ring)> {
    if !isolations().contains(&"vm") {
        return None;
    }
    let functions = format!("{}{}", mirror("one", ""), mirror("two", ""));
    let lab = Lab::new(name, &fabric(&["one", "two", "three"], &functions));
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("they run", || is_running(&lab, "one") && is_running(&lab, "two"));
    let (mut one, mut two) = (program(&lab, "one"), program(&lab, "two"));
    exchange(&mut one);
    exchange(&mut two);
    Some((lab, one, two))
}

/// The other function ran on, and the data process.
fn end(lab: &Lab, two: &mut Ring, before: &Value) {
    exchange(two);
    assert_eq!(&function(lab, "two")["pid"], before, "the other one ran on");
    assert_eq!(lab.json(&["ps"])["fabric"]["restarts"], 0, "the data process went on");
}

/// Waits for a part of a millisecond, or some.
fn spin(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// Starts `one` anew, so that its next restart has the shortest delay.
fn fresh(lab: &Lab) -> u64 {
    lab.ok(&["function", "stop", "one"]);
    lab.ok(&["function", "start", "one"]);
    until("it runs", || is_running(lab, "one"));
    pid(lab, "one")
}

/// The reason of a refusal.
fn why(body: &str) -> String {
    serde_json::from_str::<Value>(body).unwrap()["error"].as_str().unwrap().into()
}

#[test]
fn a_monitor_killed_during_a_snapshot_comes_back_and_the_snapshot_is_whole_or_none() {
    let Some((lab, mut one, mut two)) = begin("kill-snapshot") else { return };
    let other = function(&lab, "two")["pid"].clone();
    for round in 0..KILLS {
        let process = fresh(&lab);
        exchange(&mut one);
        let name = format!("s{round}");
        let asked = ask(&lab, "POST", "/v1/functions/one/snapshot", &json!({ "name": name }));
        spin(Duration::from_micros(400) * round);
        kill(process);
        let (status, body) = answer(asked);
        let kept = lab.json(&["snapshot", "list"]);
        let is_kept = kept.as_array().unwrap().iter().any(|snapshot| snapshot["name"] == name.as_str());
        assert_eq!(is_kept, status == 201, "{body}");
        if is_kept {
            lab.ok(&["function", "clone", &name, "three", "--port", "three"]);
            exchange(&mut program(&lab, "three"));
            lab.ok(&["function", "destroy", "three"]);
        } else {
            assert!(status == 409 && !why(&body).is_empty(), "{status} {body}");
        }
        until("it runs again", || is_running(&lab, "one"));
        exchange(&mut one);
    }
    end(&lab, &mut two, &other);
}

#[test]
fn a_clone_killed_while_it_starts_is_refused_or_starts_again_and_its_snapshot_stays() {
    let Some((lab, _one, mut two)) = begin("kill-clone") else { return };
    let other = function(&lab, "two")["pid"].clone();
    let before = count(&lab, "one");
    lab.ok(&["function", "snapshot", "one", "warm"]);
    for round in 0..KILLS {
        let body = json!({ "name": "three", "ports": ["three"] });
        let asked = ask(&lab, "POST", "/v1/snapshots/warm/clone", &body);
        let begun = Instant::now();
        let mut process = 0;
        while process == 0 && begun.elapsed() < Duration::from_secs(10) {
            process = pid(&lab, "three");
        }
        spin(Duration::from_micros(300) * round);
        kill(process);
        let (status, body) = answer(asked);
        if status == 201 {
            until("it runs", || is_running(&lab, "three"));
            assert!(count(&lab, "three") >= before, "it knows what its original knew");
            lab.ok(&["function", "destroy", "three"]);
        } else {
            assert!(status == 422 && why(&body).contains("SIGKILL"), "{status} {body}");
        }
        assert!(function(&lab, "three").is_null());
    }
    lab.ok(&["function", "clone", "warm", "three", "--port", "three"]);
    exchange(&mut program(&lab, "three"));
    end(&lab, &mut two, &other);
}

#[test]
fn a_monitor_killed_during_an_update_comes_back_with_the_configuration_that_the_answer_says() {
    let Some((lab, mut one, mut two)) = begin("kill-update") else { return };
    let other = function(&lab, "two")["pid"].clone();
    let mut last = None;
    for round in 0..KILLS {
        let process = fresh(&lab);
        let text = format!("FromPort(one) -> c :: Counter -> d{round} :: Counter -> ToPort(one);");
        let body = json!({ "configuration": text });
        let asked = ask(&lab, "PUT", "/v1/functions/one/configuration", &body);
        spin(Duration::from_micros(400) * round);
        kill(process);
        let (status, body) = answer(asked);
        if status == 204 {
            last = Some(round);
        } else {
            assert!(status == 409 && !why(&body).is_empty(), "{status} {body}");
        }
        until("it runs again", || is_running(&lab, "one") && pid(&lab, "one") != process);
        exchange(&mut one);
        let list = lab.ok(&["function", "read", "one", "list"]);
        let has = |round| list.lines().any(|line| line == format!("d{round}"));
        assert!((0..=round).all(|round| has(round) == (last == Some(round))), "{last:?}: {list}");
    }
    end(&lab, &mut two, &other);
}

#[test]
fn a_monitor_killed_while_it_is_suspended_comes_back() {
    let Some((lab, mut one, mut two)) = begin("kill-suspended") else { return };
    let other = function(&lab, "two")["pid"].clone();
    lab.ok(&["function", "suspend", "one"]);
    kill(pid(&lab, "one"));
    until("it runs again", || is_running(&lab, "one"));
    exchange(&mut one);
    assert!(lab.fails(&["function", "resume", "one"]).1.contains("is not suspended"));
    end(&lab, &mut two, &other);
}

#[test]
fn the_process_that_waits_may_be_killed_before_and_while_it_gets_its_order() {
    let Some((lab, _one, mut two)) = begin("kill-spare") else { return };
    let other = function(&lab, "two")["pid"].clone();
    let control = control(&lab);
    let spare = || {
        let taken = ["one", "two", "three"].map(|name| pid(&lab, name));
        processes(control).into_iter().find(|monitor| !taken.contains(monitor))
    };
    let body = json!({
        "name": "three", "isolation": "vm", "ports": ["three"], "memory": 32 << 20,
        "configuration": "FromPort(three) -> c :: Counter -> ToPort(three);",
    });
    for round in 0..KILLS {
        // A process that ended before it was known to wait is replaced at the next start.
        let look = |_| {
            std::thread::sleep(Duration::from_millis(5));
            spare()
        };
        let waiting = (0..200).find_map(look);
        let end_it = || waiting.into_iter().for_each(kill);
        if round == 0 {
            assert!(waiting.is_some());
            end_it();
        }
        let asked = ask(&lab, "POST", "/v1/functions", &body);
        spin(Duration::from_micros(300) * round);
        end_it();
        let (status, answered) = answer(asked);
        if status != 201 {
            assert!(status == 422 && why(&answered).contains("SIGKILL"), "{status} {answered}");
            lab.ok(&["function", "list"]);
            assert_eq!(answer(ask(&lab, "POST", "/v1/functions", &body)).0, 201);
        }
        until("it runs", || is_running(&lab, "three"));
        exchange(&mut program(&lab, "three"));
        lab.ok(&["function", "destroy", "three"]);
    }
    end(&lab, &mut two, &other);
}

/// Another fabric, with a free port of the same name.
fn there(name: &str) -> Lab {
    let lab = Lab::new(name, &fabric(&["one"], ""));
    lab.ok(&["up", "lab.toml", "--detach"]);
    lab
}

#[test]
fn a_monitor_killed_between_departure_and_arrival_costs_its_state_and_nothing_else() {
    let Some((here, mut one, mut two)) = begin("kill-departed") else { return };
    let there = there("kill-departed-there");
    let other = function(&here, "two")["pid"].clone();
    let (status, departure) = answer(ask(&here, "POST", "/v1/functions/one/depart", &Value::Null));
    assert_eq!((status, &function(&here, "one")["state"]), (200, &"suspended".into()));
    kill(pid(&here, "one"));
    until("it runs again", || is_running(&here, "one"));
    let departure: Value = serde_json::from_str(&departure).unwrap();
    let (status, refused) = answer(ask(&there, "POST", "/v1/arrivals", &departure));
    assert!(status == 422 && why(&refused).contains("function's memory"), "{status} {refused}");
    assert!(function(&there, "one").is_null(), "it does not run twice");
    exchange(&mut one);
    end(&here, &mut two, &other);
}

#[test]
fn a_monitor_killed_while_it_arrives_leaves_the_function_where_it_was() {
    let Some((here, mut one, mut two)) = begin("kill-arriving") else { return };
    let there = there("kill-arriving-there");
    let other = function(&here, "two")["pid"].clone();
    for round in 0..KILLS {
        let kept = count(&here, "one");
        let (_, departure) = answer(ask(&here, "POST", "/v1/functions/one/depart", &Value::Null));
        let departure: Value = serde_json::from_str(&departure).unwrap();
        let asked = ask(&there, "POST", "/v1/arrivals", &departure);
        let begun = Instant::now();
        let mut process = 0;
        while process == 0 && begun.elapsed() < Duration::from_secs(10) {
            process = pid(&there, "one");
        }
        spin(Duration::from_micros(300) * round);
        kill(process);
        let (status, refused) = answer(asked);
        if status == 201 {
            // The function had arrived before: it is started there from its configuration.
            until("it runs there", || is_running(&there, "one"));
            there.ok(&["function", "destroy", "one"]);
        } else {
            assert!(status == 422 && why(&refused).contains("SIGKILL"), "{status} {refused}");
        }
        assert!(function(&there, "one").is_null());
        here.ok(&["function", "resume", "one"]);
        assert!(count(&here, "one") >= kept, "with its state");
        exchange(&mut one);
    }
    end(&here, &mut two, &other);
}

/// Waits until neither fabric is in the middle of a move, and lets the function go on here.
fn bring_home(here: &Lab, there: &Lab) {
    let settled = |state: &Value| state.is_null() || state == "running" || state == "suspended";
    let see = || [here, there].map(|lab| function(lab, "one")["state"].clone());
    let (mut states, mut since) = (see(), Instant::now());
    until("nothing is under way", || {
        let seen = see();
        if !seen.iter().all(settled) || seen != states {
            (states, since) = (seen, Instant::now());
        }
        since.elapsed() > Duration::from_millis(100)
    });
    let [home, away] = states.each_ref().map(|state| state.as_str().unwrap_or_default());
    match (home, away) {
        ("running", "") => {}
        ("suspended", "") => drop(here.ok(&["function", "resume", "one"])),
        ("suspended" | "", "running") => {
            if home == "suspended" {
                here.ok(&["function", "destroy", "one"]);
            }
            there.ok(&["function", "migrate", "one", "--to", here.socket("api.sock").to_str().unwrap()]);
        }
        _ => panic!("{states:?}"),
    }
}

#[test]
fn a_move_whose_command_is_killed_leaves_the_function_where_it_can_go_on() {
    let Some((here, mut one, mut two)) = begin("kill-migrate") else { return };
    let there = there("kill-migrate-there");
    let other = function(&here, "two")["pid"].clone();
    let to = there.socket("api.sock");
    let kept = count(&here, "one");
    // What is left of a command that was killed between both requests.
    let (_, departure) = answer(ask(&here, "POST", "/v1/functions/one/depart", &Value::Null));
    assert!(departure.contains("descriptor") && function(&here, "one")["state"] == "suspended");
    here.ok(&["function", "resume", "one"]);
    assert!(count(&here, "one") >= kept);
    exchange(&mut one);
    for round in 0..KILLS {
        let kept = count(&here, "one");
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
        command.args(["function", "migrate", "one", "--to", to.to_str().unwrap()]).current_dir(&here.folder);
        command.env("RINGWAY_RUN", here.folder.join("run")).stdout(Stdio::null()).stderr(Stdio::null());
        let mut command = command.spawn().unwrap();
        spin(Duration::from_millis(4) * round);
        // The process may have ended.
        let _ = command.kill();
        command.wait().unwrap();
        let mut back = None;
        until("it goes on here", || {
            bring_home(&here, &there);
            // A request of the command that is served late suspends it once more.
            let read = here.run(&["function", "read", "one", "c.count"]);
            back = String::from_utf8_lossy(&read.stdout).trim().parse::<u64>().ok();
            back.is_some()
        });
        assert!(back >= Some(kept), "with its state");
        exchange(&mut one);
    }
    end(&here, &mut two, &other);
}
