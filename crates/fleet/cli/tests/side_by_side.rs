//! Two concurrent fabrics of an unprivileged user, and the cost of an idle one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use serde_json::Value;
use std::fmt::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// The user as which tests run instead of root: `nobody`.
const NOBODY: u32 = 65_534;

/// A folder in which everybody can make files, with a world-executable copy of the program.
struct Lab(PathBuf);

impl Lab {
    fn new(name: &str) -> Lab {
        let folder = std::env::temp_dir().join(format!("ringway-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("run")).unwrap();
        // Copied by another process: a concurrent test's child would inherit the file open for writing, and it could
        // not be executed.
        let (from, to) = (env!("CARGO_BIN_EXE_ringway"), folder.join("ringway"));
        assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
        let lab = Lab(folder);
        for folder in [lab.0.clone(), lab.0.join("run")] {
            std::fs::set_permissions(folder, PermissionsExt::from_mode(0o1777)).unwrap();
        }
        lab
    }

    /// Runs the program, not as root.
    fn run(&self, words: &[&str]) -> Output {
        let program = self.0.join("ringway");
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            let user = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"), "--clear-groups".into()];
            command.args(user).arg("--").arg(program);
            command
        } else {
            Command::new(program)
        };
        command.args(words).current_dir(&self.0).env("RINGWAY_RUN", self.0.join("run"));
        command.env_remove("RINGWAY_LOG").output().unwrap()
    }

    fn ok(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, fabric: &str, words: &[&str]) -> Value {
        let words: Vec<&str> = ["--fabric", fabric, "--json"].iter().chain(words).copied().collect();
        serde_json::from_str(&self.ok(&words)).unwrap()
    }

    fn up(&self, name: &str, file: &str) {
        let path = self.0.join(format!("{name}.toml"));
        std::fs::write(&path, format!("[fabric]\nname = \"{name}\"\n{file}")).unwrap();
        self.ok(&["up", &path.display().to_string(), "--detach"]);
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in ["one", "two", "small", "large"] {
            self.run(&["--fabric", name, "down"]);
        }
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

const FILE: &str = "
[switch.main]
lookup = \"static\"
static = { \"02:00:00:00:00:02\" = \"sink\" }
[port.load]
kind = \"source\"
rate = \"1kpps\"
switch = \"main\"
[port.sink]
kind = \"null\"
switch = \"main\"
[port.guest]
kind = \"vhost-user\"
socket = \"guest.sock\"
switch = \"main\"
[port.program]
kind = \"ring\"
socket = \"program.sock\"
switch = \"main\"
";

#[test]
fn two_fabrics_run_side_by_side_without_root() {
    let lab = Lab::new("nobody");
    lab.up("one", FILE);
    lab.up("two", FILE);
    let received = |name: &str| {
        let ports = lab.json(name, &["stats"])["ports"].take();
        let sink = ports.as_array().unwrap().iter().find(|port| port["name"] == "sink").unwrap().clone();
        sink["total"]["rx_frames"].as_u64().unwrap()
    };
    for name in ["one", "two"] {
        until("frames arrive", || received(name) > 10);
        for socket in ["guest.sock", "program.sock"] {
            let file = std::fs::metadata(lab.0.join("run").join(name).join(socket)).unwrap();
            assert_eq!(file.uid(), if is_root() { NOBODY } else { rustix::process::geteuid().as_raw() });
        }
    }
    lab.ok(&["--fabric", "one", "down"]);
    assert!(!lab.0.join("run/one/guest.sock").exists());
    let before = received("two");
    until("the other goes on", || received("two") > before);
}

/// How often the threads of these processes have gone to sleep.
fn sleeps(processes: &[u64]) -> u64 {
    let tasks = |process: &u64| std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
    let read = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("status")).ok();
    let texts = processes.iter().flat_map(tasks).flatten().filter_map(read);
    let count = |text: String| {
        text.lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<u64>().ok())
    };
    texts.filter_map(count).sum()
}

/// What an idle fabric costs is how often it wakes: the processor time of a wake is the machine's.
#[test]
fn an_idle_fabric_wakes_seldom_however_many_ports_it_has() {
    const SECONDS: u64 = 4;
    let lab = Lab::new("idle");
    let begin = |name: &str, ports: usize| {
        let mut file = "[switch.main]\n".to_string();
        for port in 0..ports {
            for kind in ["vhost-user", "ring"] {
                let port = format!("{kind}-{port}");
                writeln!(file, "[port.{port}]\nkind = \"{kind}\"").unwrap();
                writeln!(file, "socket = \"{name}-{port}.sock\"\nswitch = \"main\"").unwrap();
            }
        }
        lab.up(name, &file);
        let shown = lab.json(name, &["ps"]);
        ["pid", "data_pid"].map(|key| shown["fabric"][key].as_u64().unwrap())
    };
    let fabrics = [begin("small", 1), begin("large", 50)];
    std::thread::sleep(Duration::from_secs(1));
    let before = fabrics.each_ref().map(|processes| sleeps(processes));
    std::thread::sleep(Duration::from_secs(SECONDS));
    let after = fabrics.each_ref().map(|processes| sleeps(processes));
    let [small, large] = [0, 1].map(|fabric| after[fabric] - before[fabric]);
    assert!((1..=30 * SECONDS).contains(&small), "{small} wakes in {SECONDS} s");
    assert!(large <= small + small / 4, "{large} wakes with 100 ports, {small} with two, in {SECONDS} s");
}
