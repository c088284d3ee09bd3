//! netmap programs on ring ports of a switch, by the preloaded library.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::lab::frames::switched;
use crate::lab::{Lab, Running, until};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{ChildStdout, Command, Stdio};

/// A fabric with three ports, and the program.
struct Netmap {
    lab: Lab,
    program: PathBuf,
}

impl Netmap {
    fn new(name: &str) -> Netmap {
        Netmap::with(name, &switched(&["a", "b", "c"]))
    }

    fn with(name: &str, file: &str) -> Netmap {
        let lab = Lab::new(name, file);
        let program = lab.folder.join("program");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../net/netmap-preload/tests/program.c");
        let mut cc = Command::new("cc");
        cc.args(["-std=gnu11", "-O2", "-Wall", "-Werror", "-o"]).args([&program, &source]);
        assert!(cc.status().unwrap().success());
        lab.ok(&["up", "lab.toml", "--detach"]);
        Netmap { lab, program }
    }

    /// The program with the library, which cargo has built beside this test.
    fn command(&self, words: &[&str]) -> Command {
        let own = std::env::current_exe().unwrap();
        let mut command = Command::new(&self.program);
        command.args(words).env("LD_PRELOAD", own.with_file_name("libringway_netmap.so"));
        command.env("RINGWAY_RUN", self.lab.folder.join("run")).stdout(Stdio::piped());
        command
    }

    fn succeeds(&self, words: &[&str]) {
        let output = self.command(words).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{words:?}: {:?}: {text}{}", output.status, self.lab.log());
    }

    /// A program that has registered its port.
    fn ready(&self, words: &[&str]) -> Peer {
        let mut child = self.command(words).spawn().unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "{words:?}");
        Peer { child: Running(child), output }
    }
}

/// A program that runs beside another.
struct Peer {
    child: Running,
    output: BufReader<ChildStdout>,
}

impl Peer {
    fn succeeds(mut self) {
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        assert!(self.child.0.wait().unwrap().success(), "{text}");
    }
}

/// Both of netmap's requests, each way to wait, what can be written wrongly, extra buffers, duplicates, a child.
#[test]
fn numbered_frames_pass_both_ways() {
    let netmap = Netmap::new("netmap");
    let tasks = [
        ["ask", "new", "poll"],
        ["ask", "11", "select"],
        ["ask", "14", "epoll"],
        ["wrong", "new", "poll"],
        ["extra", "12", "poll"],
        ["twice", "new", "poll"],
        ["dup", "13", "epoll"],
        ["fork", "new", "poll"],
    ];
    for [task, api, wait] in tasks {
        let peer = netmap.ready(&["answer", "vale0:b", "new", wait, "3200"]);
        netmap.succeeds(&[task, "a", api, wait, "3200"]);
        peer.succeeds();
    }
}

#[test]
fn what_is_not_served_is_refused_as_netmap_does() {
    let netmap = Netmap::new("netmap-refused");
    let _busy = netmap.ready(&["answer", "b", "new", "poll", "32"]);
    netmap.succeeds(&["refused", "a", "b", "poll", "0"]);
}

/// The ports are made when they are opened, and are gone when their programs have ended.
#[test]
fn ports_of_a_switch_are_made_by_the_names_of_programs() {
    let netmap = Netmap::with("netmap-open", "[switch.LAN]\nopen = \"0660\"\n");
    let ports = || netmap.lab.json(&["port", "list"]);
    for [api, wait] in [["new", "poll"], ["14", "epoll"]] {
        let peer = netmap.ready(&["answer", "valeLAN:b", api, wait, "3200"]);
        assert_eq!(ports()[0]["name"], "LAN:b");
        netmap.succeeds(&["ask", "valeLAN:a", api, wait, "3200"]);
        peer.succeeds();
        until("the ports are gone", || ports() == serde_json::json!([]));
    }
    // Another program can't open it, nor can one open a port of a switch that the file does not open.
    let _busy = netmap.ready(&["answer", "valeLAN:b", "new", "poll", "32"]);
    netmap.succeeds(&["busy", "valeLAN:b", "new", "poll", "0"]);
    netmap.succeeds(&["absent", "valeWAN:b", "new", "poll", "0"]);
}

#[test]
fn a_closed_fabric_is_an_error() {
    let netmap = Netmap::new("netmap-closed");
    let peers = [["a", "poll"], ["b", "select"], ["c", "epoll"]]
        .map(|[port, wait]| netmap.ready(&["closed", port, "new", wait, "0"]));
    netmap.lab.ok(&["down"]);
    peers.into_iter().for_each(Peer::succeeds);
}
