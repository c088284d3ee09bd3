//! `ringway profile` of the data path.

use crate::docs::shown;
use crate::lab::Lab;
use crate::lab::frames::{LONG, next, send};
use ringway_ring_client::Ring;
use serde_json::Value;
use std::process::Command;

/// Two programs with a function between them.
const FILE: &str = r#"
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
[patch.inner]
ports = ["one", "in"]
[patch.outer]
ports = ["out", "two"]
[function.wire]
ports = ["in", "out"]
isolation = "worker"
config = "wire.click"
"#;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// What a worker did, which must add up to the sample.
fn checked(view: &Value) {
    for worker in view["workers"].as_array().unwrap() {
        let stages = worker["stages"].as_array().unwrap();
        let parts = ["slept", "idle", "functions"].iter().map(|part| number(&worker[*part]));
        let all = parts.sum::<u64>() + stages.iter().map(|stage| number(&stage["time"])).sum::<u64>();
        assert_eq!(all, number(&view["nanoseconds"]), "{view}");
    }
}

#[test]
fn the_time_of_workers_and_functions_adds_up() {
    let lab = Lab::new("profile", FILE);
    std::fs::write(lab.folder.join("wire.click"), "FromPort(in) -> c :: Counter -> ToPort(out);").unwrap();
    lab.ok(&["up", "lab.toml", "--detach"]);
    let [mut one, mut two] =
        ["one", "two"].map(|port| Ring::connect(&lab.socket(&format!("{port}.sock"))).unwrap());
    crate::lab::until("the function runs", || send(&mut one, 0) && next(&mut two, LONG).is_some());
    // A worker without frames sleeps.
    let idle = lab.json(&["profile", "--seconds", "1"]);
    checked(&idle);
    assert!(2 * number(&idle["workers"][0]["slept"]) > number(&idle["nanoseconds"]), "{idle}");
    // Frames pass until the profile has ended.
    let mut profile = Command::new(env!("CARGO_BIN_EXE_ringway"));
    profile.args(["profile", "--seconds", "2", "--elements", "--svg", "profile.svg", "--json"]);
    profile.current_dir(&lab.folder).env("RINGWAY_RUN", lab.folder.join("run"));
    let profile = std::thread::spawn(move || profile.output().unwrap());
    let mut frames = 0;
    while !profile.is_finished() {
        for _ in 0..32 {
            send(&mut one, frames);
        }
        while two.rx.pop(&mut [0; 60]).unwrap().is_some() {
            frames += 1;
        }
        two.rx.sync().unwrap();
    }
    let output = profile.join().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let view: Value = serde_json::from_slice(&output.stdout).unwrap();
    checked(&view);
    assert!(frames > 1000, "{frames}");
    let worker = &view["workers"][0];
    let stage =
        |name: &str| worker["stages"].as_array().unwrap().iter().find(|stage| stage["name"] == name).cloned();
    for name in ["take", "copy", "publish"] {
        let stage = stage(name).unwrap();
        let [time, ticks, bursts, frames] =
            ["time", "ticks", "bursts", "frames"].map(|part| number(&stage[part]));
        assert!(time > 0 && ticks > 0 && bursts > 0 && frames >= bursts, "{name}: {view}");
    }
    let function = &view["functions"][0];
    assert_eq!((&function["name"], number(&function["time"]) > 0), (&"wire".into(), true), "{view}");
    assert!(number(&function["time"]) <= number(&worker["functions"]) + number(&view["nanoseconds"]) / 10);
    let elements = function["elements"].as_array().unwrap();
    let counter = elements.iter().find(|element| element["name"] == "c").unwrap();
    assert!(number(&counter["packets"]) > 0 && number(&counter["ticks"]) > 0, "{view}");
    let svg = std::fs::read_to_string(lab.folder.join("profile.svg")).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("c :: Counter"), "{svg}");
    std::fs::remove_file(lab.folder.join("profile.svg")).unwrap();
    for line in shown("measure.md", "sh").join("\n").lines() {
        let output = lab.shell(line).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let is_shown = text.contains("sleep") && text.contains("wire (on ");
        assert!(output.status.success() && is_shown, "{line}: {output:?}");
    }
    assert!(lab.folder.join("profile.svg").exists());
}

#[test]
fn wrong_profiles_are_refused() {
    let lab = Lab::new("profile-wrong", FILE);
    std::fs::write(lab.folder.join("wire.click"), "FromPort(in) -> ToPort(out);").unwrap();
    lab.ok(&["up", "lab.toml", "--detach"]);
    for (words, code, part) in [
        (&["nobody"][..], 5, "nobody"),
        (&["--seconds", "61"], 1, "at most 60 s"),
        (&["left", "--elements"], 2, "cannot be used with"),
        (&["--seconds", "1", "--svg", "/nowhere/x.svg"], 1, "/nowhere/x.svg: "),
    ] {
        let (found, why) = lab.fails(&[&["profile"][..], words].concat());
        assert!(found == code && why.contains(part), "{words:?}: {found}, {why}");
    }
}
