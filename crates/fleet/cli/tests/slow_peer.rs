//! A front-end whose memory is removed while its worker accesses it, and the effect on its neighbours.
#![allow(clippy::unwrap_used)]

#[path = "../../../switch/fabric/tests/front_end/mod.rs"]
mod front_end;
use crate::lab::{Lab, until};
use front_end::{RINGS, SIZE, send_from_pages, set_up};
use ringway_host::memfd;
use serde_json::Value;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const FABRIC: &str = r#"
[switch.hers]
[switch.ours]

[port.slow]
kind = "vhost-user"
socket = "slow.sock"
switch = "hers"

[port.next]
kind = "vhost-user"
socket = "next.sock"
switch = "ours"

[port.load]
kind = "source"
size = "60B"
rate = "1kpps"
to = "02:00:00:00:00:02"
from = "02:00:00:00:00:01"
switch = "ours"

[port.end]
kind = "null"
switch = "ours"

[worker.w0]
ports = ["slow"]

[worker.w1]
ports = ["next", "load", "end"]
"#;

/// A child that is killed when it is dropped.
struct Killed(Child);

impl Killed {
    fn spawn(words: &[&str]) -> Killed {
        Killed(Command::new(words[0]).args(&words[1..]).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Punches holes into the memory, slowly: the punching process has the lowest priority on a busy core.
fn punch(file: &OwnedFd) -> [Killed; 2] {
    let bytes = vec![1; 1 << 20];
    for at in (RINGS..SIZE).step_by(bytes.len()) {
        rustix::io::pwrite(file, &bytes, at as u64).unwrap();
    }
    let busy = Killed::spawn(&["taskset", "-c", "0", "sh", "-c", "while :; do :; done"]);
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    let (offset, length) = (RINGS.to_string(), (SIZE - RINGS).to_string());
    let fallocate = ["fallocate", "-p", "-o", &offset, "-l", &length, &path];
    [busy, Killed::spawn(&[&["taskset", "-c", "0", "chrt", "-i", "0"], &fallocate[..]].concat())]
}

/// The note in `ps` about the slow front-end's worker.
fn note(ps: &Value) -> &str {
    ps["fabric"]["workers"][0]["note"].as_str().unwrap()
}

fn frames(lab: &Lab) -> u64 {
    lab.json(&["stats"])["ports"][3]["total"]["rx_frames"].as_u64().unwrap()
}

/// Waits for progress of the neighbours. Returns whether the worker is still blocked afterwards.
fn neighbours_go_on(lab: &Lab, memory: &OwnedFd) -> bool {
    let begin = Instant::now();
    let before = frames(lab);
    let stats_took = begin.elapsed();
    let _front = set_up(UnixStream::connect(lab.socket("next.sock")).unwrap(), memory);
    let set_up_took = begin.elapsed() - stats_took;
    until("frames on another switch", || frames(lab) > before + 100);
    until("the other front-end is up", || lab.state("next") == "up");
    let begin = Instant::now();
    let ps = lab.json(&["ps"]);
    println!("stats {stats_took:?}, set-up {set_up_took:?}, ps {:?}: {}", begin.elapsed(), note(&ps));
    !note(&ps).is_empty()
}

#[test]
fn a_front_end_that_blocks_a_worker_blocks_no_other_and_is_named() {
    let lab = Lab::new("slow", FABRIC);
    lab.ok(&["up", "lab.toml", "--detach"]);
    let connect = |name: &str| UnixStream::connect(lab.socket(name)).unwrap();
    let (file, other) = (memfd("guest", SIZE).unwrap(), memfd("other", SIZE).unwrap());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let socket = connect("slow.sock");
        scope.spawn(|| send_from_pages(socket, &file, &stop));
        until("it is up", || lab.state("slow") == "up");
        let end = Instant::now() + Duration::from_secs(120);
        let mut is_shown = false;
        while !is_shown {
            assert!(Instant::now() < end, "nothing holds the worker for long; {}", lab.log());
            let mut punching = punch(&file);
            let mut is_over = || punching[1].0.try_wait().unwrap().is_some();
            let held =
                std::iter::repeat_with(|| lab.json(&["ps"])).find(|ps| !note(ps).is_empty() || is_over());
            let Some(ps) = held.filter(|ps| !note(ps).is_empty()) else { continue };
            assert!(note(&ps).starts_with("held by the memory of port slow for"), "{}", note(&ps));
            is_shown = neighbours_go_on(&lab, &other);
        }
        stop.store(true, Relaxed);
    });
    until("it is let go", || lab.log().contains("its memory held a worker for too long"));
    for line in ["held by the memory of port slow", "goes on; it was held by the memory of port slow for"] {
        until(line, || lab.log().contains(line));
    }
}
