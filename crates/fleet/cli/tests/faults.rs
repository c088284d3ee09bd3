//! A machine that lacks descriptors, memory or room on its disk: the ports that are there go on, and the others once
//! there is enough again.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::lab::frames::{Others, patched};
use crate::lab::{Lab, until};
use ringway_ring_client::Ring;
use rustix::io::Errno;
use rustix::process::{Pid, Resource, Rlimit, geteuid, prlimit};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// How long others are watched during the fault.
const DURING: Duration = Duration::from_millis(500);

/// A process of the fabric.
pub fn process(lab: &Lab, which: &str) -> Pid {
    let pid = lab.json(&["ps"])["fabric"][which].as_u64().unwrap();
    Pid::from_raw(pid.try_into().unwrap()).unwrap()
}

/// Sets a process's limit, below the hard one; returns the former. Limits of another user's process need
/// CAP_SYS_RESOURCE.
fn limit(process: Pid, resource: Resource, most: Option<u64>) -> Result<Option<u64>, Errno> {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", process.as_raw_nonzero())).unwrap();
    let name = if resource == Resource::As { "Max address space" } else { "Max open files" };
    let row = limits.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    // "unlimited" is no number.
    let maximum = row.split_whitespace().nth(1).unwrap().parse().ok();
    Ok(prlimit(Some(process), resource, Rlimit { current: most, maximum })?.current)
}

/// Programs that connect to a port until one of them is served.
fn connects(lab: &Lab, port: &str) -> Ring {
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let again = Instant::now() + Duration::from_secs(1);
        if let Ok(ring) = Ring::connect(&lab.socket(&format!("{port}.sock"))) {
            while Instant::now() < again {
                if lab.state(port) == "up" {
                    return ring;
                }
            }
        }
        assert!(Instant::now() < end, "{}", lab.log());
    }
}

/// While `process` has no more than `most` of a resource, a program that comes harms nobody; it is served afterwards.
fn starve(lab: &Lab, which: &str, resource: Resource, most: impl Fn(Pid) -> u64) {
    let (process, data) = (process(lab, which), process(lab, "data_pid"));
    let before = match limit(process, resource, Some(most(process))) {
        Err(Errno::PERM) => return eprintln!("not run for {which}: its limits need CAP_SYS_RESOURCE"),
        before => before.unwrap(),
    };
    let socket = lab.socket("late.sock");
    let tries = std::thread::spawn(move || {
        let end = Instant::now() + DURING;
        while Instant::now() < end {
            // It may be refused, or lose its ring at once.
            drop(Ring::connect(&socket));
        }
    });
    std::thread::sleep(DURING);
    limit(process, resource, before).unwrap();
    tries.join().unwrap();
    drop(connects(lab, "late"));
    until("the program has left", || lab.state("late") == "waiting");
    assert_eq!(self::process(lab, "data_pid"), data, "{which} {resource:?}: {}", lab.log());
}

#[test]
fn a_lack_of_descriptors_or_memory_harms_no_port_that_is_there() {
    let late = "[switch.s]\n[port.late]\nkind = \"ring\"\nsocket = \"late.sock\"\nslots = 4096\n\
                slot-size = \"4KB\"\nswitch = \"s\"\n";
    let lab = Lab::new("starved", &(patched(&[["left", "right"]]) + late));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let others = Others::between(&lab, ["left", "right"], false);
    drop(connects(&lab, "late"));
    until("the program has left", || lab.state("late") == "waiting");
    let open =
        |pid: Pid| std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).unwrap().count() as u64;
    for which in ["data_pid", "pid"] {
        starve(&lab, which, Resource::Nofile, open);
    }
    // The program's ring has more than that.
    let mapped = |pid: Pid| {
        let statm = std::fs::read_to_string(format!("/proc/{}/statm", pid.as_raw_nonzero())).unwrap();
        statm.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096 + (8 << 20)
    };
    starve(&lab, "data_pid", Resource::As, mapped);
    others.pass(100);
}

/// A control group with little memory, removed when dropped; of either version of control groups.
struct LittleMemory {
    folder: PathBuf,
    /// The file that counts kills, and the word before their number.
    kills: &'static str,
}

impl LittleMemory {
    /// `None` if this machine doesn't let us make one.
    fn new(bytes: u64) -> Option<LittleMemory> {
        let name = format!("ringway-little-{}", std::process::id());
        let versions = [
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"),
            ("/sys/fs/cgroup", "memory.max", "memory.events"),
        ];
        versions.into_iter().find_map(|(at, limit, kills)| {
            let folder = PathBuf::from(at).join(&name);
            std::fs::create_dir(&folder).ok()?;
            let group = LittleMemory { folder, kills };
            // Files of a controller that is not there can't be made.
            std::fs::write(group.folder.join(limit), bytes.to_string()).ok()?;
            Some(group)
        })
    }

    fn add(&self, process: Pid) {
        let pid = process.as_raw_nonzero().to_string();
        std::fs::write(self.folder.join("cgroup.procs"), pid).unwrap();
    }

    /// Processes that the kernel has killed for lack of memory.
    fn kills(&self) -> u64 {
        let text = std::fs::read_to_string(self.folder.join(self.kills)).unwrap();
        let row = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        row.map_or(0, |number| number.trim().parse().unwrap())
    }
}

impl Drop for LittleMemory {
    fn drop(&mut self) {
        // It is empty once its process has ended.
        let end = Instant::now() + Duration::from_secs(10);
        while std::fs::remove_dir(&self.folder).is_err() && Instant::now() < end {
            std::thread::yield_now();
        }
    }
}

#[test]
fn ports_go_on_when_the_kernel_kills_the_data_process_for_lack_of_memory() {
    let Some(little) = LittleMemory::new(1 << 18) else {
        return eprintln!("left out: no control group with a limit of memory can be made");
    };
    let lab = Lab::new("out-of-memory", &(patched(&[["left", "right"]]) + "[switch.s]\n"));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let others = Others::between(&lab, ["left", "right"], true);
    others.pass(10);
    let killed = process(&lab, "data_pid");
    little.add(killed);
    // What it had counts elsewhere; each port needs some more.
    for number in 0..500 {
        // It may be killed while it adds one.
        drop(lab.run(&["port", "add", &format!("more{number}"), "--kind", "null", "--switch", "s"]));
        if little.kills() > 0 {
            break;
        }
    }
    assert_eq!(little.kills(), 1, "{}", lab.log());
    until("another one is there", || lab.json(&["ps"])["fabric"]["restarts"] == 1);
    assert_ne!(process(&lab, "data_pid"), killed);
    others.pass(100);
    lab.ok(&["port", "add", "last", "--kind", "null", "--switch", "s"]);
    assert_eq!(lab.state("last"), "up");
}

/// The run directory, the log and what programs write are on the disk that is full.
#[test]
fn a_full_disk_stops_no_frame_and_no_command() {
    let lab = Lab::new("full", "");
    let load = "[switch.s]\n[port.load]\nkind = \"source\"\nsize = \"64B\"\nrate = \"1kpps\"\n\
                to = \"ff:ff:ff:ff:ff:ff\"\nfrom = \"02:00:00:00:00:01\"\nswitch = \"s\"\n\
                [port.sink]\nkind = \"null\"\nswitch = \"s\"\n";
    lab.write(load);
    let more = "[port.ring]\nkind = \"ring\"\nsocket = \"ring.sock\"\nswitch = \"s\"\n";
    std::fs::write(lab.folder.join("more.toml"), format!("[fabric]\nname = \"lab\"\n{load}{more}")).unwrap();
    std::fs::create_dir_all(lab.folder.join("run")).unwrap();
    let script = "set -e; mount -t tmpfs -o size=1m full run; export RINGWAY_RUN=$PWD/run
        frames() { \"$0\" stats sink --json | tr ',{' '\\n' | grep -m1 rx_frames | tr -dc 0-9; }
        \"$0\" up lab.toml --detach; trap '\"$0\" down' EXIT
        cat /dev/zero > run/ballast 2> full.txt || grep -q 'No space' full.txt
        before=$(frames); sleep 0.3; after=$(frames); test \"$after\" -gt \"$before\"
        \"$0\" apply more.toml; \"$0\" ps | grep -q ring
        kill -9 $(\"$0\" ps --json | tr ',{' '\\n' | grep -m1 '\"data_pid\"' | tr -dc 0-9)
        until test \"$(frames)\" -gt \"$after\"; do sleep 0.05; done
        rm run/ballast; \"$0\" apply lab.toml";
    let unshare = if geteuid().is_root() { "-m" } else { "-rm" };
    let mut command = Command::new("unshare");
    command.args([unshare, "bash", "-c", script, env!("CARGO_BIN_EXE_ringway")]);
    let output = command.current_dir(&lab.folder).env_remove("RINGWAY_LOG").output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", said(&output.stdout), said(&output.stderr));
}
