//! Peers that fail: the other ports go on, and the peer once it works again.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::data_kills::reflect_unless;
use crate::lab::frames::{Others, next, patched, program, send, switched};
use crate::lab::{Lab, Running, until};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

const ADDRESS: &str = "198.51.100.1/24";

/// Ends a guest when it is dropped: a test that fails would wait for it otherwise.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// A counter of a port: of frames, or of all that were dropped on their way to it.
fn counted(lab: &Lab, port: &str, counter: &str) -> u64 {
    let stats = lab.json(&["stats", port]);
    let row = stats["ports"].as_array().unwrap().iter().find(|row| row["name"] == port).unwrap();
    match &row["total"][counter] {
        Value::Object(reasons) => reasons.values().map(|count| count.as_u64().unwrap()).sum(),
        count => count.as_u64().unwrap(),
    }
}

/// The frames of the others pass through the same worker.
#[test]
fn a_program_that_is_stopped_delays_no_other_and_goes_on_where_it_was() {
    let lab = Lab::new("stopped", &(patched(&[["left", "right"]]) + &switched(&["a", "b"])));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let others = Others::between(&lab, ["left", "right"], false);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.args(["pktgen", "rx", "b", "--idle", "1s", "--json"]);
    command.current_dir(&lab.folder).env("RINGWAY_RUN", lab.folder.join("run")).stdout(Stdio::piped());
    let mut receiver = Running(command.spawn().unwrap());
    let pid = Pid::from_child(&receiver.0);
    until("the program is on its port", || lab.state("b") == "up");
    let send = |frames: &str| {
        // It fails if this machine kept it from its rate.
        let output = lab.run(&["pktgen", "tx", "a", "--count", frames, "--rate", "5kpps", "--json"]);
        let sent: Value = serde_json::from_slice(&output.stdout).unwrap();
        sent["frames"].as_u64().unwrap()
    };
    let mut sent = send("500");
    until("the program has read", || counted(&lab, "b", "rx_frames") == sent);
    kill_process(pid, Signal::STOP).unwrap();
    // More than its ring holds.
    sent += send("5000");
    others.pass(100);
    let dropped = counted(&lab, "b", "rx_drops");
    assert!(dropped > 0, "{}", lab.ok(&["stats", "b"]));
    kill_process(pid, Signal::CONT).unwrap();
    sent += send("500");
    let mut text = String::new();
    receiver.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
    assert!(receiver.0.wait().unwrap().success());
    let received: Value = serde_json::from_str(&text).unwrap();
    let lost = counted(&lab, "b", "rx_drops");
    assert_eq!(received["frames"].as_u64().unwrap() + lost, sent, "{received}");
    assert_eq!(received["corrupted"], 0, "{received}");
}

/// The frames of the others pass through the same worker.
#[test]
fn a_front_end_that_is_stopped_delays_no_other_and_goes_on_where_it_was() {
    let guest = "[port.near]\nkind = \"ring\"\nsocket = \"near.sock\"\n[port.vm]\nkind = \"vhost-user\"\n\
                 socket = \"vm.sock\"\n[patch.vm]\nports = [\"near\", \"vm\"]\n";
    for packed in [false, true] {
        let lab = Lab::new("front-stopped", &(patched(&[["left", "right"]]) + guest));
        lab.ok(&["up", "lab.toml", "--detach"]);
        let others = Others::between(&lab, ["left", "right"], false);
        let socket = UnixStream::connect(lab.socket("vm.sock")).unwrap();
        let [stop, stands] = [(); 2].map(|()| AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (stop, stands) = (&stop, &stands);
            let _stop = Stop(stop);
            scope.spawn(move || reflect_unless(socket, packed, stop, stands));
            until("the guest is up", || lab.state("vm") == "up");
            let (mut near, mut sent, mut back) = (program(&lab, "near"), 0, Vec::new());
            let mut exchange = |frames: u32, back: &mut Vec<u32>| {
                for _ in 0..frames {
                    until("there is room", || send(&mut near, sent));
                    sent += 1;
                    back.extend(next(&mut near, Duration::from_micros(200)));
                }
                while let Some(number) = next(&mut near, Duration::from_millis(300)) {
                    back.push(number);
                }
                sent
            };
            exchange(200, &mut back);
            assert_eq!(back.len(), 200);
            stands.store(true, SeqCst);
            // More than its rings hold.
            exchange(2000, &mut back);
            others.pass(100);
            assert!(counted(&lab, "vm", "rx_drops") > 0, "{}", lab.ok(&["stats", "vm"]));
            stands.store(false, SeqCst);
            let sent = exchange(200, &mut back);
            assert!(back.windows(2).all(|pair| pair[0] < pair[1]), "packed {packed}: in order, each once");
            let dropped = counted(&lab, "vm", "rx_drops") + counted(&lab, "near", "rx_drops");
            assert_eq!(back.len() as u64 + dropped, u64::from(sent), "packed {packed}");
            assert_eq!(back.last(), Some(&(sent - 1)));
        });
    }
}

#[test]
fn an_interface_that_is_deleted_is_made_again_with_its_address() {
    if !geteuid().is_root() {
        return eprintln!("not run: interfaces are root's");
    }
    let name = format!("rwd{}", std::process::id() % 100_000);
    let tap = format!(
        "[switch.s]\n[port.tap]\nkind = \"tap\"\ninterface = \"{name}\"\naddress = \"{ADDRESS}\"\n\
         switch = \"s\"\n"
    );
    let lab = Lab::new("deleted", &(patched(&[["left", "right"]]) + &tap));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let others = Others::between(&lab, ["left", "right"], false);
    let ip = |words: &[&str]| Command::new("ip").args(words).output().unwrap();
    let index = || std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).ok();
    for _ in 0..3 {
        let before = index().unwrap();
        assert!(ip(&["link", "del", &name]).status.success());
        until("the interface is made again", || index().is_some_and(|now| now != before));
        until("it has its address", || {
            String::from_utf8(ip(&["-4", "addr", "show", "dev", &name]).stdout).unwrap().contains(ADDRESS)
        });
        until("the port is up", || lab.state("tap") == "up");
        others.pass(50);
    }
    assert!(lab.log().contains("the interface is gone"), "{}", lab.log());
}
