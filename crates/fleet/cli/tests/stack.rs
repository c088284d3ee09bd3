//! `ringway stack` of a running program, beside Linux's tools on the kernel's stack.

use crate::exec::may_create_namespaces;
use crate::lab::frames::switched;
use crate::lab::{Lab, until};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

const SERVER: &str = "
import socket, threading
listener = socket.create_server(('', 8000))
datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
datagrams.bind(('', 53))
print('ready', flush=True)
def serve(stream):
    while stream.recv(1000):
        stream.sendall(bytes(200000))
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],)).start()
";

/// Asks once and keeps its connection; asks again for each line of its input.
const CLIENT: &str = "
import socket, subprocess, sys
stream = socket.create_connection(('10.0.0.1', 8000))
def ask():
    stream.sendall(b'more')
    left = 200000
    while left:
        left -= len(stream.recv(left))
ask()
print('ready', flush=True)
if len(sys.argv) > 1:
    subprocess.run(['sh', '-c', sys.argv[1]])
else:
    for line in sys.stdin:
        ask()
";

/// What Linux's tools print in a program's namespace.
const TOOLS: &str =
    "ss -tin; echo =; netstat -s; echo =; ip route; echo =; sysctl -a 2>&1 | grep ^net.ipv4.tcp";

struct Running(Child);

impl Running {
    /// Starts a program on the port of its name, and waits until it says that it is ready.
    fn start(lab: &Lab, name: &str, address: &str, options: &[&str], program: &[&str]) -> Running {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
        command.args(["exec", "--port", name, "--address", address]).args(options);
        command.args(["--", "/usr/bin/python3", "-c"]).args(program).current_dir(&lab.folder);
        command.env("RINGWAY_RUN", lab.folder.join("run")).env("LC_ALL", "C");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Running(command.spawn().unwrap())
    }

    /// Its output so far, a line, or all of it.
    fn output(&mut self, all: bool) -> String {
        let mut lines = BufReader::new(self.0.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
        if all { lines.collect::<Vec<_>>().join("\n") } else { lines.next().unwrap() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(
            rustix::process::Pid::from_child(&self.0),
            rustix::process::Signal::TERM,
        );
        self.0.wait().unwrap();
    }
}

/// The words of a line with figures, before their values.
fn words(line: &str) -> Vec<&str> {
    // What `ss` tells of a controller besides is its own.
    let words = line.split_whitespace().filter(|word| !word.starts_with("bbr:("));
    words.map(|word| word.split(':').next().unwrap_or(word)).collect()
}

/// The lines of a group of `netstat -s`, without their numbers.
fn group(text: &str, name: &str) -> Vec<String> {
    let lines =
        text.lines().skip_while(|line| *line != name).skip(1).take_while(|line| line.starts_with(' '));
    lines.map(|line| line.replace(|byte: char| byte.is_ascii_digit(), "")).collect()
}

#[test]
fn a_program_s_stack_is_shown_in_the_words_of_linux() {
    if !may_create_namespaces() {
        return;
    }
    let lab = Lab::new("stack", &switched(&["server", "client"]));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let mut server = Running::start(&lab, "server", "10.0.0.1/24", &["--name", "web"], &[SERVER]);
    assert_eq!(server.output(false), "ready");
    let kernel =
        Running::start(&lab, "client", "10.0.0.2/24", &["--stack", "kernel"], &[CLIENT, TOOLS]).output(true);
    let linux: Vec<&str> = kernel.strip_prefix("ready\n").unwrap().split("=\n").collect();
    let [sockets, counters, routes, settings] = linux[..] else { panic!("{kernel}") };
    until("the port is free", || lab.state("client") == "waiting");
    let mut client = Running::start(&lab, "client", "10.0.0.2/24", &["--cc", "bbr"], &[CLIENT]);
    assert_eq!(client.output(false), "ready");

    let shown = lab.ok(&["stack", "ss", "client"]);
    let (head, figures) = (shown.lines().next().unwrap(), shown.lines().nth(2).unwrap());
    let expected = sockets.lines().next().unwrap().trim_end().trim_end_matches("Process");
    assert_eq!(words(head), words(expected.trim_end()));
    assert!(shown.contains("ESTAB") && shown.contains("10.0.0.1:8000"), "{shown}");
    assert!(figures.starts_with("\tts sack bbr wscale:"), "{figures}");
    // Those words that both have are in the same order.
    let (ours, theirs) = (words(figures), words(sockets.lines().nth(2).unwrap()));
    let common = |of: &[&str], other: &[&str]| -> Vec<String> {
        of.iter().filter(|word| other.contains(word) && word.len() > 1).map(ToString::to_string).collect()
    };
    let both = common(&ours, &theirs);
    assert_eq!(both, common(&theirs, &ours));
    for word in ["rto", "rtt", "mss", "cwnd", "bytes_acked", "segs_out", "pacing_rate", "minrtt", "snd_wnd"] {
        assert!(both.iter().any(|one| one == word), "{word}: {figures}");
    }

    assert_eq!(group(&lab.ok(&["stack", "netstat", "client"]), "Tcp:"), group(counters, "Tcp:"));
    let counted = lab.json(&["stack", "netstat", "client"]);
    assert_eq!((&counted["Tcp"]["ActiveOpens"], &counted["Tcp"]["CurrEstab"]), (&1.into(), &1.into()));
    let trimmed = |text: &str| text.lines().map(|line| line.trim_end().to_string()).collect::<Vec<_>>();
    assert_eq!(trimmed(&lab.ok(&["stack", "route", "client"])), trimmed(routes));
    let neighbours = lab.ok(&["stack", "neigh", "client"]);
    assert!(neighbours.starts_with("10.0.0.1 dev eth0 lladdr "), "{neighbours}");
    let ours = lab.ok(&["stack", "sysctl", "client"]);
    assert!(ours.contains("net.ipv4.tcp_congestion_control = bbr\n"), "{ours}");
    for name in ["tcp_sack", "tcp_timestamps", "tcp_rmem"].map(|name| format!("net.ipv4.{name} = ")) {
        assert!(ours.contains(&name) && settings.contains(&name), "{name}: {settings}");
    }
    let one = lab.ok(&["stack", "sysctl", "client", "net.ipv4.tcp_sack"]);
    assert_eq!(one, "net.ipv4.tcp_sack = 1\n");
    let served = lab.ok(&["stack", "ss", "web", "--all"]);
    assert!(served.contains("LISTEN") && served.contains("ESTAB"), "{served}");
    assert!(lab.ok(&["stack", "ss", "web", "--udp"]).contains("0.0.0.0:53"));
    names(&lab);
    trace(&lab, client);
}

#[test]
fn programs_at_both_ends_of_a_pipe_start_at_once() {
    if !may_create_namespaces() {
        return;
    }
    let lab = Lab::new("ends", "[port.p]\nkind = \"pipe\"\nsocket = \"p.sock\"\n");
    lab.ok(&["up", "lab.toml", "--detach"]);
    for _ in 0..5 {
        let start = |address: &str| {
            let program = ["import sys; print('ready', flush=True); sys.stdin.read()"];
            Running::start(&lab, "p", address, &[], &program)
        };
        let mut both = [start("10.0.0.1/24"), start("10.0.0.2/24")];
        both.iter_mut().for_each(|one| assert_eq!(one.output(false), "ready"));
        assert_eq!(lab.json(&["stack", "list"]).as_array().unwrap().len(), 2);
    }
}

/// The stack that its processes share has used the port's ring, which ended with the fabric.
#[test]
fn a_direct_program_goes_on_when_its_fabric_is_up_again() {
    if !may_create_namespaces() {
        return;
    }
    let lab = Lab::new("direct-again", &switched(&["server", "client"]));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let mut server = Running::start(&lab, "server", "10.0.0.1/24", &["--direct"], &[SERVER]);
    assert_eq!(server.output(false), "ready");
    let asks = || {
        let direct = ["--direct"];
        let said = Running::start(&lab, "client", "10.0.0.2/24", &direct, &[CLIENT, "true"]).output(true);
        assert_eq!(said, "ready");
        until("the port is free", || lab.state("client") == "waiting");
    };
    asks();
    lab.ok(&["down"]);
    lab.ok(&["up", "lab.toml", "--detach"]);
    until("the program is back", || lab.state("server") == "up");
    asks();
}

fn names(lab: &Lab) {
    let list = lab.json(&["stack", "list"]);
    let names: Vec<&str> = list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["client", "web"]);
    assert!(lab.ok(&["stack", "show", "web"]).contains("sockets    1 connections, 1 listening, 1 of UDP"));
    let (code, words) = lab.fails(&["stack", "ss", "none"]);
    let expected = "there is no program \"none\" with a native stack; there is client or web";
    assert!(code == 5 && words.contains(expected), "{words}");
    let taken = ["exec", "--name", "web", "--port", "client", "--address", "10.0.0.3/24", "--", "true"];
    assert!(lab.fails(&taken).1.contains("--name: a program web runs"));
    assert_eq!(lab.fails(&["stack", "sysctl", "web", "net.ipv4.nothing"]).0, 5);
    assert_eq!(lab.fails(&["stack", "trace", "web", "--connection", "1.2.3.4:5"]).0, 5);
}

/// A trace ends with its connection.
fn trace(lab: &Lab, mut client: Running) {
    let folder = lab.folder.clone();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.args(["stack", "trace", "web", "--format", "csv", "--seconds", "60"]);
    command.current_dir(&folder).env("RINGWAY_RUN", folder.join("run")).stdout(Stdio::piped());
    let tracer = command.spawn().unwrap();
    let mut input = client.0.stdin.take().unwrap();
    // Until the trace has begun, there may be nothing to record.
    for _ in 0..20 {
        std::io::Write::write_all(&mut input, b"more\n").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    drop(input);
    client.0.wait().unwrap();
    let output = tracer.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && text.starts_with("time_ns,cwnd,"), "{text}");
    assert!(text.lines().count() > 2, "{text}");
}
