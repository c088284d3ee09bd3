//! Connections that their program uses in the shared stack: the bytes, and what happens if they can't stay there.

use crate::lab::{Lab, Running};

const PROGRAM: &str = env!("CARGO_BIN_EXE_direct-program");
const PYTHON: &str = "/usr/bin/python3";

/// A client that sends 3 MB in parts of many sizes, and compares what returns. It says what happened then.
const CLIENT: &str = "
import socket, sys, threading
s = socket.create_connection(('10.0.0.1', 9), 20)
assert s.recv(1) == b'!'
data = bytes(n * 2654435761 >> 13 & 255 for n in range(3_000_000))
def send():
    at, part = 0, 1
    try:
        while at < len(data):
            s.sendall(data[at:at + part]); at += part; part = part * 5 % 65521 + 1
        s.shutdown(socket.SHUT_WR)
    except OSError: reset.append(True)
# The kernel tells one call of a reset.
reset = []
thread = threading.Thread(target=send); thread.start()
got = bytearray()
try:
    while part := s.recv(65536): got += part
except ConnectionResetError: reset.append(True)
thread.join()
if reset: print('reset', bytes(got) == data[:len(got)])
else: print(bytes(got) == data)";

/// Starts the program in a role, with the agent's stack shared.
fn start(lab: &Lab, role: &str) -> Running {
    let mut command = lab.command(1, "native", &[PROGRAM, role]);
    command.env("DIRECT", "request").env("EXPLAIN", "1");
    let mut serving = Running::of(command);
    assert_eq!(serving.line(), "ready", "{role}");
    serving
}

/// Runs it with a client; what both said, and what the agent did.
fn run(role: &str) -> (String, String, String) {
    let lab = Lab::new();
    let mut serving = start(&lab, role);
    let (status, answer) = lab.start(2, "kernel", &[PYTHON, "-c", CLIENT]).end();
    assert_eq!(status, Some(0), "{role}: {answer}");
    let (said, errors) = serving.end_with_errors();
    (answer.trim_end().into(), said.1, errors)
}

#[test]
fn a_shared_connection_has_the_bytes_of_any_other() {
    for role in ["echo", "exit"] {
        let (answer, said, report) = run(role);
        assert_eq!((answer.as_str(), said.as_str()), ("True", "shared\n"), "{role}");
        assert!(report.contains("1 connections used the shared stack"), "{role}: {report}");
    }
}

#[test]
fn a_connection_comes_back_for_good_for_what_only_the_agent_serves() {
    for (role, said) in [("option", "shared\ntrue\ntrue\n"), ("leave", "shared\ntrue\n")] {
        let (answer, seen, report) = run(role);
        assert_eq!((answer.as_str(), seen.as_str()), ("True", said), "{role}: {report}");
    }
}

#[test]
fn a_program_that_is_stopped_within_its_turn_goes_on() {
    let (answer, said, _) = run("stopped");
    assert_eq!((answer.as_str(), said.as_str()), ("True", "shared\nheld\n"));
}

#[test]
fn a_program_that_is_killed_within_its_turn_leaves_its_peer_a_reset() {
    let (answer, said, report) = run("killed");
    assert_eq!((answer.as_str(), said.as_str()), ("reset True", "shared\nheld\n"), "{report}");
    assert!(report.contains("the shared stack was lost"), "{report}");
}

#[test]
fn a_program_that_corrupts_the_shared_stack_has_a_network_still() {
    let lab = Lab::new();
    let mut serving = start(&lab, "corrupt");
    let (_, answer) = lab.start(2, "kernel", &[PYTHON, "-c", CLIENT]).end();
    assert_eq!(answer, "reset True\n");
    let (_, answer) = lab.start(2, "kernel", &[PYTHON, "-c", CLIENT]).end();
    assert_eq!(answer, "True\n");
    let ((status, said), report) = serving.end_with_errors();
    assert_eq!((status, said.as_str()), (Some(0), "shared\ntrue\ntrue\n"), "{report}");
}
