//! netmap programs on ring ports of a switch, by the preloaded library.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use crate::lab::frames::switched;
use crate::lab::net::{can_create_taps, can_ping, namespace, stream, tap, within};
use crate::lab::{Lab, Running, until};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};

/// The programs: one handle; handles in several processes; monitors, host rings and persistent VALE ports.
const PROGRAM: &str = "program";
const SHARING: &str = "sharing";
const WATCHING: &str = "watching";

/// A fabric with three ports, and the programs.
struct Netmap {
    lab: Lab,
}

impl Netmap {
    fn new(name: &str) -> Netmap {
        Netmap::with(name, &switched(&["a", "b", "c"]))
    }

    fn with(name: &str, file: &str) -> Netmap {
        let lab = Lab::new(name, file);
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../net/netmap-preload/tests");
        for name in [PROGRAM, SHARING, WATCHING] {
            let mut cc = Command::new("cc");
            cc.args(["-std=gnu11", "-O2", "-Wall", "-Werror", "-pthread", "-o"]);
            cc.args([lab.folder.join(name), sources.join(name).with_extension("c")]);
            assert!(cc.status().unwrap().success());
        }
        lab.ok(&["up", "lab.toml", "--detach"]);
        Netmap { lab }
    }

    fn command(&self, words: &[&str]) -> Command {
        self.command_of(PROGRAM, words)
    }

    /// A program with the library, which cargo has built beside this test.
    fn command_of(&self, program: &str, words: &[&str]) -> Command {
        let own = std::env::current_exe().unwrap();
        let mut command = Command::new(self.lab.folder.join(program));
        command.args(words).env("LD_PRELOAD", own.with_file_name("libringway_netmap.so"));
        command.env("RINGWAY_RUN", self.lab.folder.join("run")).stdout(Stdio::piped());
        command
    }

    fn succeeds(&self, words: &[&str]) {
        Netmap::check(self.command(words), words, &self.lab);
    }

    /// A program that shares its handles.
    fn shares(&self, words: &[&str]) {
        Netmap::check(self.command_of(SHARING, words), words, &self.lab);
    }

    /// A program that watches.
    fn watches(&self, words: &[&str]) {
        Netmap::check(self.command_of(WATCHING, words), words, &self.lab);
    }

    fn check(mut command: Command, words: &[&str], lab: &Lab) {
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{words:?}: {:?}: {text}{}", output.status, lab.log());
    }

    /// A program that has registered its port.
    fn ready(&self, words: &[&str]) -> Peer {
        Netmap::start(self.command(words), words)
    }

    fn start(mut command: Command, words: &[&str]) -> Peer {
        let mut child = command.spawn().unwrap();
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
        ["headers", "new", "poll"],
        ["loop", "new", "poll"],
    ];
    for [task, api, wait] in tasks {
        let peer = netmap.ready(&["answer", "vale0:b", "new", wait, "3200"]);
        netmap.succeeds(&[task, "a", api, wait, "3200"]);
        peer.succeeds();
    }
}

/// What one port receives another one sends, by exchanging buffers, with both in one memory.
#[test]
fn frames_are_forwarded_by_exchanging_buffers() {
    let switched = |port: &str, switch: &str| {
        format!("[port.{port}]\nkind = \"ring\"\nsocket = \"{port}.sock\"\nswitch = \"{switch}\"\n")
    };
    let ports = [("a", "one"), ("b", "one"), ("c", "two"), ("d", "two")];
    let ports: String = ports.iter().map(|(port, switch)| switched(port, switch)).collect();
    let netmap = Netmap::with("netmap-bridge", &format!("[switch.one]\n[switch.two]\n{ports}"));
    for wait in ["poll", "select"] {
        let bridge = netmap.ready(&["bridge", "b", "c", "poll", "6400"]);
        let peer = netmap.ready(&["answer", "d", "new", wait, "3200"]);
        netmap.succeeds(&["ask", "a", "new", wait, "3200"]);
        peer.succeeds();
        bridge.succeeds();
    }
}

#[test]
fn what_is_not_served_is_refused_as_netmap_does() {
    let netmap = Netmap::new("netmap-refused");
    let _busy = netmap.ready(&["answer", "b", "new", "poll", "32"]);
    netmap.succeeds(&["refused", "a", "b", "poll", "0"]);
}

#[test]
fn ports_of_switches_and_memory_pools_are_listed() {
    Netmap::new("netmap-list").succeeds(&["rest", "a", "new", "poll", "0"]);
}

/// By SCM_RIGHTS, by exec, to a process without the library; beside a child of vfork; by fork while a thread syncs, or
/// opens a port; and in children that are killed while they sync.
#[test]
fn handles_go_on_in_other_processes() {
    let netmap = Netmap::new("netmap-passed");
    for task in ["pass", "exec", "spawn", "stranger", "fork", "fork-while-opening", "kill"] {
        let peer = netmap.ready(&["answer", "b", "new", "poll", "3200"]);
        netmap.shares(&[task, "a", "3200"]);
        peer.succeeds();
    }
}

/// Each frame in order: when it is sent, when it arrives, and when its slot is given back; in another process, too.
#[test]
fn monitors_get_copies_of_what_a_port_sends_and_receives() {
    let netmap = Netmap::new("netmap-monitor");
    for (name, peer) in [("a", "b"), ("w{1", "w}1")] {
        let peer = netmap.ready(&["answer", peer, "new", "poll", "3200"]);
        netmap.watches(&["watch", name, "1600"]);
        peer.succeeds();
    }
    // Of a port that another program has.
    for wait in ["poll", "select", "epoll"] {
        let peer = netmap.ready(&["answer", "b", "new", wait, "3200"]);
        netmap.watches(&["spy", "b", "3200"]);
        peer.succeeds();
    }
}

#[test]
fn the_rings_of_the_host_are_a_port_beside() {
    Netmap::with("netmap-host", &switched(&["a", "a-host", "b"])).watches(&["host", "a", "b"]);
}

/// A program between a card and the host's stack passes all, both ways.
#[test]
fn a_program_is_between_a_card_and_the_host() {
    if !can_create_taps() {
        return;
    }
    let [(_near, near), (keeper, far), (_inside, inside)] = [namespace(), namespace(), namespace()];
    let other = keeper.0.id();
    within(&near, &format!("ip link add card0 type veth peer name eth0 netns {other}; ip link set card0 up"));
    within(&far, "ip addr add 10.66.0.9/24 dev eth0; ip link set eth0 up");
    let ring = |name: &str| format!("[port.{name}]\nkind = \"ring\"\nsocket = \"{name}.sock\"\n");
    let file = format!(
        "[port.card]\nkind = \"packet\"\ninterface = \"card0\"\nnamespace = \"{near}\"\n{}{}{}\
         [patch.line]\nports = [\"card\", \"eth0\"]\n[patch.stack]\nports = [\"eth0-host\", \"t\"]\n",
        tap("t", &inside, "10.66.0.1/24"),
        ring("eth0"),
        ring("eth0-host")
    );
    let netmap = Netmap::with("netmap-card", &file);
    let words = ["bridge", "eth0", ""];
    let program = Netmap::start(netmap.command_of(WATCHING, &words), &words);
    until("a ping passes", || can_ping(&far, "10.66.0.1", ""));
    stream(&far, &inside, "10.66.0.1", &netmap.lab.folder, 1 << 20);
    stream(&inside, &far, "10.66.0.9", &netmap.lab.folder, 1 << 20);
    drop(program);
    assert!(!can_ping(&far, "10.66.0.1", ""), "without it nothing passes");
}

#[test]
fn ports_are_made_put_on_a_switch_taken_off_and_removed() {
    let netmap = Netmap::new("netmap-stay");
    netmap.watches(&["stay", "", ""]);
    let ports = netmap.lab.json(&["port", "list"]);
    assert_eq!(ports.as_array().map(Vec::len), Some(3), "{ports}");
}

/// Whichever end is opened first, and of a name without a port.
#[test]
fn pipes_pass_frames_and_lose_none() {
    let netmap = Netmap::new("netmap-pipe");
    for (first, second) in [("x{1", "x}1"), ("a}long.id", "a{long.id")] {
        for wait in ["poll", "select", "epoll"] {
            let peer = netmap.ready(&["answer", first, "new", wait, "3200"]);
            netmap.succeeds(&["busy", first, "new", "poll", "0"]);
            netmap.succeeds(&["ask", second, "14", wait, "3200"]);
            peer.succeeds();
        }
    }
    let blocked = netmap.command_of(SHARING, &["block", "x{1", "3000"]);
    let blocked = Netmap::start(blocked, &["block"]);
    netmap.shares(&["drain", "x}1", "3000"]);
    blocked.succeeds();
    netmap.shares(&["join", "y", "0"]);
    netmap.shares(&["leave", "w{1", "0"]);
}

/// A program that fills the memory of a pipe with anything does not harm the other one, which goes on with the next.
#[test]
fn a_pipe_outlives_a_program_that_lies() {
    let netmap = Netmap::new("netmap-lies");
    let victim = Netmap::start(netmap.command_of(SHARING, &["endure", "z{1", "0"]), &["endure"]);
    let liar = Netmap::start(netmap.command_of(SHARING, &["lie", "z}1", "0"]), &["lie"]);
    liar.succeeds();
    victim.succeeds();
    let peer = netmap.ready(&["answer", "z{1", "new", "poll", "320"]);
    netmap.succeeds(&["ask", "z}1", "new", "poll", "320"]);
    peer.succeeds();
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

/// Handles beside sockets, with each way to wait; and two threads that wait for one handle.
#[test]
fn handles_are_awaited_beside_other_descriptors() {
    Netmap::new("netmap-mix").succeeds(&["mix", "m", "new", "poll", "0"]);
}

#[test]
fn a_closed_fabric_is_an_error() {
    let netmap = Netmap::new("netmap-closed");
    let peers = [["a", "poll"], ["b", "select"], ["c", "epoll"]]
        .map(|[port, wait]| netmap.ready(&["closed", port, "new", wait, "0"]));
    netmap.lab.ok(&["down"]);
    peers.into_iter().for_each(Peer::succeeds);
}
