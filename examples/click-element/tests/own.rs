//! Runs the program with its element and its lookup as a user does.

use ringway_ring_client::{Ring, Wait};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A private folder; dropping it ends its fabric.
struct Lab(PathBuf);

impl Lab {
    fn new(name: &str) -> Lab {
        let folder = std::env::temp_dir().join(format!("my-click-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Lab(folder)
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_my-click"));
        command.args(words).current_dir(&self.0).env("RINGWAY_RUN", self.0.join("run")).output().unwrap()
    }

    fn ok(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.run(&["--fabric", "own", "down"]);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::yield_now();
    }
}

fn file() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("fabric.toml")).unwrap()
}

#[test]
fn the_element_runs_with_built_in_ones_and_is_documented() {
    let lab = Lab::new("click");
    let text = "InfiniteSource(LENGTH 100, LIMIT 3, STOP true) -> s :: SizeHistogram(64) -> Discard;
        Idle -> Strip(1) -> SizeHistogram -> Discard;";
    assert_eq!(lab.ok(&["click", "--simtime", "-e", text, "-h", "s.histogram"]), "<128 3\n");
    assert!(lab.ok(&["click", "--elements"]).contains("SizeHistogram            counts packets"));
    assert!(lab.ok(&["click", "--elements", "SizeHistogram"]).contains("`LEAST`"));
}

#[test]
fn the_commands_of_the_page_run() {
    let page = include_str!("../../../docs/click-elements.md");
    let lab = Lab::new("page");
    let is_command = |line: &&str| line.starts_with("cargo run -p my-click -- ");
    let lines: Vec<&str> = page.lines().filter(is_command).collect();
    assert_eq!(lines.len(), 2);
    for line in lines {
        // `up` would stay in the foreground.
        let line = line.replace("-- up ", "-- up --detach ");
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("cargo() {{ shift 4; \"$PROGRAM\" \"$@\"; }}; {line}")]);
        shell.env("PROGRAM", env!("CARGO_BIN_EXE_my-click")).env("RINGWAY_RUN", lab.0.join("run"));
        let output = shell.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")).output().unwrap();
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn functions_have_the_element_and_switches_the_lookup() {
    let lab = Lab::new("fabric");
    std::fs::write(lab.0.join("own.toml"), file()).unwrap();
    assert!(lab.ok(&["check", "own.toml"]).contains("good"));
    lab.ok(&["up", "own.toml", "--detach"]);
    until("functions run", || lab.ok(&["function", "list"]).matches("running").count() == 3);
    let list = lab.ok(&["function", "list"]);
    let of_vm = list.lines().find(|line| line.starts_with("of-vm")).unwrap();
    let kvm = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
    assert!(of_vm.contains(if kvm { " vm " } else { " process " }), "{list}");
    let connect = |name: &str| Ring::connect(&lab.0.join("run/own").join(name)).unwrap();
    let (mut left, mut right) = (connect("left.sock"), connect("right.sock"));
    until("programs are there", || lab.ok(&["port", "list"]).matches(" up ").count() >= 5);
    // A hub learns nothing: each of both directions floods.
    let mut frame = [2; 100];
    let mut out = [0; 2048];
    for (from, to) in [(1, 2), (2, 1)] {
        (frame[5], frame[11]) = (to, from);
        let (sender, receiver) = if from == 1 { (&mut left, &mut right) } else { (&mut right, &mut left) };
        assert!(sender.tx.push(&frame).unwrap());
        sender.sync().unwrap();
        assert!(receiver.wait(Wait::RX, Some(Duration::from_secs(20))).unwrap());
        assert_eq!(receiver.rx.pop(&mut out).unwrap().unwrap().len, 100);
        receiver.rx.sync().unwrap();
    }
    for function in ["of-process", "of-worker", "of-vm"] {
        let read = || lab.ok(&["function", "read", function, "s.histogram"]);
        until(&format!("{function} has counted: {}", read()), || read().trim() == "<128 2");
    }
    assert!(lab.ok(&["switch", "show", "main"]).contains("hub"));
    // One that is replaced, or created, has the element too.
    std::fs::write(lab.0.join("new.click"), "FromPort(process) -> t :: SizeHistogram(64) -> Discard;")
        .unwrap();
    lab.ok(&["function", "update", "of-process", "new.click"]);
    assert_eq!(lab.ok(&["function", "read", "of-process", "t.histogram"]).trim(), "");
    lab.ok(&["switch", "add", "second", "--lookup", "hub"]);
    lab.ok(&["down"]);
}
