//! `ringway place` without a fabric: the commands that the documentation shows.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder with the examples, to run commands in.
struct Lab(PathBuf);

impl Lab {
    fn new(name: &str) -> Lab {
        let folder = std::env::temp_dir().join(format!("ringway-place-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("examples/placement")).unwrap();
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/placement/inventory.toml");
        std::fs::copy(example, folder.join("examples/placement/inventory.toml")).unwrap();
        Lab(folder)
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
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
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn shown_commands_work() {
    let lab = Lab::new("shown");
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/placement.md");
    let page = std::fs::read_to_string(page).unwrap();
    let shown = page.lines().filter_map(|line| line.strip_prefix("$ ringway "));
    // The others need a running fabric, a trace's file or plugins.
    let alone = |line: &&str| {
        let made_up = line.contains(" simulate ") && !line.contains("--trace");
        (line.contains("--inventory") || made_up) && !line.contains("--plugins")
    };
    let mut count = 0;
    for line in shown.filter(alone) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert!(!lab.ok(&words).is_empty(), "{line} says nothing");
        count += 1;
    }
    assert!(count >= 8, "only {count} commands are shown");
    assert!(std::fs::read_to_string(lab.0.join("run.svg")).unwrap().ends_with("</svg>\n"));
}

#[test]
fn reasons_are_said_and_exit_codes_tell() {
    let lab = Lab::new("reasons");
    let on = |words: &[&str]| {
        let all: Vec<&str> = ["place", "--inventory", "examples/placement/inventory.toml"]
            .iter()
            .chain(words)
            .copied()
            .collect();
        lab.run(&all)
    };
    let said = |output: &Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let why = on(&["why-not", "db-2", "node-0"]);
    assert!(said(&why).contains("VmAffinityGroups: group databases has VMs on it already"), "{}", said(&why));
    let huge = on(&["try", "huge", "--cpus", "64", "--memory", "1024"]);
    assert_eq!(huge.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&huge.stderr).contains("CPU removed 8"));
    assert_eq!(on(&["try", "nobody"]).status.code(), Some(5));
    std::fs::write(lab.0.join("bad.toml"), "[host.a]\ncores = 0\n").unwrap();
    let bad = lab.run(&["place", "--inventory", "bad.toml", "hosts"]);
    assert_eq!(bad.status.code(), Some(3));
    let stderr = String::from_utf8_lossy(&bad.stderr).into_owned();
    assert_eq!(stderr.trim(), "bad.toml:1:7: host a: `cores` is 0; 1 to 65536 will do");
    let units = lab.ok(&["place", "policies", "--units", "--json"]);
    let units: serde_json::Value = serde_json::from_str(&units).unwrap();
    assert!(units.as_array().unwrap().len() > 50);
}

#[test]
fn a_folder_of_plugins_that_is_not_there_is_said() {
    let lab = Lab::new("folder");
    let inventory = "examples/placement/inventory.toml";
    let output = lab.run(&["place", "--inventory", inventory, "--plugins", "./nowhere", "try", "web-3"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("nowhere: no such folder") && output.status.code() == Some(1), "{said}");
    assert!(output.stdout.is_empty());
}
