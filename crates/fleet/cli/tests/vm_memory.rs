//! Hosts whose memory is used up by functions of the real program.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use crate::lab::api::{function, is_running};
use crate::lab::vms::{control, exchange, fabric, program};
use crate::lab::{Lab, isolations, until};
use std::io;
use std::path::PathBuf;

/// Memory of the group in bytes: more than a small guest needs, and less than the function's own limit.
const LIMIT: u64 = 48 << 20;

/// A control group for one process, which is removed when dropped.
struct Group(PathBuf);

impl Group {
    /// A group with so much memory, below that of this process, of version 2 or 1.
    fn new(limit: u64) -> io::Result<Group> {
        let own = std::fs::read_to_string("/proc/self/cgroup")?;
        let mounts = std::fs::read_to_string("/proc/self/mounts")?;
        let mounted = |kind: &str, option: &str| {
            let found = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|words| {
                words.get(2) == Some(&kind)
                    && words.get(3).is_some_and(|options| options.split(',').any(|own| own == option))
            });
            found.map(|words| words[1].to_string())
        };
        let path = |begin: &str| {
            let mut lines = own.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
            lines
                .find(|(controllers, _)| controllers.split(',').any(|one| one == begin))
                .map(|(_, path)| path)
        };
        let groups = [
            (mounted("cgroup", "memory"), path("memory"), "memory.limit_in_bytes"),
            (mounted("cgroup2", "rw"), path(""), "memory.max"),
        ];
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for (root, path, file) in groups {
            let (Some(root), Some(path)) = (root, path) else { continue };
            for below in [path, "/"] {
                let folder = format!("{root}{below}/ringway-test-{}", std::process::id());
                let made = std::fs::create_dir(&folder).map(|()| Group(folder.into()));
                let limited = made.and_then(|group| {
                    // Disables swap, which not every kernel has.
                    let _ = group.write("memory.swap.max", "0");
                    group.write(file, &limit.to_string()).map(|()| group)
                });
                match limited {
                    Ok(group) => return Ok(group),
                    Err(error) => last = error,
                }
            }
        }
        Err(last)
    }

    fn write(&self, file: &str, value: &str) -> io::Result<()> {
        let path = self.0.join(file);
        // Such files are not created.
        if path.exists() { std::fs::write(path, value) } else { Err(io::ErrorKind::NotFound.into()) }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A function on the port of its name, which returns frames, and takes memory when it is told to.
fn greedy(name: &str, isolation: &str) -> String {
    format!(
        "[function.{name}]\nisolation = \"{isolation}\"\nmemory = \"512MB\"\nport = \"{name}\"\n\
         click = \"\"\"\n\
         FromPort({name}) -> ToPort({name});\n\
         RandomSource(1400) -> s :: Unqueue(ACTIVE false) -> Queue(400000) -> Idle;\n\"\"\"\n"
    )
}

#[test]
fn where_the_hosts_memory_ends_one_function_ends_with_a_reason_and_others_go_on() {
    let group = match Group::new(LIMIT) {
        Ok(group) => group,
        Err(error) => return eprintln!("left out: no control group can be made here: {error}"),
    };
    for isolation in isolations() {
        let functions = format!("{}{}", greedy("one", isolation), greedy("two", isolation));
        let lab = Lab::new(&format!("memory-{isolation}"), &fabric(&["one", "two"], &functions));
        lab.ok(&["up", "lab.toml", "--detach"]);
        until("they run", || is_running(&lab, "one") && is_running(&lab, "two"));
        let (mut one, mut two) = (program(&lab, "one"), program(&lab, "two"));
        exchange(&mut one);
        let other = function(&lab, "two")["pid"].clone();
        let pid = function(&lab, "one")["pid"].to_string();
        let score = |pid: &str| -> i32 {
            std::fs::read_to_string(format!("/proc/{pid}/oom_score_adj")).unwrap().trim().parse().unwrap()
        };
        let inherited = score(&control(&lab).to_string());
        assert_eq!(score(&pid), (inherited + 300).min(1000), "functions go first");
        if let Err(error) = group.write("cgroup.procs", &pid) {
            return eprintln!("left out: a process can't move to another control group: {error}");
        }
        lab.ok(&["function", "write", "one", "s.active", "true"]);
        until("it comes again", || {
            function(&lab, "one")["restarts"].as_u64() > Some(0) && is_running(&lab, "one")
        });
        let log = lab.log();
        let ends: Vec<&str> = log.lines().filter(|line| line.contains("it ended")).collect();
        assert!(ends.iter().any(|line| line.contains("perhaps for lack of memory")), "{ends:?}");
        exchange(&mut one);
        exchange(&mut two);
        assert_eq!(function(&lab, "two")["pid"], other, "{isolation}: the other one went on");
        assert_eq!(lab.json(&["ps"])["fabric"]["restarts"], 0, "{isolation}: the data process went on");
    }
}
