//! The first steps of docs/programs.md.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::lab::{Lab, Running};
use ringway_ring_client::{Ring, Wait};
use std::process::Command;
use std::time::{Duration, Instant};

#[test]
fn a_program_pings_another_through_the_switch() {
    let file = include_str!("../../../../examples/rings.toml");
    let lab = Lab::new("programs", &file.replace("[fabric]\nname = \"rings\"\n", ""));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let program = crate::lab::example("ringway-ring-client", "pkt-gen");
    let pong = Command::new(&program).arg("pong").arg(lab.socket("pong.sock")).spawn().unwrap();
    let _pong = Running(pong);
    crate::lab::until("the answering program is there", || lab.state("pong") == "up");
    let mut ping = Command::new(&program);
    ping.arg("ping").arg(lab.socket("ping.sock")).args(["--count", "100", "--spin", "50"]);
    let output = ping.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.starts_with("us: min"), "{stdout}");
    let second = Command::new(&program).arg("rx").arg(lab.socket("pong.sock")).spawn().unwrap();
    let _second = Running(second);
    let waits = "another program waits until the present one has left port=\"pong\"";
    crate::lab::until("a second program is reported", || lab.log().contains(waits));
    lab.ok(&["down"]);
}

/// Frames that a program has sent are not lost with its ring when it ends at once.
#[test]
fn frames_of_a_program_that_ends_arrive() {
    let port = |name: &str| format!("[port.{name}]\nkind = \"ring\"\nsocket = \"{name}.sock\"\n");
    let ports = format!("{}{}[patch.p]\nports = [\"a\", \"b\"]\n", port("a"), port("b"));
    let lab = Lab::new("programs-end", &ports);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let mut ring = Ring::connect(&lab.socket("b.sock")).unwrap();
    crate::lab::until("the receiver is there", || lab.state("b") == "up");
    let (mut frame, end) = ([0; 2048], Instant::now() + Duration::from_secs(20));
    for _ in 0..10 {
        let click = format!(
            "s :: RatedSource(RATE 1000000, LIMIT 5, STOP true, ACTIVE false) -> b :: ToPort({});\n\
             Script(label x, wait 1ms, goto x $(ne $(b.state) up), write s.active true);\n\
             DriverManager(wait_stop)",
            lab.socket("a.sock").display()
        );
        assert_eq!(lab.ok(&["click", "-e", &click, "-h", "b.count"]).trim(), "5");
        for _ in 0..5 {
            while ring.rx.pop(&mut frame).unwrap().is_none() {
                assert!(Instant::now() < end, "a frame is lost");
                ring.wait(Wait::RX, Some(Duration::from_millis(100))).unwrap();
            }
        }
        ring.rx.sync().unwrap();
    }
}
