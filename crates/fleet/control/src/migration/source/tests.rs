//! A failure at each stage, with a QEMU and a destination that do as they are told: exactly one guest goes on.

use super::super::MigrationView;
use super::*;
use crate::engine::{Message, Messages, inbox};
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
use std::sync::atomic::{AtomicU32, Ordering};

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
    /// The destination does not say which fabric it is.
    Nameless,
    /// Once it was asked to activate the guest, it was brought up anew; or another fabric is at its place. Both say
    /// that they don't know the guest.
    Anew,
    Elsewhere,
    /// The answer is lost, and the activation takes a while.
    Slow,
    /// It is not heard, and the destination does not have the guest any more.
    GivenUp,
    /// Another one answers, and then again the one that runs the guest.
    Back,
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

/// The fabric that prepares the guest, the one that is brought up in its place, and another one.
const PREPARED: &str = "lab 1f";
const ANEW: &str = "lab 2e";
const ELSEWHERE: &str = "tab 1f";
/// How often another one answers before the right one is back.
const OTHERS: u32 = 1;

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
    let (there, mut deletes, mut looks) = (folder.join("there"), 0, 0);
    Box::new(move |line| {
        let is_active = there.exists();
        let refused = || Some((409, "{\"error\":\"no\",\"problems\":[]}".to_string()));
        match line.split(' ').next().unwrap() {
            "POST" if line.contains("/activate ") => {
                if matches!(fault, Fault::Unheard | Fault::Anew | Fault::Elsewhere | Fault::GivenUp) {
                    return None;
                }
                if fault == Fault::NotActivated {
                    return refused();
                }
                fs::write(&there, "").unwrap();
                let lost = [Fault::Unanswered, Fault::Unknown, Fault::Back, Fault::Slow];
                let is_heard = !lost.contains(&fault);
                is_heard.then(|| (204, String::new()))
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
                    Fault::GivenUp => Some((404, "{\"error\":\"no\",\"problems\":[]}".to_string())),
                    _ if is_active => refused(),
                    _ => Some((204, String::new())),
                }
            }
            _ => {
                looks += 1;
                Some((
                    200,
                    view(match is_active {
                        true if fault == Fault::Slow && looks <= 2 => "activating",
                        true => "active",
                        false => "failed",
                    }),
                ))
            }
        }
    })
}

/// Which fabric answers a request; `None` if it does not say so. `others` counts answers of another one.
fn answerer(fault: Fault, was_asked: bool, others: &AtomicU32) -> Option<&'static str> {
    match fault {
        Fault::Nameless => return None,
        Fault::Slow if was_asked => {
            others.fetch_add(1, Ordering::Relaxed);
            return Some(PREPARED);
        }
        Fault::Anew if was_asked => _ = others.fetch_add(1, Ordering::Relaxed),
        Fault::Elsewhere if was_asked => _ = others.fetch_add(1, Ordering::Relaxed),
        Fault::Back if was_asked && others.load(Ordering::Relaxed) < OTHERS => {
            others.fetch_add(1, Ordering::Relaxed);
            return Some(ELSEWHERE);
        }
        _ => return Some(PREPARED),
    }
    Some(if fault == Fault::Anew { ANEW } else { ELSEWHERE })
}

fn serve(listener: &UnixListener, mut rule: Rule, fault: Fault, others: &AtomicU32) {
    let mut was_asked = false;
    for client in listener.incoming() {
        let (mut client, mut request) = (client.unwrap(), vec![0; 1 << 16]);
        let read = client.read(&mut request).unwrap();
        let text = String::from_utf8_lossy(&request[..read]).into_owned();
        let line = text.lines().next().unwrap_or_default();
        let fabric = answerer(fault, was_asked, others);
        let answer = match fabric {
            Some(PREPARED) | None => rule(line),
            Some(_) => Some((404, "{\"error\":\"guest vm does not arrive\",\"problems\":[]}".into())),
        };
        was_asked |= line.contains("/activate ");
        if let Some((status, body)) = answer {
            let named = fabric.map_or(String::new(), |fabric| format!("ringway-fabric: {fabric}\r\n"));
            let _ = write!(client, "HTTP/1.1 {status} X\r\n{named}\r\n{body}");
        }
    }
}

/// What became of a guest.
#[derive(Debug)]
struct Migrated {
    /// By the leader.
    outcome: Option<Outcome>,
    view: MigrationView,
    runs_here: bool,
    runs_there: bool,
    /// How often another fabric answered.
    others: u32,
    /// The events about it.
    events: usize,
}

/// Answers the leader as the engine does, until it says what became of the guest.
async fn outcome(messages: &mut Messages, folder: &Path) -> Option<Outcome> {
    loop {
        match messages.recv().await.unwrap().into_message() {
            Message::EngineRequest(EngineRequest::Migration(MigrationRequest::Asking(
                _,
                _,
                fabric,
                _,
                answer,
            ))) => {
                assert!(!fs::exists(folder.join("there")).unwrap(), "it is kept first");
                assert_eq!(fabric.unwrap().to_string(), PREPARED);
                answer.send(Ok(None)).unwrap();
            }
            Message::EngineRequest(EngineRequest::Migration(MigrationRequest::Leaving(_, _, answer))) => {
                answer.send(Ok(())).unwrap();
            }
            Message::EngineRequest(EngineRequest::Migration(MigrationRequest::Staying(_, _, answer))) => {
                let machine = fs::read_to_string(folder.join("machine")).unwrap();
                assert_eq!(machine, "postmigrate", "it is kept first");
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
                return Some(outcome);
            }
            _ => return None,
        }
    }
}

/// Migrates a guest. Once it is not known where it runs, an operator decides, if he does.
fn migrated(fault: Fault, decision: Option<MigrationEnd>) -> Migrated {
    let name = format!("ringway-stages-{fault:?}-{decision:?}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    fs::create_dir_all(&folder).unwrap();
    let guest = Arc::new(guest(&folder, fault));
    let api = folder.join("api.sock");
    let (listener, rule) = (UnixListener::bind(&api).unwrap(), destination(&folder, fault));
    let others = Arc::new(AtomicU32::new(0));
    let counted = others.clone();
    std::thread::spawn(move || serve(&listener, rule, fault, &counted));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (inbox, mut messages) = inbox();
    let progress = Arc::new(Progress::new("vm", "there"));
    let log = inbox.event_log().clone();
    let departing = Departing {
        guest: guest.clone(),
        ports: Vec::new(),
        progress: progress.clone(),
        ticket: "t".into(),
        bandwidth: None,
    };
    if let Some(end) = decision {
        let (progress, others) = (progress.clone(), others.clone());
        assert!(!progress.decide(end), "where it runs is known");
        std::thread::spawn(move || {
            // Once it was asked in vain.
            while others.load(Ordering::Relaxed) == 0 || !progress.decide(end) {
                std::thread::yield_now();
            }
        });
    }
    let outcome = runtime.block_on(async {
        let source = Source::new(departing, Remote::socket(&api), inbox);
        let led = tokio::task::spawn_blocking(move || match source.prepare() {
            Ok(arrival) => source.run(&arrival),
            Err(error) => source.abandon(&error),
        });
        let outcome = outcome(&mut messages, &folder).await;
        led.await.unwrap();
        outcome
    });
    let runs_here = fs::read_to_string(folder.join("machine")).unwrap() == "running";
    let runs_there = folder.join("there").exists();
    drop(guest);
    fs::remove_dir_all(&folder).unwrap();
    let events = log.after(0, 100).iter().filter(|event| event.kind == "guest-resolved").count();
    let (view, others) = (progress.view(), others.load(Ordering::Relaxed));
    Migrated { outcome, view, runs_here, runs_there, others, events }
}

#[test]
fn whatever_fails_exactly_one_guest_goes_on() {
    let stays = |fault| {
        let Migrated { outcome, view, runs_here, runs_there, .. } = migrated(fault, None);
        assert_eq!(
            (outcome, &*view.stage, runs_here, runs_there),
            (Some(Outcome::Stays), "failed", true, false),
            "{fault:?}"
        );
        view.error
    };
    let leaves = |fault| {
        let Migrated { outcome, view, runs_here, runs_there, others, .. } = migrated(fault, None);
        assert_eq!(
            (outcome, &*view.stage, runs_here, runs_there),
            (Some(Outcome::Gone), "done", false, true),
            "{fault:?}"
        );
        others
    };
    leaves(Fault::Nothing);
    for fault in [Fault::Refused, Fault::Unprepared, Fault::NoWay, Fault::Copying, Fault::Stopping] {
        stays(fault);
    }
    [Fault::Unheard, Fault::NotActivated, Fault::GivenUp].into_iter().for_each(|fault| drop(stays(fault)));
    assert!(stays(Fault::Nameless).contains("does not say which one it is: upgrade it"));
    [Fault::Unanswered, Fault::Unknown].into_iter().for_each(|fault| _ = leaves(fault));
    // What another fabric says does not count.
    assert_eq!(leaves(Fault::Back), OTHERS);
}

#[test]
fn an_operator_decides_where_a_guest_runs_if_only_other_fabrics_answer() {
    for (fault, end, outcome, stage) in [
        (Fault::Anew, MigrationEnd::Source, Outcome::Stays, "failed"),
        (Fault::Elsewhere, MigrationEnd::Destination, Outcome::Gone, "done"),
    ] {
        let done = migrated(fault, Some(end));
        // It stood still until then, and was asked for once more.
        assert!(done.others >= 2, "{done:?}");
        assert_eq!((done.outcome, &*done.view.stage), (Some(outcome), stage), "{done:?}");
        assert_eq!((&*done.view.resolved, done.events), (end.name(), 1), "{done:?}");
        assert_eq!((done.runs_here, done.runs_there), (outcome == Outcome::Stays, false), "{done:?}");
    }
    // The right one answers when it is asked once more; or says that the guest is about to run there.
    for fault in [Fault::Back, Fault::Slow] {
        let done = migrated(fault, Some(MigrationEnd::Source));
        let outcome = (done.outcome, &*done.view.resolved, done.events);
        assert_eq!(outcome, (Some(Outcome::Gone), "", 0), "{done:?}");
        assert!(done.runs_there && !done.runs_here, "{done:?}");
    }
}
