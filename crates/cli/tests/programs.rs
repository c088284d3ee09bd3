//! The first steps of docs/programs.md.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod lab;

use lab::{Lab, Running};
use std::process::Command;

#[test]
fn a_program_pings_another_through_the_switch() {
    let file = include_str!("../../../examples/rings.toml");
    let lab = Lab::new("programs", &file.replace("[fabric]\nname = \"rings\"\n", ""));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let program = lab::example("ringway-client", "pkt-gen");
    let pong = Command::new(&program).arg("pong").arg(lab.socket("pong.sock")).spawn().unwrap();
    let _pong = Running(pong);
    lab::until("the answering program is there", || lab.state("pong") == "up");
    let mut ping = Command::new(&program);
    ping.arg("ping").arg(lab.socket("ping.sock")).args(["--count", "100", "--spin", "50"]);
    let output = ping.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.starts_with("us: min"), "{stdout}");
    let second = Command::new(&program).arg("rx").arg(lab.socket("pong.sock")).spawn().unwrap();
    let _second = Running(second);
    let waits = "another program waits until the present one has left port=\"pong\"";
    lab::until("a second program is reported", || lab.log().contains(waits));
    lab.ok(&["down"]);
}
