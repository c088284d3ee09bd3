//! Signals that come while a program is within the preloaded library: their handlers run when it has left.

use crate::lab::{Folder, Lab, Running, has};
use std::process::Command;

const PROGRAM: &str = include_str!("deferred.c");

/// Returns what its connections send.
const ECHO: &str = "
import socketserver
class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        try:
            while data := self.request.recv(65536): self.request.sendall(data)
        except ConnectionError: pass
class Server(socketserver.ThreadingTCPServer): allow_reuse_address, daemon_threads = True, True
server = Server(('', 9), Handler)
print('ready', flush=True)
server.serve_forever()";

/// The compiled program; `None` without a compiler.
fn built(folder: &Folder) -> Option<String> {
    if !has("cc") {
        return None;
    }
    let (file, program) = (folder.write("main.c", PROGRAM), folder.0.join("main"));
    let built = Command::new("cc").args(["-O1", "-pthread", "-o"]).arg(&program).arg(file).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    Some(program.display().to_string())
}

/// Runs a program beside a server with the kernel's TCP; what it printed, and the report of `--explain`.
fn run(mode: &str, program: &[&str]) -> (String, String) {
    let lab = Lab::new();
    let mut serving = lab.start(1, "kernel", &["/usr/bin/python3", "-c", ECHO]);
    assert_eq!(serving.line(), "ready");
    let mut command = lab.command(2, mode, program);
    command.env("EXPLAIN", "1");
    let ((status, said), report) = Running::of(command).end_with_errors();
    assert_eq!(status, Some(0), "{mode} {program:?}: {said}{report}");
    (said, report)
}

#[test]
fn each_signal_runs_its_handler_once_and_in_order() {
    let folder = Folder::new("deferred-each");
    let Some(program) = built(&folder) else { return };
    assert_eq!(run("direct", &[&program, "direct"]).0, "direct\n");
    for words in [&["counted", "0"][..], &["counted", "1"], &["queued"], &["jumps"], &["actions"]] {
        for mode in ["kernel", "direct"] {
            let command = [&[&program[..]], words].concat();
            assert_eq!(run(mode, &command).0, format!("{} as expected\n", words[0]), "{mode}");
        }
    }
}

/// Threads that are within the library when deferral ends run no handler there that is set afterwards.
#[test]
fn a_handler_that_ends_deferral_does_not_run_within_the_library() {
    let folder = Folder::new("deferred-late");
    let Some(program) = built(&folder) else { return };
    let script = format!("for each in $(seq 30); do {program} late $((each * 211)) || echo status $?; done");
    let (said, report) = run("direct", &["sh", "-c", &script]);
    assert_eq!(said, "late as expected\n".repeat(30), "{report}");
}

/// A signal that ends a program does not end it within its turn, which would cost others their connections.
#[test]
fn a_program_that_a_signal_ends_leaves_the_shared_stack_to_others() {
    let folder = Folder::new("deferred-ends");
    let Some(program) = built(&folder) else { return };
    let script = format!(
        "for each in $(seq 30); do {program} ends $((each * 397)); [ $? = 143 ] || echo status $?; done
        {program} direct"
    );
    let (said, report) = run("direct", &["sh", "-c", &script]);
    assert_eq!(said, "direct\n", "{report}");
    assert!(report.contains("used the shared stack") && !report.contains("was lost"), "{report}");
}
