//! Functions in VMs, each on a port that is patched to a program's.

use super::Lab;
use ringway_client::{Ring, Wait};
use serde_json::Value;
use std::time::{Duration, Instant};

const BOUND: Duration = Duration::from_secs(30);

/// Ports of these names for functions, each patched to `NAME-far` for a program.
pub fn fabric(names: &[&str], more: &str) -> String {
    let port = |name: &str| format!("[port.{name}]\nkind = \"ring\"\nsocket = \"{name}.sock\"\n");
    let pair = |name: &&str| {
        let far = format!("{name}-far");
        format!("{}{}[patch.{name}]\nports = [\"{name}\", \"{far}\"]\n", port(name), port(&far))
    };
    format!("{}{more}", names.iter().map(pair).collect::<String>())
}

/// A function on a port, which counts and returns frames.
pub fn mirror(name: &str, more: &str) -> String {
    format!(
        "[function.{name}]\nisolation = \"vm\"\nmemory = \"32MB\"\nport = \"{name}\"\n{more}\
         click = \"FromPort({name}) -> c :: Counter -> ToPort({name});\"\n"
    )
}

pub fn function(lab: &Lab, name: &str) -> Value {
    let list = lab.json(&["function", "list"]);
    list.as_array().unwrap().iter().find(|own| own["name"] == name).cloned().unwrap_or_default()
}

pub fn is_running(lab: &Lab, name: &str) -> bool {
    function(lab, name)["state"] == "running"
}

pub fn program(lab: &Lab, name: &str) -> Ring {
    Ring::connect(&lab.socket(&format!("{name}-far.sock"))).unwrap()
}

/// Sends frames until one comes back.
pub fn exchange(ring: &mut Ring) {
    let (end, mut frame) = (Instant::now() + BOUND, [0; 2048]);
    loop {
        assert!(Instant::now() < end, "no frame comes back");
        ring.tx.push(&[2; 60]).unwrap();
        ring.sync().unwrap();
        ring.wait(Wait::RX, Some(Duration::from_millis(100))).unwrap();
        if ring.rx.pop(&mut frame).unwrap().is_some() {
            break;
        }
    }
    while ring.rx.pop(&mut frame).unwrap().is_some() {}
    ring.rx.sync().unwrap();
}

pub fn count(lab: &Lab, name: &str) -> u64 {
    lab.ok(&["function", "read", name, "c.count"]).trim().parse().unwrap()
}

/// Process ID of the fabric's `control`.
pub fn control(lab: &Lab) -> u64 {
    lab.json(&["ps"])["fabric"]["pid"].as_u64().unwrap()
}

/// Children of `control` that are monitors, or wait for becoming one.
pub fn monitors(control: u64) -> Vec<u64> {
    let tasks = std::fs::read_dir(format!("/proc/{control}/task")).unwrap();
    let children =
        tasks.flatten().filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let all = children.flat_map(|line| line.split_whitespace().map(String::from).collect::<Vec<_>>());
    let is_monitor = |pid: &String| {
        std::fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.ends_with(b"run-function\0"))
    };
    all.filter(is_monitor).filter_map(|pid| pid.parse().ok()).collect()
}

/// Kills a process, which may have ended already.
pub fn kill(pid: u64) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}
