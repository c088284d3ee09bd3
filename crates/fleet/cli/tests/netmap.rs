//! netmap programs on ring ports of a switch, by the preloaded library.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::lab::frames::switched;
use crate::lab::{Lab, Running};
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
        let lab = Lab::new(name, &switched(&["a", "b", "c"]));
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

#[test]
fn a_closed_fabric_is_an_error() {
    let netmap = Netmap::new("netmap-closed");
    let peers = [["a", "poll"], ["b", "select"], ["c", "epoll"]]
        .map(|[port, wait]| netmap.ready(&["closed", port, "new", wait, "0"]));
    netmap.lab.ok(&["down"]);
    peers.into_iter().for_each(Peer::succeeds);
}
