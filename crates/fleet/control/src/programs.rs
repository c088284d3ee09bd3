//! The fabric's programs: `ringway exec` as a process for each, which a thread starts, watches and ends.

use crate::events::{EventKind, EventLog};
use crate::file::account;
use crate::keeper::{Keeper, NO_DESCRIPTORS, Outliving, StoredEntry};
use crate::output_log::{self, before};
use ringway_host::EventFd;
use ringway_spec::{ExecProgram, Restart};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io::{self, PipeReader};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Seconds that a program may go on after it was asked to end.
const GRACE: &str = "5";
/// When it is asked again, so that it waits no longer for its peers, and when it is killed.
const AGAIN: Duration = Duration::from_secs(7);
const KILL: Duration = Duration::from_secs(15);
/// Delays before a program is started again: the first is short, later ones are longer, up to the last.
const DELAYS: [Duration; 5] = [
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(10),
    Duration::from_secs(30),
];
/// If it ran for this long, the next delay is the first again.
const STABLE: Duration = Duration::from_secs(60);
/// `ENOENT` and `EACCES` of a shell.
const NOT_FOUND: i32 = 127;
const NOT_EXECUTABLE: i32 = 126;

/// Why a program can't be added.
#[derive(Debug, thiserror::Error)]
pub enum ProgramFailure {
    /// The folder of logs can't be used.
    #[error("program {0}: {1}: {2}")]
    Folder(String, PathBuf, #[source] io::Error),
    /// The system has no descriptors or threads left.
    #[error("program {0}: {1}")]
    System(String, String),
}

/// What a program is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// To run.
    Start,
    /// To end.
    Stop,
    /// To end, and run again.
    Restart,
}

/// What a program does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The program does not run: it was stopped, or not started.
    #[default]
    Stopped,
    /// The program runs, as the child of this process.
    Running(u32),
    /// The program was asked to end.
    Stopping(u32),
    /// The program has ended, and will be started again.
    Waiting,
    /// The program has ended.
    Ended,
}

/// State of a program.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// What it does.
    pub phase: Phase,
    /// How often it was started again by itself.
    pub restarts: u64,
    /// How it ended last.
    pub reason: String,
    is_wanted: bool,
    /// The program is to end first.
    is_restarted: bool,
    is_removed: bool,
}

impl Status {
    /// Whether a program that runs is to end.
    fn is_to_end(&self) -> bool {
        !self.is_wanted || self.is_restarted || self.is_removed
    }
}

/// What the thread of a program and its fabric share.
#[derive(Debug)]
struct Shared {
    program: ExecProgram,
    /// The arguments of this program that run it.
    arguments: Vec<OsString>,
    log: PathBuf,
    status: Mutex<Status>,
    changed: EventFd,
    keeper: Keeper,
    events: EventLog,
    /// Held while something is written to the log: what is left of a program may write beside its successor.
    writes: Arc<Mutex<()>>,
}

/// A program's process, and what is kept of it.
struct Running {
    process: Outliving,
    output: PipeReader,
    /// The program ends when all copies of it are closed.
    _lifeline: OwnedFd,
}

/// The keeper's names for what it has of a program: its state, and its process.
fn kept_status(program: &str) -> String {
    format!("program/{program}")
}

fn kept_process(program: &str) -> String {
    format!("program-process/{program}")
}

struct Record {
    shared: Arc<Shared>,
    /// The restart is over once the thread has ended.
    over: watch::Receiver<()>,
}

/// A program, as it is shown.
pub struct Shown<'p> {
    /// As the file describes it.
    pub program: &'p ExecProgram,
    /// Its state.
    pub status: Status,
    /// The file with its output.
    pub output: &'p Path,
}

/// All programs of a fabric.
pub struct Programs {
    /// The arguments of this program that run another.
    exec: Vec<OsString>,
    records: BTreeMap<String, Record>,
    keeper: Keeper,
    events: EventLog,
}

impl Programs {
    /// No programs yet. `exec` are the arguments with which this program runs another, before those that say how.
    pub fn new(exec: Vec<OsString>, keeper: Keeper, events: EventLog) -> Programs {
        Programs { exec, records: BTreeMap::new(), keeper, events }
    }

    /// Adds a program on a ring port with this socket, and starts it if it is to be. Its log is in `folder`.
    pub fn add(&mut self, program: &ExecProgram, socket: &Path, folder: &Path) -> Result<(), ProgramFailure> {
        let status = Status { is_wanted: program.start, ..Status::default() };
        self.run(program, (socket, folder), status, None)
    }

    /// Goes on with a program of a former `control`, as [`Programs::add`] does with a new one; returns whether there
    /// was one.
    pub fn adopt(
        &mut self,
        program: &ExecProgram,
        socket: &Path,
        folder: &Path,
        found: &mut BTreeMap<String, StoredEntry>,
    ) -> Result<bool, ProgramFailure> {
        let (status, process) =
            (found.remove(&kept_status(&program.name)), found.remove(&kept_process(&program.name)));
        let status = status.and_then(|kept| serde_json::from_str::<Status>(&kept.text).ok());
        let Some(mut status) = status else { return Ok(false) };
        // If it was being removed, it is still in the fabric.
        status.is_removed = false;
        let system = |error: io::Error| ProgramFailure::System(program.name.clone(), error.to_string());
        let running = process.map(|kept| Running::adopt(kept, &self.keeper)).transpose().map_err(system)?;
        match &running {
            Some(running) => {
                tracing::info!(program = program.name, pid = running.pid(), "continues");
                status.phase = Phase::Running(running.pid());
            }
            // The program was being started, or has just ended.
            None if matches!(status.phase, Phase::Running(_) | Phase::Stopping(_)) => {
                status.phase = Phase::Stopped;
            }
            None => {}
        }
        self.run(program, (socket, folder), status, running).map(|()| true)
    }

    /// The processes of programs that run.
    pub fn processes(&self) -> impl Iterator<Item = Pid> {
        self.records.values().filter_map(|record| match record.shared.lock().phase {
            Phase::Running(pid) | Phase::Stopping(pid) => Pid::from_raw(pid.cast_signed()),
            _ => None,
        })
    }

    /// Lets a thread attend to a program, which may run.
    fn run(
        &mut self,
        program: &ExecProgram,
        (socket, folder): (&Path, &Path),
        status: Status,
        running: Option<Running>,
    ) -> Result<(), ProgramFailure> {
        let failed = |error| ProgramFailure::Folder(program.name.clone(), folder.into(), error);
        DirBuilder::new().recursive(true).mode(0o755).create(folder).map_err(failed)?;
        let system = |error: String| ProgramFailure::System(program.name.clone(), error);
        let shared = Arc::new(Shared {
            arguments: self.exec.iter().cloned().chain(arguments(program, socket)).collect(),
            log: folder.join(format!("{}.log", program.name)),
            status: Mutex::new(status),
            keeper: self.keeper.clone(),
            events: self.events.clone(),
            writes: Arc::default(),
            changed: EventFd::new().map_err(|error| system(error.to_string()))?,
            program: program.clone(),
        });
        let (ending, over) = watch::channel(());
        let own = shared.clone();
        shared.keep(&shared.lock());
        let thread = std::thread::Builder::new().name("program".into()).spawn(move || {
            own.serve(running);
            drop(ending);
        });
        thread.map_err(|error| system(error.to_string()))?;
        self.records.insert(program.name.clone(), Record { shared, over });
        Ok(())
    }

    /// Removes a program: it has ended when the result is ready.
    pub fn remove(&mut self, name: &str) -> impl Future<Output = ()> + Send + use<> {
        let record = self.records.remove(name);
        if let Some(record) = &record {
            record.shared.change(|status| status.is_removed = true);
        }
        async {
            let Some(mut record) = record else { return };
            while record.over.changed().await.is_ok() {}
            record.shared.keeper.remove(&kept_status(&record.shared.program.name));
            let _ = std::fs::remove_file(&record.shared.log);
            let _ = std::fs::remove_file(before(&record.shared.log));
        }
    }

    /// Ends all programs at the same time.
    pub async fn remove_all(&mut self) {
        let names: Vec<String> = self.records.keys().cloned().collect();
        let ends: Vec<_> = names.iter().map(|name| self.remove(name)).collect();
        for end in ends {
            end.await;
        }
    }

    /// Gives a program an order; `false`: there is none of this name.
    pub fn order(&self, name: &str, order: Order) -> bool {
        let Some(record) = self.records.get(name) else { return false };
        record.shared.change(|status| {
            status.is_wanted = order != Order::Stop;
            let runs = matches!(status.phase, Phase::Running(_) | Phase::Stopping(_));
            status.is_restarted = order == Order::Restart && runs;
            if matches!(status.phase, Phase::Ended | Phase::Waiting) {
                status.phase = Phase::Stopped;
            }
        });
        true
    }

    /// All programs, by name.
    pub fn all(&self) -> impl Iterator<Item = Shown<'_>> {
        self.records.values().map(|record| Shown {
            program: &record.shared.program,
            status: record.shared.lock().clone(),
            output: &record.shared.log,
        })
    }
}

/// The words after `exec` that run a program.
fn arguments(program: &ExecProgram, socket: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |name: &str, value: &dyn AsRef<std::ffi::OsStr>| {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        words.push(word);
    };
    add("supervised", &program.name);
    add("kill-after", &GRACE);
    add("port", &socket);
    program.addresses.iter().for_each(|address| add("address", &address.to_string()));
    program.gateways.iter().for_each(|gateway| add("gateway", &gateway.to_string()));
    program.dns.iter().for_each(|server| add("dns", &server.to_string()));
    add("mtu", &program.mtu.to_string());
    add("stack", &program.stack.word());
    program.writable.iter().for_each(|folder| add("writable", folder));
    program.cc.iter().for_each(|cc| add("cc", cc));
    program.sysctls.iter().for_each(|(name, value)| add("sysctl", &format!("{name}={value}")));
    let limits = [("nofile", program.nofile), ("memory", program.memory), ("cpu", program.cpu)];
    for (name, most) in limits.iter().filter_map(|(name, most)| Some((name, (*most)?))) {
        add("limit", &format!("{name}={most}"));
    }
    words.extend(program.direct.then(|| "--direct".into()));
    words.push("--".into());
    words.extend(program.command.iter().map(OsString::from));
    words
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Status)) {
        let mut status = self.lock();
        change(&mut status);
        self.keep(&status);
        drop(status);
        self.changed.signal();
    }

    /// Keeps the state for the next `control`.
    fn keep(&self, status: &Status) {
        self.keeper.put_value(&kept_status(&self.program.name), status, NO_DESCRIPTORS);
    }

    /// Runs the program as often as it is to run, until it is removed; at first it may run already.
    fn serve(self: &Arc<Shared>, mut running: Option<Running>) {
        let mut quick = 0;
        loop {
            let status = self.lock().clone();
            if let Some(running) = running.take() {
                let (ended, is_asked) = self.attend(running);
                self.end(Ok(ended), is_asked);
                continue;
            }
            if status.is_removed {
                return;
            }
            let is_over = matches!(status.phase, Phase::Ended);
            if !status.is_wanted || is_over {
                self.wait(None, None);
                continue;
            }
            if status.phase == Phase::Waiting {
                let delay = DELAYS[quick.min(DELAYS.len() - 1)];
                quick += 1;
                self.pause(delay);
                let mut status = self.lock();
                if status.phase != Phase::Waiting {
                    quick = 0;
                } else if status.is_wanted && !status.is_removed {
                    status.restarts += 1;
                    status.phase = Phase::Stopped;
                    self.keep(&status);
                }
                continue;
            }
            let begun = Instant::now();
            let (ended, is_asked) = match self.start() {
                Ok(running) => {
                    let (status, is_asked) = self.attend(running);
                    (Ok(status), is_asked)
                }
                Err(error) => (Err(error), false),
            };
            if begun.elapsed() > STABLE {
                quick = 0;
            }
            self.end(ended, is_asked);
        }
    }

    /// Waits, unless something else is wanted.
    fn pause(&self, delay: Duration) {
        let end = Instant::now() + delay;
        while Instant::now() < end && self.lock().phase == Phase::Waiting {
            let status = self.lock();
            let is_over = !status.is_wanted || status.is_removed;
            drop(status);
            if is_over {
                return;
            }
            self.wait(None, Some(end.saturating_duration_since(Instant::now())));
        }
    }

    /// Notes how it ended, and what follows.
    fn end(&self, ended: io::Result<ExitStatus>, is_asked: bool) {
        let name = &self.program.name;
        let (failed, reason) = match ended {
            Ok(status) => (!status.success(), explain(status)),
            Err(error) => (true, error.to_string()),
        };
        let mut status = self.lock();
        let again = match self.program.restart {
            Restart::Never => false,
            Restart::OnFailure => failed,
            Restart::Always => true,
        };
        status.phase = match (is_asked, again) {
            (true, _) => Phase::Stopped,
            (false, true) => Phase::Waiting,
            (false, false) => Phase::Ended,
        };
        status.is_restarted = false;
        match is_asked {
            true => tracing::info!(program = name, reason, "ended"),
            false => tracing::warn!(program = name, reason, again, "ended by itself"),
        }
        self.events.note(EventKind::ProgramEnded, name, &reason);
        status.reason = reason;
        self.keep(&status);
    }

    /// Attends to it until it has ended. Returns its exit status, and whether it was asked to end.
    fn attend(self: &Arc<Shared>, running: Running) -> (ExitStatus, bool) {
        let (pid, number) = (running.process.pid(), running.pid());
        self.lock().phase = Phase::Running(number);
        let Running { process, output, _lifeline } = running;
        self.copy_output(output);
        let mut asked: Option<Instant> = None;
        let mut times = [(Duration::ZERO, Signal::TERM), (AGAIN, Signal::TERM), (KILL, Signal::KILL)].iter();
        let mut next = times.next();
        loop {
            if process.has_ended() {
                // What is left of its group has no network any more.
                let _ = kill_process_group(pid, Signal::KILL);
                let status = process.status();
                self.keeper.remove(&kept_process(&self.program.name));
                // A former `control` may have asked it.
                return (status, asked.is_some() || self.lock().is_to_end());
            }
            let mut status = self.lock();
            if status.is_to_end() {
                status.phase = Phase::Stopping(number);
                asked = asked.or(Some(Instant::now()));
            }
            drop(status);
            let left = asked.zip(next).map(|(asked, (after, signal))| {
                let left = (asked + *after).saturating_duration_since(Instant::now());
                (left, *signal)
            });
            match left {
                Some((Duration::ZERO, signal)) => {
                    // The program may have ended.
                    let _ = pidfd_send_signal(&process, signal);
                    if signal == Signal::KILL {
                        let _ = kill_process_group(pid, signal);
                    }
                    next = times.next();
                }
                left => self.wait(Some(process.as_fd()), left.map(|(left, _)| left)),
            }
        }
    }

    /// Copies what it writes to its log, on a thread of its own.
    fn copy_output(&self, output: PipeReader) {
        let (path, name, writes) = (self.log.clone(), self.program.name.clone(), self.writes.clone());
        let copied = move || {
            if let Err(error) = output_log::copy(&output, &path, &writes) {
                tracing::warn!(program = name, %error, "its output is lost");
            }
        };
        if let Err(error) = std::thread::Builder::new().name("program-log".into()).spawn(copied) {
            tracing::warn!(program = self.program.name, %error, "its output is lost");
        }
    }

    /// Waits until something is wanted, a process ends, or the time is over.
    fn wait(&self, process: Option<BorrowedFd<'_>>, limit: Option<Duration>) {
        let all = [Some(self.changed.as_fd()), process];
        let mut polled: Vec<PollFd<'_>> =
            all.iter().flatten().map(|fd| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
        // A signal ends it early.
        let _ = poll(&mut polled, limit.as_ref());
        self.changed.clear();
    }

    /// Starts its process.
    fn start(self: &Arc<Shared>) -> io::Result<Running> {
        let program = &self.program;
        let ((output, input), (watched, lifeline)) = (io::pipe()?, io::pipe()?);
        let mut command = Command::new("/proc/self/exe");
        command.args(&self.arguments).stdin(Stdio::from(watched)).stdout(input.try_clone()?).stderr(input);
        command.process_group(0).current_dir(program.folder.as_deref().unwrap_or(Path::new("/")));
        if let Some(name) = &program.user {
            let text = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
            let nobody = || io::Error::other(format!("there is no user {name} in /etc/passwd"));
            let account = account(name, &text).ok_or_else(nobody)?;
            if account.user != rustix::process::geteuid().as_raw() {
                command.uid(account.user).gid(account.group);
                // The fabric's are not this user's.
                command.env_remove("RINGWAY_RUN").env_remove("XDG_RUNTIME_DIR");
            }
            command.env("USER", name).env("LOGNAME", name);
            if let Some(home) = account.home {
                command.env("HOME", home);
            }
        }
        command.envs(program.environment.iter().map(|(name, value)| (name, value)));
        let child = command.spawn()?;
        drop(command);
        let process = Outliving::started(Pid::from_child(&child), &self.keeper)?;
        let running = Running { process, output, _lifeline: lifeline.into() };
        let held = [running.process.as_fd(), running.output.as_fd(), running._lifeline.as_fd()];
        self.keeper.put_value(&kept_process(&program.name), &running.pid(), &held);
        tracing::info!(program = program.name, pid = running.pid(), "started");
        self.events.note(EventKind::ProgramStarted, &program.name, "");
        Ok(running)
    }
}

impl Running {
    /// A process that a former `control` had started.
    fn adopt(kept: StoredEntry, keeper: &Keeper) -> io::Result<Running> {
        let pid: i32 = serde_json::from_str(&kept.text)?;
        let descriptors: Result<[OwnedFd; 3], _> = kept.descriptors.try_into();
        let missing = |_| io::Error::other("the keeper has not all of its descriptors");
        let [process, output, lifeline] = descriptors.map_err(missing)?;
        let process = Outliving::kept(pid, process, keeper)?;
        Ok(Running { process, output: output.into(), _lifeline: lifeline })
    }

    /// Number of its process.
    fn pid(&self) -> u32 {
        self.process.pid().as_raw_nonzero().get().unsigned_abs()
    }
}

/// How a program ended, in words.
fn explain(status: ExitStatus) -> String {
    match status.code() {
        Some(NOT_FOUND) => "exit status: 127; its command was not found, see `ringway program logs`".into(),
        Some(NOT_EXECUTABLE) => {
            "exit status: 126; its command can't be run, see `ringway program logs`".into()
        }
        Some(1) => "exit status: 1; `ringway program logs` may say why".into(),
        _ if status.signal() == Some(9) => "signal: 9 (SIGKILL)".into(),
        _ => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program() -> ExecProgram {
        ExecProgram {
            name: "web".into(),
            command: vec!["nginx".into(), "-g".into(), "daemon off;".into()],
            port: "p".into(),
            addresses: vec!["10.0.0.2/24".parse().unwrap()],
            gateways: vec!["10.0.0.1".parse().unwrap()],
            dns: Vec::new(),
            mtu: 1500,
            stack: ringway_spec::ProgramStack::Native,
            direct: true,
            writable: Vec::new(),
            cc: Some("bbr".into()),
            sysctls: vec![("net.ipv4.tcp_sack".into(), "0".into())],
            user: None,
            folder: None,
            environment: Vec::new(),
            restart: Restart::OnFailure,
            nofile: Some(64),
            memory: None,
            cpu: None,
            start: true,
        }
    }

    #[test]
    fn a_program_is_words_of_exec() {
        let words = arguments(&program(), Path::new("/run/web.sock"));
        let words: Vec<&str> = words.iter().map(|word| word.to_str().unwrap()).collect();
        let expected = "--supervised=web --kill-after=5 --port=/run/web.sock --address=10.0.0.2/24 \
            --gateway=10.0.0.1 --mtu=1500 --stack=native --cc=bbr --sysctl=net.ipv4.tcp_sack=0 \
            --limit=nofile=64 --direct -- nginx -g";
        assert_eq!(words[..words.len() - 1].join(" "), expected);
        assert_eq!(words.last(), Some(&"daemon off;"));
    }

    /// Programs that are shells in place of `ringway exec`: this process is a test's.
    fn ended(restart: Restart, status: i32) -> Status {
        let shared = Shared {
            program: ExecProgram { restart, ..program() },
            arguments: Vec::new(),
            log: PathBuf::new(),
            status: Mutex::new(Status { is_wanted: true, ..Status::default() }),
            changed: EventFd::new().unwrap(),
            keeper: Keeper::thread().unwrap(),
            events: EventLog::default(),
            writes: Arc::default(),
        };
        shared.end(Ok(ExitStatus::from_raw(status << 8)), false);
        shared.status.into_inner().unwrap()
    }

    #[test]
    fn a_program_is_started_again_as_its_policy_says() {
        for (restart, failed, done) in [
            (Restart::Never, Phase::Ended, Phase::Ended),
            (Restart::OnFailure, Phase::Waiting, Phase::Ended),
            (Restart::Always, Phase::Waiting, Phase::Waiting),
        ] {
            assert_eq!(ended(restart, 3).phase, failed, "{restart:?}");
            assert_eq!(ended(restart, 0).phase, done, "{restart:?}");
        }
        assert!(ended(Restart::Never, 127).reason.contains("not found"));
    }
}
