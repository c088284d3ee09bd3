//! A guest that placement starts on this host: a real Linux kernel, in User-Mode Linux or QEMU.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use ringway_linux_guests::image;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A fabric in a private folder. Dropping it ends the fabric and removes the folder.
struct Lab(PathBuf);

impl Lab {
    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
        command.args(words).current_dir(&self.0).env("RINGWAY_RUN", self.0.join("run")).output().unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
        let output = self.run(&words);
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    /// The guest's state in the list.
    fn state(&self) -> String {
        self.json(&["guest", "list"])[0]["state"].as_str().unwrap().to_string()
    }

    /// This host's entry.
    fn host(&self) -> Value {
        self.json(&["place", "hosts"])[0].clone()
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let _ = self.run(&["down"]);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn until(what: &str, mut so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(120);
    while !so() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Memory of the guest in MB.
const MEMORY: i64 = 256;

/// A fabric with one guest, of a kind that can run here.
fn fabric() -> String {
    let kind = image::program("linux.uml").map_or("qemu", |_| "uml");
    format!(
        "[fabric]\nname = \"lab\"\n[switch.main]\n\
        [port.left]\nkind = \"vhost-user\"\nsocket = \"left.sock\"\nswitch = \"main\"\n\
        [guest.left]\nkind = \"{kind}\"\nport = \"left\"\naddress = \"10.77.0.1/24\"\n\
        memory = \"{MEMORY}MB\"\nstart = false\n"
    )
}

#[test]
fn a_real_guest_is_placed_runs_and_releases_its_resources() {
    let lab = Lab(std::env::temp_dir().join(format!("ringway-place-guest-{}", std::process::id())));
    std::fs::create_dir_all(&lab.0).unwrap();
    std::fs::write(lab.0.join("lab.toml"), fabric()).unwrap();
    let up = lab.run(&["up", "lab.toml", "--detach"]);
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    lab.json(&["place", "join"]);
    let before = lab.host();
    assert_eq!((&before["vms"], &before["pending"]), (&0.into(), &0.into()), "{before}");

    // A guest that needs more memory than this host has is refused and not started.
    std::fs::write(lab.0.join("full.toml"), "[vm.left]\nmemory-mb = 1073741824\n").unwrap();
    assert!(lab.run(&["place", "put", "full.toml"]).status.success());
    let refused = lab.run(&["place", "start", "left"]);
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && stderr.contains("Memory removed 1"), "{stderr}");
    assert_ne!(lab.state(), "running");
    std::fs::write(lab.0.join("fits.toml"), format!("[vm.left]\nmemory-mb = {MEMORY}\n")).unwrap();
    assert!(lab.run(&["place", "put", "fits.toml"]).status.success());

    let decision = lab.json(&["place", "start", "left"]);
    assert_eq!((&decision["placed"], &decision["choices"][0]["host"]), (&true.into(), &before["name"]));
    until("the guest runs", || lab.state() == "running");
    // The guest is Linux, with its address on our port.
    let mut stdout = String::new();
    until("the guest answers", || {
        let output = lab.run(&["guest", "exec", "left", "uname -s; ip address show dev eth0"]);
        stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success()
    });
    assert!(stdout.starts_with("Linux") && stdout.contains("10.77.0.1"), "{stdout}");
    let top = lab.json(&["top", "--count", "1", "--interval", "0.05"]);
    let row = top["processes"].as_array().unwrap().iter().find(|row| row["name"] == "left").cloned().unwrap();
    let pid = &lab.json(&["guest", "list"])[0]["pid"];
    assert!(&row["pid"] == pid && row["kind"] == lab.json(&["guest", "list"])[0]["kind"], "{row}");
    // The guest has booted Linux.
    assert!(row["memory"].as_u64().unwrap() > 8 << 20, "{row}");
    let running = lab.host();
    assert_eq!((&running["vms"], &running["pending"]), (&1.into(), &0.into()), "{running}");
    let taken = |host: &Value| host["schedulable_mb"].as_i64().unwrap();
    assert!(taken(&running) <= taken(&before) - MEMORY, "{before} {running}");

    assert!(lab.run(&["guest", "stop", "left"]).status.success());
    until("it gives back what it took", || {
        let host = lab.host();
        host["vms"] == 0 && host["pending"] == 0 && taken(&host) == taken(&before)
    });
    assert_ne!(lab.state(), "running");
}
