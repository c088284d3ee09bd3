//! Functions in VMs of the real program on hosts where KVM is absent, refused, or vanishes.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::lab::api::{function, is_running, kill, processes};
use crate::lab::vms::{control, exchange, fabric, mirror, program};
use crate::lab::{Lab, isolations, until};
use serde_json::Value;
use std::process::Command;

/// Puts something else in the place of `/dev/kvm`.
const TAKE: &str = "mount --bind /dev/null /dev/kvm";
const GIVE: &str = "umount /dev/kvm";
/// Makes it a device that may not be opened, also not by root.
const FORBID: &str = "mount --bind /dev/kvm /dev/kvm && mount -o remount,bind,nodev /dev/kvm";

/// Brings a fabric up with mounts of its own, after a command; `false` without the right to do so.
fn up_after(lab: &Lab, command: &str) -> bool {
    let script = format!("{command} && exec \"$0\" up lab.toml --detach");
    let mut up = Command::new("unshare");
    up.args(["--mount", "sh", "-c", &script, env!("CARGO_BIN_EXE_ringway")]);
    up.current_dir(&lab.folder).env("RINGWAY_RUN", lab.folder.join("run"));
    let is_up = up.status().is_ok_and(|status| status.success());
    if !is_up {
        eprintln!("left out: /dev/kvm can't be replaced here");
    }
    is_up
}

/// Executes a command with the fabric's mounts.
fn change(lab: &Lab, command: &str) {
    let target = control(lab).to_string();
    let mut change = Command::new("nsenter");
    assert!(change.args(["--mount", "--target", &target, "sh", "-c", command]).status().unwrap().success());
}

/// A fabric with a function that has no fallback, and one that has; none without KVM.
fn two(name: &str, command: &str) -> Option<Lab> {
    let functions = format!("{}{}", mirror("one", ""), mirror("two", "fallback = \"process\"\n"));
    let lab = Lab::new(name, &fabric(&["one", "two"], &functions));
    (isolations().contains(&"vm") && up_after(&lab, command)).then_some(lab)
}

fn reason(function: &Value) -> String {
    function["reason"].as_str().unwrap().into()
}

/// The first says why it does not run; the second runs as a process, and says why.
fn falls_back(lab: &Lab, why: &str) {
    until("the second runs", || is_running(lab, "two"));
    let two = function(lab, "two");
    assert_eq!(two["isolation"], "process");
    assert!(reason(&two).contains("a process instead of a VM") && reason(&two).contains(why), "{two}");
    exchange(&mut program(lab, "two"));
    until("the first says why", || reason(&function(lab, "one")).contains(why));
    assert!(!is_running(lab, "one"));
}

#[test]
fn without_kvm_a_function_says_why_and_falls_back_only_if_its_file_says_so() {
    let Some(lab) = two("nokvm", TAKE) else { return };
    falls_back(&lab, "KVM");
}

#[test]
fn where_kvm_may_not_be_opened_a_function_says_so_and_falls_back_only_if_its_file_says_so() {
    let Some(lab) = two("forbidden", FORBID) else { return };
    falls_back(&lab, "Permission denied");
    assert!(reason(&function(&lab, "one")).contains("give this user access to /dev/kvm"));
}

/// Whether a process has a machine's CPU.
fn has_cpu(pid: u64) -> bool {
    let entries = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let mut links = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.any(|link| link.to_string_lossy().starts_with("anon_inode:kvm-vcpu"))
}

/// Kills a function's process, and waits until it runs again.
fn killed(lab: &Lab, name: &str) -> Value {
    let before = function(lab, name)["pid"].clone();
    kill(before.as_u64().unwrap());
    let mut again = Value::Null;
    until("it runs again", || {
        again = function(lab, name);
        again["state"] == "running" && again["pid"] != before
    });
    again
}

#[test]
fn vms_go_on_where_kvm_vanishes_and_are_restarted_when_it_is_back() {
    let Some(lab) = two("vanished", "true") else { return };
    until("they run", || is_running(&lab, "one") && is_running(&lab, "two"));
    let (mut one, mut two) = (program(&lab, "one"), program(&lab, "two"));
    let control = control(&lab);
    // The one that waits has opened KVM already.
    until("a process waits", || {
        let all = processes(control);
        all.len() == 3 && all.into_iter().all(has_cpu)
    });
    change(&lab, TAKE);
    exchange(&mut one);
    exchange(&mut two);
    lab.ok(&["function", "snapshot", "one", "warm"]);
    assert_eq!(killed(&lab, "two")["isolation"], "vm", "in the process that waited");
    exchange(&mut two);
    let again = killed(&lab, "two");
    assert!(again["isolation"] == "process" && reason(&again).contains("KVM"), "{again}");
    exchange(&mut two);
    exchange(&mut one);
    kill(function(&lab, "one")["pid"].as_u64().unwrap());
    until("it says why", || reason(&function(&lab, "one")).contains("KVM"));
    assert!(!is_running(&lab, "one"));
    change(&lab, GIVE);
    until("it is restarted", || is_running(&lab, "one"));
    assert_eq!(function(&lab, "one")["isolation"], "vm");
    exchange(&mut one);
    lab.ok(&["function", "stop", "two"]);
    lab.ok(&["function", "start", "two"]);
    until("the other is a VM again", || {
        is_running(&lab, "two") && function(&lab, "two")["isolation"] == "vm"
    });
    exchange(&mut two);
}
