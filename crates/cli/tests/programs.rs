//! The first steps of docs/programs.md.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod lab;

use lab::Lab;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// The example that the page runs; `cargo test` of the workspace has built it.
fn pkt_gen() -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_ringway")).parent().unwrap();
    let program = folder.join("examples/pkt-gen");
    if !program.exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "ringway-client", "--example", "pkt-gen", "--target-dir"]);
        assert!(build.arg(folder.parent().unwrap()).status().unwrap().success());
        return folder.parent().unwrap().join("debug/examples/pkt-gen");
    }
    program
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_program_pings_another_through_the_switch() {
    let file = include_str!("../../../examples/rings.toml");
    let lab = Lab::new("programs", &file.replace("[fabric]\nname = \"rings\"\n", ""));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let program = pkt_gen();
    let pong = Command::new(&program).arg("pong").arg(lab.socket("pong.sock")).spawn().unwrap();
    let _pong = Running(pong);
    lab::until("the answering program is there", || lab.state("pong") == "up");
    let mut ping = Command::new(&program);
    ping.arg("ping").arg(lab.socket("ping.sock")).args(["--count", "100", "--spin", "50"]);
    let output = ping.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && stdout.starts_with("us: min"), "{stdout}");
    lab.ok(&["down"]);
}
