//! A failure at each stage, with a QEMU and a destination that do as they are told: exactly one guest goes on.

use super::*;
use crate::engine::{Message, inbox};
use ringway_linux_guests::{HeldGuest, Holder, Runner, Spec};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;

/// Environment of the process in place of QEMU: its folder, and what fails in it.
const FOLDER: &str = "RINGWAY_TEST_QEMU";
const FAULT: &str = "RINGWAY_TEST_FAULT";

/// What fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    /// The destination refuses the guest, or its answer is lost.
    Refused,
    Unprepared,
    /// The connection for memory can't be made.
    NoWay,
    /// QEMU's migration ends while memory is copied, or when the rest is sent.
    Copying,
    Stopping,
    /// The request to activate it is not heard; its answer is lost; it is refused.
    Unheard,
    Unanswered,
    NotActivated,
    /// The answer is lost, and so is the first one to the question what became of it.
    Unknown,
}

/// What runs in place of QEMU: this program with this test alone.
#[test]
fn a_qemu_that_does_as_it_is_told() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let listener = UnixListener::bind(folder.join("sockets/qmp")).unwrap();
    let fault = std::env::var(FAULT).unwrap();
    let (mut machine, mut migration) = ("running", "none");
    for client in listener.incoming() {
        let mut client = BufReader::new(client.unwrap());
        client.get_mut().write_all(b"{\"QMP\":{}}\n").unwrap();
        let mut line = String::new();
        while client.read_line(&mut line).unwrap_or(0) > 0 {
            let asked: Value = serde_json::from_str(&std::mem::take(&mut line)).unwrap();
            let command = asked["execute"].as_str().unwrap();
            let mut answer = json!({});
            match command {
                "query-status" => answer = json!({ "status": machine }),
                "qom-get" => answer = json!("pc-q35-7.2-machine"),
                "query-migrate" => {
                    migration = match (migration, &*fault) {
                        ("setup", _) => "active",
                        ("active", "Copying") | ("device", "Stopping") => "failed",
                        ("active", _) => "pre-switchover",
                        ("device", _) => "completed",
                        (same, _) => same,
                    };
                    machine = match migration {
                        "pre-switchover" => "paused",
                        "completed" => "postmigrate",
                        _ => machine,
                    };
                    answer = json!({ "status": migration, "downtime": 3 });
                }
                "migrate" => migration = "setup",
                "migrate-continue" => migration = "device",
                "cont" => machine = "running",
                _ => {}
            }
            // The last line says whether the guest runs here.
            fs::write(folder.join("machine"), machine).unwrap();
            let answered = writeln!(client.get_mut(), "{}", json!({ "return": answer }));
            if answered.is_err() {
                break;
            }
        }
    }
}

/// Takes the exit status of the process in place of QEMU.
struct Held(Mutex<Child>);

impl Holder for Held {
    fn hold(&self, _guest: &HeldGuest, _descriptors: &[BorrowedFd<'_>]) {}

    fn status(&self, _process: Pid) -> ExitStatus {
        self.0.lock().unwrap().wait().unwrap()
    }

    fn ended(&self, _reason: &str) {}
}

/// A guest of that QEMU with its files in `folder`.
fn guest(folder: &Path, fault: Fault) -> Guest {
    fs::create_dir_all(folder.join("sockets")).unwrap();
    let facts = json!({
        "qemu": "7.2.1", "accelerator": "TCG", "processor": "qemu64", "memory": 64, "processors": 1,
        "kernel": "", "initrd": "", "command_line": "", "macs": [],
    });
    fs::write(folder.join("launch.json"), facts.to_string()).unwrap();
    let own = module_path!().split_once("::").unwrap().1;
    let mut qemu = Command::new(std::env::current_exe().unwrap());
    qemu.args(["--exact", &format!("{own}::a_qemu_that_does_as_it_is_told")]);
    qemu.env(FOLDER, folder).env(FAULT, format!("{fault:?}")).process_group(0);
    qemu.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = qemu.spawn().unwrap();
    let process = Pid::from_child(&child);
    let descriptors: Vec<OwnedFd> = vec![
        pidfd_open(process, PidfdFlags::empty()).unwrap(),
        child.stdin.take().unwrap().into(),
        child.stdout.take().unwrap().into(),
        child.stderr.take().unwrap().into(),
        fs::File::create(folder.join("console.log")).unwrap().into(),
    ];
    let held = json!({
        "process": process.as_raw_nonzero().get(), "note": "", "scratch": null, "groups": [], "names": [],
    });
    let held = serde_json::from_value(held).unwrap();
    let spec = Spec::new("vm", Runner::Qemu, Vec::new());
    let guest = Guest::adopt(spec, folder, held, descriptors, Arc::new(Held(Mutex::new(child)))).unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    while guest.monitor().is_err() {
        assert!(Instant::now() < end && guest.ended().is_none(), "it does not answer");
        std::thread::yield_now();
    }
    guest
}

/// What a destination does with a request: its status and body; none if the connection ends.
type Rule = Box<dyn FnMut(&str) -> Option<(u16, String)> + Send>;

/// A destination with a socket for memory, which nobody reads, and whether it runs the guest.
fn destination(folder: &Path, fault: Fault) -> Rule {
    let stream = folder.join("arrival.sock");
    if fault != Fault::NoWay {
        let listener = UnixListener::bind(&stream).unwrap();
        std::thread::spawn(move || listener.incoming().map(|client| client.unwrap()).collect::<Vec<_>>());
    }
    let view = move |state: &str| {
        let stream = stream.display().to_string();
        let (guest, ticket, reason) = ("vm".into(), "t".into(), String::new());
        serde_json::to_string(&ArrivalView { guest, ticket, state: state.into(), stream, reason }).unwrap()
    };
    let (there, mut deletes) = (folder.join("there"), 0);
    Box::new(move |line| {
        let is_active = there.exists();
        let refused = || Some((409, "{\"error\":\"no\",\"problems\":[]}".to_string()));
        match line.split(' ').next().unwrap() {
            "POST" if line.contains("/activate ") => {
                if matches!(fault, Fault::Unheard) {
                    return None;
                }
                if fault == Fault::NotActivated {
                    return refused();
                }
                fs::write(&there, "").unwrap();
                (!matches!(fault, Fault::Unanswered | Fault::Unknown)).then(|| (204, String::new()))
            }
            "POST" => match fault {
                Fault::Refused => refused(),
                Fault::Unprepared => None,
                _ => Some((201, view("receiving"))),
            },
            "DELETE" => {
                deletes += 1;
                match fault {
                    Fault::Unknown if deletes == 1 => None,
                    _ if is_active => refused(),
                    _ => Some((204, String::new())),
                }
            }
            _ => Some((200, view(if is_active { "active" } else { "failed" }))),
        }
    })
}

fn serve(listener: &UnixListener, mut rule: Rule) {
    for client in listener.incoming() {
        let (mut client, mut request) = (client.unwrap(), vec![0; 1 << 16]);
        let read = client.read(&mut request).unwrap();
        let text = String::from_utf8_lossy(&request[..read]).into_owned();
        if let Some((status, body)) = rule(text.lines().next().unwrap_or_default()) {
            let _ = write!(client, "HTTP/1.1 {status} X\r\n\r\n{body}");
        }
    }
}

/// Migrates a guest; returns what became of it by the leader, and whether it runs here and there.
fn migrated(fault: Fault) -> (Option<Outcome>, String, bool, bool) {
    let name = format!("ringway-stages-{fault:?}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).unwrap();
    let guest = Arc::new(guest(&folder, fault));
    let api = folder.join("api.sock");
    let (listener, rule) = (UnixListener::bind(&api).unwrap(), destination(&folder, fault));
    std::thread::spawn(move || serve(&listener, rule));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (inbox, mut messages) = inbox();
    let progress = Arc::new(Progress::new("vm", "there"));
    let departing = Departing {
        guest: guest.clone(),
        ports: Vec::new(),
        progress: progress.clone(),
        ticket: "t".into(),
        bandwidth: None,
    };
    let outcome = runtime.block_on(async {
        let source = Source::new(departing, Remote::socket(&api), inbox);
        let led = tokio::task::spawn_blocking(move || match source.prepare() {
            Ok(arrival) => source.run(&arrival),
            Err(error) => source.abandon(&error),
        });
        let outcome = loop {
            match messages.recv().await.unwrap().into_message() {
                Message::EngineRequest(EngineRequest::Migration(MigrationRequest::Asking(_, _, answer))) => {
                    assert!(!fs::exists(folder.join("there")).unwrap(), "it is kept first");
                    answer.send(Ok(())).unwrap();
                }
                Message::EngineRequest(EngineRequest::Migration(MigrationRequest::Departed(
                    _,
                    ticket,
                    outcome,
                    answer,
                ))) => {
                    assert_eq!(ticket, "t");
                    answer.send(Ok(())).unwrap();
                    break Some(outcome);
                }
                _ => break None,
            }
        };
        led.await.unwrap();
        outcome
    });
    let runs_here = fs::read_to_string(folder.join("machine")).unwrap() == "running";
    let runs_there = folder.join("there").exists();
    drop(guest);
    fs::remove_dir_all(&folder).unwrap();
    (outcome, progress.view().stage, runs_here, runs_there)
}

#[test]
fn whatever_fails_exactly_one_guest_goes_on() {
    let stays = |fault| {
        let (outcome, stage, here, there) = migrated(fault);
        assert_eq!(
            (outcome, &*stage, here, there),
            (Some(Outcome::Stays), "failed", true, false),
            "{fault:?}"
        );
    };
    let leaves = |fault| {
        let (outcome, stage, here, there) = migrated(fault);
        assert_eq!((outcome, &*stage, here, there), (Some(Outcome::Gone), "done", false, true), "{fault:?}");
    };
    leaves(Fault::Nothing);
    [Fault::Refused, Fault::Unprepared].into_iter().for_each(stays);
    [Fault::NoWay, Fault::Copying, Fault::Stopping].into_iter().for_each(stays);
    [Fault::Unheard, Fault::NotActivated].into_iter().for_each(stays);
    [Fault::Unanswered, Fault::Unknown].into_iter().for_each(leaves);
}
