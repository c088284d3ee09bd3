//! Runs the program with its kind of port as a user does.

use ringway_wire::pcap::Reader;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

struct Lab(PathBuf);

impl Lab {
    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_my-ringway"));
        command.args(words).current_dir(&self.0).env("RINGWAY_RUN", self.0.join("run")).output().unwrap()
    }

    fn file(&self, text: &str) {
        std::fs::write(self.0.join("lab.toml"), text).unwrap();
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.run(&["--fabric", "capture", "down"]);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn lab(name: &str) -> (Lab, String) {
    let folder = std::env::temp_dir().join(format!("my-ringway-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("capture.toml")).unwrap();
    let text = text.replace("/tmp", folder.to_str().unwrap());
    (Lab(folder), text)
}

#[test]
fn frames_are_captured() {
    let (lab, text) = lab("frames");
    lab.file(&text);
    let up = lab.run(&["up", "lab.toml", "--detach"]);
    assert!(up.status.success(), "{}", String::from_utf8_lossy(&up.stderr));
    let end = Instant::now() + Duration::from_secs(30);
    let records = || {
        let file = std::fs::read(lab.0.join("frames.pcap")).unwrap();
        let records = Reader::new(&file).unwrap().map_while(Result::ok);
        records.map(|record| (record.original_len, record.data.len())).collect::<Vec<_>>()
    };
    while records().len() < 10 {
        assert!(Instant::now() < end, "no frames in the file: {:?}", lab.run(&["--fabric", "capture", "ps"]));
        std::thread::yield_now();
    }
    assert!(records().iter().all(|lengths| *lengths == (60, 60)));
    let ps = lab.run(&["--fabric", "capture", "ps", "--json"]);
    let ps: serde_json::Value = serde_json::from_slice(&ps.stdout).unwrap();
    assert!(
        ps["ports"].as_array().unwrap().iter().any(|port| port["kind"] == "capture" && port["state"] == "up")
    );
}

#[test]
fn an_invalid_file_is_reported_with_position_and_reason() {
    let (lab, text) = lab("wrong");
    lab.file(&text.replace("snap-len = \"64B\"", "snaplen = \"64B\""));
    let check = lab.run(&["check", "lab.toml"]);
    let stderr = String::from_utf8_lossy(&check.stderr).into_owned();
    assert!(
        stderr.contains("lab.toml:12:1: port.file has no key `snaplen`; did you mean `snap-len`?"),
        "{stderr}"
    );
}
