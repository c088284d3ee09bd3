//! Ports that programs open on a switch by its socket.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::docs::shown;
use crate::lab::frames::{LONG, next, send_to_all};
use crate::lab::{Lab, Running, c_program, until};
use ringway_ring_client::{Ring, RingError, RingOptions};
use rustix::process::{Pid, Signal, kill_process};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const OPEN: &str = "[switch.LAN]\nopen = \"0660\"\nopen-limit = 3\n";

fn up(name: &str, file: &str) -> Lab {
    let lab = Lab::new(name, file);
    lab.ok(&["up", "lab.toml", "--detach"]);
    lab
}

fn path(lab: &Lab, port: &str) -> PathBuf {
    lab.socket(&format!("switches/LAN:{port}"))
}

fn ports(lab: &Lab) -> Vec<String> {
    let list = lab.json(&["port", "list"]);
    list.as_array().unwrap().iter().map(|port| port["name"].as_str().unwrap().into()).collect()
}

/// A program that has opened a port, which is up.
fn open(lab: &Lab, port: &str) -> Ring {
    let ring = Ring::connect(&path(lab, port)).unwrap();
    until("the port is up", || lab.state(&format!("LAN:{port}")) == "up");
    ring
}

fn passes(from: &mut Ring, to: &mut Ring, number: u32) {
    // Each number is sent in one direction, whose station it names.
    assert!(send_to_all(from, number as u8, number));
    while next(to, LONG).unwrap() != number {}
}

/// The text of a refusal.
fn refused(lab: &Lab, port: &str, options: RingOptions) -> (String, bool) {
    match Ring::connect_with(&path(lab, port), options, Some(LONG)) {
        Err(RingError::Refused(why)) => (why, false),
        Err(RingError::Unsuitable(why)) => (why, true),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_program_opens_a_port_which_goes_when_it_leaves() {
    let lab = up("open", OPEN);
    let mode = std::fs::metadata(lab.socket("switches/LAN")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o660);
    let (mut a, mut b) = (open(&lab, "a"), open(&lab, "b"));
    passes(&mut a, &mut b, 1);
    passes(&mut b, &mut a, 2);
    assert_eq!(ports(&lab), ["LAN:a", "LAN:b"]);
    assert_eq!(lab.json(&["port", "show", "LAN:a"])["to"], "switch LAN");
    assert_eq!(lab.json(&["switch", "list"])[0]["ports"], serde_json::json!(["LAN:a", "LAN:b"]));
    // Another program waits until the first one has left.
    let late = Ring::connect_with(&path(&lab, "b"), RingOptions::default(), Some(Duration::from_millis(50)));
    assert!(matches!(late, Err(RingError::TimedOut)), "{late:?}");
    let second = path(&lab, "b");
    let second = std::thread::spawn(move || Ring::connect(&second).unwrap());
    passes(&mut a, &mut b, 3);
    drop(b);
    let mut b = second.join().unwrap();
    until("it has the port", || lab.state("LAN:b") == "up");
    passes(&mut a, &mut b, 4);
    // An operator may remove it, and the program opens it again.
    lab.ok(&["port", "remove", "LAN:b"]);
    let mut b = b.renew(Some(LONG)).unwrap();
    until("it is there again", || lab.state("LAN:b") == "up");
    passes(&mut a, &mut b, 5);
    drop((a, b));
    until("the ports are gone", || ports(&lab).is_empty());
    lab.ok(&["down"]);
    assert!(!lab.socket("").exists());
}

#[test]
fn rings_and_their_number_are_bounded() {
    let lab = up("open-limit", OPEN);
    let (wide, long) =
        (RingOptions { slots: [4096; 2], slot_size: 32_768, ..RingOptions::default() }, "n".repeat(64));
    let rings: Vec<Ring> = ["a", "b", &long].iter().map(|name| open(&lab, name)).collect();
    let (why, is_final) = refused(&lab, "d", RingOptions::default());
    assert!(
        !is_final && why.contains("have opened 3 ports on switch LAN, of 3 at most (`open-limit`)"),
        "{why}"
    );
    drop(rings);
    until("they are gone", || ports(&lab).is_empty());
    let (why, is_final) = refused(&lab, "d", wide);
    assert!(is_final && why.contains("has 20 MB at most"), "{why}");
    let odd = RingOptions { slots: [100; 2], ..RingOptions::default() };
    let (_, is_final) = refused(&lab, "d", odd);
    assert!(is_final);
    for name in ["-x", "a b", "a.b"] {
        let (why, is_final) = refused(&lab, name, RingOptions::default());
        assert!(is_final && why.contains("can't be a name"), "{name}: {why}");
    }
    // A program that names no port, and one that names none in time.
    let unnamed = Ring::connect_with(&lab.socket("switches/LAN"), RingOptions::default(), Some(LONG));
    assert!(unnamed.unwrap_err().to_string().contains("names no port"));
    let _silent = UnixStream::connect(lab.socket("switches/LAN")).unwrap();
    until("nothing is left of what was refused", || ports(&lab).is_empty());
    // A function has no such port.
    let _ring = open(&lab, "a");
    let words = ["function", "create", "f", "--click", "Idle;", "--port", "LAN:a"];
    assert!(lab.fails(&words).1.contains("port LAN:a is of the program that has opened it"));
    lab.ok(&["down"]);
}

#[test]
fn ports_of_programs_outlive_control_and_data_and_an_upgrade() {
    let lab = up("open-live", OPEN);
    let (mut a, mut b) = (open(&lab, "a"), open(&lab, "b"));
    passes(&mut a, &mut b, 1);
    let kill = |names: &[&str]| {
        let before = lab.json(&["ps"])["fabric"].clone();
        for name in names {
            let pid = before[name].as_i64().unwrap().try_into().unwrap();
            kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
        }
        until("others are there", || {
            let ps = lab.run(&["ps", "--json"]);
            let now: serde_json::Value = serde_json::from_slice(&ps.stdout).unwrap_or_default();
            names.iter().all(|name| {
                now["fabric"][name].as_i64().is_some_and(|pid| pid != 0)
                    && now["fabric"][name] != before[name]
            })
        });
    };
    for (number, how) in (2..).zip(["pid", "data_pid", "upgrade"]) {
        if how == "upgrade" {
            drop(lab.ok(&["upgrade"]))
        } else {
            kill(&[how])
        }
        until("the ports are up", || ["LAN:a", "LAN:b"].iter().all(|port| lab.state(port) == "up"));
        assert_eq!(ports(&lab), ["LAN:a", "LAN:b"], "{how}: {}", lab.log());
        passes(&mut a, &mut b, 10 * number);
        // A frame may be lost with the data process, and none later.
        passes(&mut b, &mut a, 10 * number + 1);
    }
    drop(open(&lab, "c"));
    drop(b);
    until("what programs left is gone", || ports(&lab) == ["LAN:a"]);
    lab.ok(&["down"]);
}

#[test]
fn a_file_changes_who_may_open_ports() {
    let lab = up("open-apply", OPEN);
    let (mut a, mut b) = (open(&lab, "a"), open(&lab, "b"));
    let more = format!("{}[port.sink]\nkind = \"null\"\nswitch = \"LAN\"\n", OPEN.replace("0660", "0600"));
    lab.write(&more);
    let said = lab.ok(&["apply", "lab.toml"]);
    assert!(said.contains("let programs open ports on switch LAN") && !said.contains("remove"), "{said}");
    let mode = std::fs::metadata(lab.socket("switches/LAN")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    passes(&mut a, &mut b, 1);
    drop(open(&lab, "c"));
    lab.write("[switch.LAN]\n");
    let said = lab.ok(&["apply", "lab.toml"]);
    for done in ["let no program open ports on switch LAN", "remove port LAN:a", "remove port LAN:b"] {
        assert!(said.contains(done), "{said}");
    }
    assert!(matches!(Ring::connect(&path(&lab, "a")), Err(RingError::Connect { .. })));
    until("the programs notice it", || matches!(a.sync(), Err(RingError::Closed)));
    // A switch of a request may let programs open ports too.
    lab.ok(&["switch", "remove", "LAN"]);
    lab.ok(&["switch", "add", "LAN", "open=0660"]);
    drop(open(&lab, "a"));
    lab.ok(&["down"]);
}

/// The socket's mode and group say which users may open ports.
#[test]
fn users_who_may_not_connect_open_no_port() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not run: only root can run programs as other users");
        return;
    }
    let lab = up("open-users", "[switch.LAN]\nopen = \"0660\"\nopen-group = \"4242\"\n");
    let program = sender(&lab);
    let run = |user: u32, group: u32| {
        let mut command = Command::new(&program);
        command.arg(path(&lab, "me")).arg("3").uid(user).gid(group).output().unwrap()
    };
    let refused = run(4343, 4343);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && why.contains("Permission denied"), "{why}");
    let allowed = run(4343, 4242);
    assert!(allowed.status.success(), "{}", String::from_utf8_lossy(&allowed.stderr));
    assert!(lab.log().contains("a program opened the port port=\"LAN:me\""), "{}", lab.log());
    lab.ok(&["down"]);
}

#[test]
fn programs_of_the_page_ping_each_other() {
    let file = shown("programs.md", "toml").remove(0);
    let lab = up("open-page", &file.replace("[fabric]\nname = \"lab\"\n", ""));
    let lines = shown("programs.md", "sh").remove(1);
    let lines = lines.replace("/run/ringway", lab.folder.join("run").to_str().unwrap());
    let lines = lines.replace("10000", "100");
    let (pong, ping) = lines.split_once(" &\n").unwrap();
    let _pong = Running(lab.shell(&format!("exec {pong}")).spawn().unwrap());
    until("the answering program is there", || ports(&lab) == ["LAN:pong"] && lab.state("LAN:pong") == "up");
    let said = lab.shell(ping).output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(text.contains("100 sent, 100 received, 0 lost"), "{said:?}");
    lab.ok(&["down"]);
}

fn sender(lab: &Lab) -> PathBuf {
    c_program(lab, Path::new("examples/sender.c"))
}

#[test]
fn a_program_in_c_opens_a_port() {
    let lab = up("open-c", OPEN);
    let program = sender(&lab);
    let mut receiver = open(&lab, "receiver");
    let sent = Command::new(&program).arg(path(&lab, "sender")).arg("10").output().unwrap();
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    assert!(next(&mut receiver, LONG).is_some());
    until("its port is gone", || ports(&lab) == ["LAN:receiver"]);
    let long = path(&lab, &"n".repeat(65));
    let refused = Command::new(&program).arg(long).arg("1").output().unwrap();
    assert!(!refused.status.success());
    lab.ok(&["down"]);
}
