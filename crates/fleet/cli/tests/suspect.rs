//! Processes that crash by what they do: `control` that panics, and `data` that crashes whenever it serves a port. The
//! example `faulty` does so when its file says it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::lab::frames::{Others, patched, program, send};
use crate::lab::{Lab, example, until};
use serde_json::Value;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// A fabric of the example: programs `bad`, whose frames go to the faulty port, and `left` and `right`.
struct FaultyFabric {
    lab: Lab,
    fault: PathBuf,
}

impl FaultyFabric {
    fn new(name: &str) -> FaultyFabric {
        let lab = Lab::new(name, "");
        let fault = lab.folder.join("fault");
        std::fs::write(&fault, "0").unwrap();
        let ports = format!(
            "[port.bad]\nkind = \"ring\"\nsocket = \"bad.sock\"\n\
             [port.faulty]\nkind = \"faulty\"\nfile = \"{}\"\n\
             [patch.bad]\nports = [\"bad\", \"faulty\"]\n",
            fault.display()
        );
        lab.write(&(patched(&[["left", "right"]]) + &ports));
        let mut up = Command::new(example("ringway-cli", "faulty"));
        up.args(["up", "lab.toml", "--detach"]).current_dir(&lab.folder);
        let up = up.env("RINGWAY_RUN", lab.folder.join("run")).env_remove("RINGWAY_LOG").output().unwrap();
        assert!(up.status.success(), "{}{}", String::from_utf8_lossy(&up.stderr), lab.log());
        FaultyFabric { lab, fault }
    }

    fn say(&self, fault: &str) {
        std::fs::write(&self.fault, fault).unwrap();
    }

    fn fabric(&self) -> Value {
        self.lab.json(&["ps"])["fabric"].clone()
    }

    fn port(&self, name: &str) -> Value {
        let ps = self.lab.json(&["ps"]);
        ps["ports"].as_array().unwrap().iter().find(|port| port["name"] == name).unwrap().clone()
    }
}

#[test]
fn a_control_process_that_panics_is_replaced() {
    let faulty = FaultyFabric::new("panics");
    let others = Others::between(&faulty.lab, ["left", "right"], false);
    others.pass(10);
    let before = faulty.fabric();
    faulty.say("2");
    // The answer to this one is lost.
    let _ = faulty.lab.run(&["ps"]);
    until("another one answers", || faulty.fabric()["pid"] != before["pid"]);
    assert_eq!(faulty.fabric()["data_pid"], before["data_pid"]);
    let log = faulty.lab.log();
    assert!(log.contains("as its file wants it") && log.contains("exit status: 101"), "{log}");
    others.pass(10);
    drop(others);
    faulty.lab.ok(&["down"]);
    assert!(!faulty.lab.folder.join("run/lab").exists(), "a wanted end is the fabric's");
}

#[test]
fn a_port_with_which_the_data_process_crashes_again_and_again_is_taken_out_of_service() {
    let faulty = FaultyFabric::new("suspect");
    let others = Others::between(&faulty.lab, ["left", "right"], true);
    let mut bad = program(&faulty.lab, "bad");
    others.pass(10);
    for least in [2, 4] {
        faulty.say("1");
        // The frame is there again after each crash.
        send(&mut bad, 1);
        until("the port is out of service", || faulty.port("bad")["state"] == "down");
        let reason = faulty.port("bad")["reason"].to_string();
        assert!(reason.contains("suspected") && reason.contains("`ringway port up bad`"), "{reason}");
        assert!(faulty.lab.log().contains("suspected"), "{}", faulty.lab.log());
        // The next one starts after a while.
        until("data has started again", || faulty.fabric()["restarts"].as_u64().unwrap() >= least);
        others.pass(10);
        faulty.say("0");
        faulty.lab.ok(&["port", "up", "bad"]);
        until("it goes on", || faulty.port("bad")["state"] == "up");
        others.pass(10);
        // A process that ran for a second is replaced at once.
        let end = Instant::now() + Duration::from_millis(1100);
        until("it has run for a while", || Instant::now() > end);
    }
    let sent = || {
        let stats = faulty.lab.json(&["stats"]);
        let ports = stats["ports"].as_array().unwrap();
        let bad = ports.iter().find(|port| port["name"] == "bad").unwrap();
        bad["total"]["tx_frames"].as_u64().unwrap()
    };
    let before = sent();
    send(&mut bad, 2);
    until("its frames pass", || sent() > before);
    drop(others);
    faulty.lab.ok(&["down"]);
}
