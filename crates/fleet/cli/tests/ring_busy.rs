//! Commands that wait for a ring that another program has: they say so, and end when they are asked to.

use crate::exec::may_create_namespaces;
use crate::lab::{Lab, Running, frames, until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};

/// A command that runs beside others, with its errors in a file.
fn started(lab: &Lab, words: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringway"));
    command.args(words).current_dir(&lab.folder).env("RINGWAY_RUN", lab.folder.join("run"));
    let errors = File::create(lab.folder.join("errors")).unwrap();
    Running(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn().unwrap())
}

fn errors(lab: &Lab) -> String {
    std::fs::read_to_string(lab.folder.join("errors")).unwrap()
}

fn ended(running: &mut Running) -> ExitStatus {
    let mut status = None;
    until("it ends", || {
        status = running.0.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap()
}

#[test]
fn a_command_that_waits_for_a_busy_ring_says_so_and_ends_when_asked() {
    let lab = Lab::new("ring-busy", &frames::switched(&["a", "b"]));
    lab.ok(&["up", "lab.toml", "--detach"]);
    let holder = started(&lab, &["pktgen", "rx", "a"]);
    until("the program is on its port", || lab.state("a") == "up");
    let socket = lab.socket("a.sock");
    let exec =
        |stack: &'static str| vec!["exec", "--port", "a", "--address=10.0.0.2/24", "--stack", stack, "true"];
    let mut commands = vec![
        (vec!["pktgen", "rx", "a"], Signal::INT),
        (vec!["pktgen", "tx", "a"], Signal::TERM),
        (vec!["pktgen", "rfc2544", "a", "b"], Signal::TERM),
    ];
    if may_create_namespaces() {
        commands.extend([(exec("native"), Signal::INT), (exec("kernel"), Signal::TERM)]);
    }
    for (words, signal) in commands {
        let mut waiting = started(&lab, &words);
        let waits = format!("waits for the ring of {}: connected, but it gives none;", socket.display());
        until("it says for what it waits", || errors(&lab).contains(&waits));
        kill_process(Pid::from_raw(waiting.0.id().cast_signed()).unwrap(), signal).unwrap();
        let status = ended(&mut waiting);
        let said = errors(&lab);
        let last = format!("ended by a signal while it waited for the ring of {}", socket.display());
        assert!(said.lines().count() == 2 && said.trim_end().ends_with(&last), "{words:?}: {said}");
        match words[0] {
            "exec" => assert_eq!(status.signal(), Some(signal.as_raw()), "{words:?}"),
            _ => assert_eq!(status.code(), Some(1), "{words:?}"),
        }
    }

    // Who waits gets the ring when it is free.
    let mut waiting = started(&lab, &["pktgen", "rx", "a", "--duration", "100ms"]);
    until("it says for what it waits", || errors(&lab).contains("waits for the ring of"));
    drop(holder);
    assert!(ended(&mut waiting).success(), "{}", errors(&lab));
}
