//! Fabrics of the real program, each in its own run directory.
#![allow(dead_code, reason = "each test has its own needs")]

pub mod api;
pub mod frames;
pub mod http;
pub mod net;
pub mod vms;

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::time::{Duration, Instant};

/// A private folder with a fabric file. Dropping it ends its fabrics and removes it.
pub struct Lab {
    /// Its path.
    pub folder: PathBuf,
}

impl Lab {
    pub fn new(name: &str, file: &str) -> Lab {
        let folder = std::env::temp_dir().join(format!("ringway-cli-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let lab = Lab { folder };
        lab.write(file);
        lab
    }

    pub fn write(&self, file: &str) {
        std::fs::write(self.folder.join("lab.toml"), format!("[fabric]\nname = \"lab\"\n{file}")).unwrap();
    }

    pub fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// A command in the folder, for this run directory.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
        command.args(words).current_dir(&self.folder).env("RINGWAY_RUN", self.folder.join("run"));
        command.env_remove("RINGWAY_LOG");
        command
    }

    /// A line of a page for a shell, in the folder, for this run directory.
    pub fn shell(&self, line: &str) -> Command {
        let programs = Path::new(env!("CARGO_BIN_EXE_ringway")).parent().unwrap().display();
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(&self.folder).env("RINGWAY_RUN", self.folder.join("run"));
        command.env("PATH", format!("{programs}:{}", std::env::var("PATH").unwrap()));
        command.env_remove("RINGWAY_LOG");
        command
    }

    /// The output of a command that must succeed.
    pub fn ok(&self, words: &[&str]) -> String {
        let output = self.run(words);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {errors}{}", self.log());
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn json(&self, words: &[&str]) -> Value {
        let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
        serde_json::from_str(&self.ok(&words)).unwrap()
    }

    /// The exit code and the message of a command that must fail.
    pub fn fails(&self, words: &[&str]) -> (i32, String) {
        let output = self.run(words);
        assert!(!output.status.success(), "{words:?}");
        (output.status.code().unwrap(), String::from_utf8_lossy(&output.stderr).into_owned())
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("run/lab.log")).unwrap_or_default()
    }

    pub fn socket(&self, name: &str) -> PathBuf {
        self.folder.join("run/lab").join(name)
    }

    /// The state of a port.
    pub fn state(&self, port: &str) -> String {
        let ps = self.json(&["ps"]);
        let ports = ps["ports"].as_array().unwrap();
        let found = ports.iter().find(|found| found["name"] == port).unwrap();
        found["state"].as_str().unwrap().to_string()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        for name in ["lab", "other"] {
            self.run(&["--fabric", name, "down"]);
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A program, killed when dropped.
pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An example of a package; `cargo test` of the workspace has built it.
pub fn example(package: &str, name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_BIN_EXE_ringway")).parent().unwrap();
    let program = folder.join("examples").join(name);
    if !program.exists() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", package, "--example", name, "--target-dir"]);
        assert!(build.arg(folder.parent().unwrap()).status().unwrap().success());
        return folder.parent().unwrap().join("debug/examples").join(name);
    }
    program
}

/// A program in C, compiled with the sources of clients/c.
pub fn c_program(lab: &Lab, source: &Path) -> PathBuf {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../clients/c");
    let files = std::fs::read_dir(&sources).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "c"));
    let program = lab.folder.join(source.file_stem().unwrap());
    let mut cc = Command::new("cc");
    cc.args(["-std=gnu11", "-O2", "-o"]).arg(&program).arg("-I").arg(&sources).args(files);
    assert!(cc.arg(sources.join(source)).status().unwrap().success());
    program
}

/// Every isolation of functions: those of [`isolations`], and a worker.
pub fn every_isolation() -> impl Iterator<Item = &'static str> {
    isolations().into_iter().chain(["worker"])
}

/// Runs a test with every isolation at once: for tests that wait for most of their time.
pub fn at_once(test: impl Fn(&'static str) + Sync) {
    let test = &test;
    std::thread::scope(|scope| {
        every_isolation().for_each(|isolation| drop(scope.spawn(move || test(isolation))))
    });
}

/// What functions are run as by tests: as processes, and as VMs where KVM can be opened.
pub fn isolations() -> Vec<&'static str> {
    let kvm = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm");
    match kvm {
        Ok(_) if cfg!(target_arch = "x86_64") => vec!["process", "vm"],
        Ok(_) => vec!["process"],
        Err(error) => {
            eprintln!("VMs are left out: /dev/kvm: {error}");
            vec!["process"]
        }
    }
}

/// Waits until a condition holds, with a time limit for slow machines.
pub fn until(what: &str, so: impl FnMut() -> bool) {
    until_or_say(|| what.to_string(), so);
}

/// As `until`; what is said if the condition does not hold is found out then.
pub fn until_or_say(what: impl Fn() -> String, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !so() {
        assert!(Instant::now() < end, "{}", what());
        std::thread::yield_now();
    }
}
