//! The fabric's hosts: their network namespaces, and the programs in them.

use crate::file::Fabric;
use crate::keeper::{Keeper, NO_DESCRIPTORS, Outliving, StoredEntry};
use crate::output_log;
use ringway_host::{
    HostError, create_namespace, end_processes, enter_namespace, is_in_namespace, remove_namespace,
};
use ringway_spec::Host;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File};
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// The file in a host's folder with the output of its programs.
const OUTPUT: &str = "programs.log";
/// How long a program may take to end when it is asked to.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(5);
/// Time between two attempts to write a log that can't be written.
const LOG_PAUSE: Duration = Duration::from_secs(1);

/// Why an operation on a host failed.
#[derive(Debug, thiserror::Error)]
pub enum HostFailure {
    /// The host's namespace can't be created.
    #[error("host {0}: {1}; hosts need root (CAP_SYS_ADMIN and CAP_NET_ADMIN)")]
    Namespace(String, #[source] HostError),
    /// The host's folder can't be created.
    #[error("host {0}: {1}: {2}")]
    Folder(String, PathBuf, #[source] io::Error),
}

/// State of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProgramState {
    /// The program waits until what ran in its host before has ended.
    Waiting,
    /// The program is about to run.
    Starting,
    /// The program runs as this process, which leads its group.
    Running(Pid),
    /// The program has ended, or did not start.
    Ended(String),
}

/// A program of a host.
#[derive(Clone, Debug)]
pub struct Program {
    /// The command of the shell.
    pub command: String,
    state: Arc<Mutex<ProgramState>>,
    /// Set once it must not run any more.
    cancelled: Arc<AtomicBool>,
    /// The keeper, and its name for what it has of the program.
    kept: (Keeper, String),
}

/// What the keeper has of a program of a host, with its process if there is one.
#[derive(Debug, Serialize, Deserialize)]
enum KeptState {
    Waiting,
    Running(i32),
    Ended(String),
}

impl Program {
    fn new(command: &str, kept: (Keeper, String)) -> Program {
        let state = Arc::new(Mutex::new(ProgramState::Waiting));
        let program = Program { command: command.into(), state, cancelled: Arc::default(), kept };
        program.keep(&KeptState::Waiting, None);
        program
    }

    /// A program that a former `control` had. It is to be started if it waits.
    fn adopt(command: &str, kept: (Keeper, String), found: &mut BTreeMap<String, StoredEntry>) -> Program {
        let entry = found.remove(&kept.1);
        let program = Program::new(command, kept);
        let Some(StoredEntry { text, descriptors }) = entry else { return program };
        match serde_json::from_str(&text) {
            Ok(KeptState::Ended(reason)) => program.ended(reason),
            Ok(KeptState::Running(pid)) => {
                let process = descriptors.into_iter().next().ok_or(io::ErrorKind::NotFound.into());
                match process.and_then(|process| Outliving::kept(pid, process, &program.kept.0)) {
                    Ok(process) => program.go_on(process),
                    Err(error) => program.ended(error.to_string()),
                }
            }
            Ok(KeptState::Waiting) | Err(_) => {}
        }
        program
    }

    /// Waits for the end of a process that a former `control` had started, on a thread.
    fn go_on(&self, process: Outliving) {
        self.runs_as(&process);
        let program = self.clone();
        let waits = move || program.ended(process.status().to_string());
        if let Err(error) = std::thread::Builder::new().name("program".into()).spawn(waits) {
            self.ended(error.to_string());
        }
    }

    /// Keeps its state for the next `control`, unless another one has its place.
    fn keep(&self, state: &KeptState, process: Option<&Outliving>) {
        let (keeper, name) = &self.kept;
        match self.cancelled.load(Ordering::SeqCst) && process.is_none() {
            true => keeper.remove(name),
            false => keeper.put_value(name, state, process),
        }
    }

    fn runs_as(&self, process: &Outliving) {
        self.keep(&KeptState::Running(process.pid().as_raw_nonzero().get()), Some(process));
        *self.lock() = ProgramState::Running(process.pid());
    }

    fn ended(&self, reason: String) {
        let mut state = self.lock();
        self.keep(&KeptState::Ended(reason.clone()), None);
        *state = ProgramState::Ended(reason);
    }

    fn lock(&self) -> MutexGuard<'_, ProgramState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its state.
    pub fn state(&self) -> ProgramState {
        self.lock().clone()
    }

    /// Keeps it from running, if it does not run yet.
    fn cancel(&self) {
        self.cancelled.store(true, Ordering::SeqCst);
        let mut state = self.lock();
        match *state {
            ProgramState::Waiting => *state = ProgramState::Ended("it was not started".into()),
            ProgramState::Ended(_) => {}
            ProgramState::Starting | ProgramState::Running(_) => return,
        }
        self.kept.0.remove(&self.kept.1);
    }

    /// Starts it in a namespace, on a thread that waits until it ends. Does nothing if it was cancelled.
    fn start(&self, namespace: Arc<File>, output: OwnedFd) {
        {
            let mut state = self.lock();
            if *state != ProgramState::Waiting {
                return;
            }
            *state = ProgramState::Starting;
        }
        let program = self.clone();
        // A program inherits the namespace of the thread that starts it.
        let thread = std::thread::Builder::new().name("program".into()).spawn(move || {
            let started = enter_namespace(&path_of(&namespace)).map_err(io::Error::other);
            drop(namespace);
            let status = started.and_then(|()| program.run(output));
            program.ended(status.unwrap_or_else(|error| error.to_string()));
        });
        if let Err(error) = thread {
            self.ended(error.to_string());
        }
    }

    /// Runs it until it ends; returns its exit status in words.
    fn run(&self, output: OwnedFd) -> io::Result<String> {
        let errors = output.try_clone()?;
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", &self.command]).stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        let process = Outliving::started(Pid::from_child(&shell.spawn()?), &self.kept.0)?;
        self.runs_as(&process);
        if self.cancelled.load(Ordering::SeqCst) {
            self.signal(Signal::KILL);
        }
        Ok(process.status().to_string())
    }

    fn signal(&self, signal: Signal) {
        if let ProgramState::Running(pid) = self.state() {
            // The process may have ended already.
            let _ = kill_process_group(pid, signal);
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self.state(), ProgramState::Ended(_))
    }
}

/// The pipe that all programs of a host write to, whose content a thread copies to a log. What is left of a program
/// that has ended may write to it still.
struct Output {
    reader: OwnedFd,
    writer: OwnedFd,
}

impl Output {
    /// The pipe of a former `control`, or a new one.
    fn begin(kept: Vec<OwnedFd>, log: PathBuf) -> io::Result<Output> {
        let [reader, writer]: [OwnedFd; 2] = match kept.try_into() {
            Ok(kept) => kept,
            Err(_) => {
                let (reader, writer) = io::pipe()?;
                [reader.into(), writer.into()]
            }
        };
        let from = PipeReader::from(reader.try_clone()?);
        std::thread::Builder::new().name("host-log".into()).spawn(move || copy_output(from, &log))?;
        Ok(Output { reader, writer })
    }

    fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.reader.as_fd(), self.writer.as_fd()]
    }
}

/// Copies output to a log until the host and its programs have ended. While that can't be written, the output is lost:
/// programs do not wait for it.
fn copy_output(mut output: PipeReader, log: &Path) {
    let (mut is_told, mut lost) = (false, vec![0; 64 << 10]);
    while let Err(error) = output_log::copy(&output, log, &Mutex::new(())) {
        if !std::mem::replace(&mut is_told, true) {
            tracing::warn!(log = %log.display(), %error, "output of a host's programs is lost");
        }
        if matches!(output.read(&mut lost), Ok(0)) {
            return;
        }
        std::thread::sleep(LOG_PAUSE);
    }
}

/// Work on a host on another thread; it is over once the sender is gone.
type Work = watch::Receiver<()>;

/// Does this after other work, on another thread.
fn after(before: Work, work: impl FnOnce() + Send + 'static) -> Work {
    let (working, works) = watch::channel(());
    tokio::spawn(async move {
        over(before).await;
        // A panic of the task was reported by its thread.
        let _ = tokio::task::spawn_blocking(work).await;
        drop(working);
    });
    works
}

/// Waits until work is over.
async fn over(mut work: Work) {
    while work.changed().await.is_ok() {}
}

/// A host, as it is shown.
pub struct Shown<'h> {
    /// Its name.
    pub name: &'h str,
    /// Whether processes in it are being ended: it is removed, or other programs are about to run.
    pub stopping: bool,
    /// Whether it is removed.
    pub removed: bool,
    /// The file that keeps its namespace.
    pub namespace: &'h Path,
    /// The file of the programs' output.
    pub output: PathBuf,
    /// Its programs.
    pub programs: &'h [Program],
}

struct Record {
    name: String,
    folder: PathBuf,
    /// The file that keeps its namespace.
    kept: PathBuf,
    /// The namespace, which stays the same when the folder is renamed.
    namespace: Arc<File>,
    programs: Vec<Program>,
    /// Where they write, once there are some.
    output: Option<Output>,
    /// The last work on it.
    work: Work,
}

impl Record {
    fn is_at_work(&self) -> bool {
        self.work.has_changed().is_ok()
    }

    /// A file for the output of a program. An error says that the log can't be written.
    fn new_output(&mut self) -> io::Result<OwnedFd> {
        let log = self.folder.join(OUTPUT);
        output_log::open(&log)?;
        let output = match self.output.take() {
            Some(output) => output,
            None => Output::begin(Vec::new(), log)?,
        };
        self.output.insert(output).writer.try_clone()
    }

    /// Keeps which programs it has, and where they write, for the next `control`.
    fn keep(&self, keeper: &Keeper, numbers: &[u64]) {
        let output: Vec<BorrowedFd<'_>> = self.output.iter().flat_map(Output::descriptors).collect();
        keeper.put_value(&kept_host(&self.name), &numbers, &output);
    }

    fn shown(&self, removed: bool) -> Shown<'_> {
        Shown {
            name: &self.name,
            stopping: removed || self.is_at_work(),
            removed,
            namespace: &self.kept,
            output: self.folder.join(OUTPUT),
            programs: &self.programs,
        }
    }
}

/// The path of an open namespace.
fn path_of(namespace: &File) -> PathBuf {
    format!("/proc/self/fd/{}", namespace.as_raw_fd()).into()
}

/// The keeper's name for what it has of a host: the numbers of its programs.
fn kept_host(host: &str) -> String {
    format!("host/{host}")
}

/// All hosts of a fabric. Processes may take seconds to end: nothing here waits for that.
pub struct Hosts {
    keeper: Keeper,
    /// Number of the next program.
    next: u64,
    records: BTreeMap<String, Record>,
    /// Hosts that are removed, until everything in them has ended.
    leaving: Vec<Record>,
    /// Number of hosts that were removed.
    removed: u64,
    /// Work of the present change.
    begun: Vec<Work>,
}

impl Hosts {
    /// No hosts yet.
    pub fn new(keeper: Keeper) -> Hosts {
        Hosts {
            keeper,
            next: 0,
            records: BTreeMap::new(),
            leaving: Vec::new(),
            removed: 0,
            begun: Vec::new(),
        }
    }

    /// Names of hosts that a former `control` had.
    pub fn of_former(fabric: &Fabric, found: &BTreeMap<String, StoredEntry>) -> Vec<String> {
        let names = fabric.hosts.iter().map(|host| host.name.clone());
        names.filter(|name| found.contains_key(&kept_host(name))).collect()
    }

    /// Goes on with a host of a former `control` and its programs.
    pub fn adopt(
        &mut self,
        host: &Host,
        (folder, kept): (PathBuf, PathBuf),
        found: &mut BTreeMap<String, StoredEntry>,
    ) -> Result<(), HostFailure> {
        let failed = |error: io::Error| HostFailure::Folder(host.name.clone(), kept.clone(), error);
        let entry =
            found.remove(&kept_host(&host.name)).ok_or_else(|| failed(io::ErrorKind::NotFound.into()))?;
        let numbers: Vec<u64> = serde_json::from_str(&entry.text).map_err(|error| failed(error.into()))?;
        let namespace = Arc::new(File::open(&kept).map_err(failed)?);
        let (_, work) = watch::channel(());
        self.next = numbers.iter().map(|number| number + 1).chain([self.next]).max().unwrap_or(0);
        let programs: Vec<Program> = host
            .programs
            .iter()
            .zip(&numbers)
            .map(|(command, number)| Program::adopt(command, self.kept(&host.name, *number), found))
            .collect();
        let output = match entry.descriptors {
            // It had no programs, or a `control` that gave them the log itself.
            none if none.is_empty() => None,
            kept => Some(Output::begin(kept, folder.join(OUTPUT)).map_err(failed)?),
        };
        let name = host.name.clone();
        let mut record = Record { name, folder, kept: kept.clone(), namespace, programs, output, work };
        // `control` was killed before it started them.
        for program in record.programs.clone() {
            if program.state() == ProgramState::Waiting {
                program.start(record.namespace.clone(), record.new_output().map_err(failed)?);
            }
        }
        record.keep(&self.keeper, &numbers);
        self.records.insert(host.name.clone(), record);
        Ok(())
    }

    /// The processes of programs that run.
    pub fn processes(&self) -> impl Iterator<Item = Pid> {
        let programs = self.records.values().flat_map(|record| &record.programs);
        programs.filter_map(|program| match program.state() {
            ProgramState::Running(pid) => Some(pid),
            _ => None,
        })
    }

    /// Whether a process is in a host.
    pub fn have(&self, pid: Pid) -> bool {
        self.records.values().any(|record| is_in_namespace(pid, &record.kept))
    }

    fn kept(&self, host: &str, number: u64) -> (Keeper, String) {
        (self.keeper.clone(), format!("host-process/{host}/{number}"))
    }

    /// Adds a host, whose namespace is kept by the file `kept` in `folder`.
    pub fn add(&mut self, name: &str, folder: PathBuf, kept: PathBuf) -> Result<(), HostFailure> {
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&folder);
        let failed = |error| HostFailure::Folder(name.into(), folder.clone(), error);
        made.map_err(failed)?;
        create_namespace(&kept).map_err(|error| HostFailure::Namespace(name.into(), error))?;
        let namespace = Arc::new(File::open(&kept).map_err(failed)?);
        let (_, work) = watch::channel(());
        let (name, programs) = (name.to_string(), Vec::new());
        let record = Record { name: name.clone(), folder, kept, namespace, programs, output: None, work };
        self.keeper.put(&kept_host(&name), "[]", NO_DESCRIPTORS);
        self.records.insert(name, record);
        Ok(())
    }

    /// Starts these programs of a host; if it has other ones, once all processes in it have ended.
    pub fn run(&mut self, host: &Host) -> Result<(), HostFailure> {
        let Some(record) = self.records.get_mut(&host.name) else { return Ok(()) };
        let path = record.folder.join(OUTPUT);
        // An error leaves the programs as they are.
        let outputs: Vec<OwnedFd> = host
            .programs
            .iter()
            .map(|_| record.new_output())
            .collect::<io::Result<_>>()
            .map_err(|error| HostFailure::Folder(host.name.clone(), path, error))?;
        let numbers: Vec<u64> = (self.next..).take(host.programs.len()).collect();
        self.next += numbers.len() as u64;
        let commands = host.programs.iter().zip(&numbers);
        let new: Vec<Program> =
            commands.map(|(command, number)| Program::new(command, self.kept(&host.name, *number))).collect();
        let Some(record) = self.records.get_mut(&host.name) else { return Ok(()) };
        record.keep(&self.keeper, &numbers);
        let old = std::mem::replace(&mut record.programs, new.clone());
        old.iter().for_each(Program::cancel);
        let namespace = record.namespace.clone();
        let start = move |namespace: &Arc<File>| {
            new.iter().zip(outputs).for_each(|(program, output)| program.start(namespace.clone(), output));
        };
        if old.is_empty() && !record.is_at_work() {
            start(&namespace);
            return Ok(());
        }
        record.work = after(record.work.clone(), move || {
            if !old.is_empty() {
                end(&old, &path_of(&namespace));
            }
            start(&namespace);
        });
        self.begun.push(record.work.clone());
        Ok(())
    }

    /// Removes a host, and begins to end everything that runs in it. Another one may have its name at once.
    pub fn remove(&mut self, name: &str) {
        self.leaving.retain(Record::is_at_work);
        let Some(mut record) = self.records.remove(name) else { return };
        record.programs.iter().for_each(Program::cancel);
        self.keeper.remove(&kept_host(name));
        // Its log ends with its last program.
        record.output = None;
        self.removed += 1;
        // Names have no dot.
        let aside = record.folder.with_extension(format!("stopping-{}", self.removed));
        if std::fs::rename(&record.folder, &aside).is_ok() {
            record.kept = record.kept.file_name().map_or_else(|| aside.clone(), |file| aside.join(file));
            record.folder = aside;
        }
        let (programs, kept, folder) = (record.programs.clone(), record.kept.clone(), record.folder.clone());
        record.work = after(record.work.clone(), move || {
            end(&programs, &kept);
            remove_namespace(&kept);
            // The output of its programs goes with it.
            let _ = std::fs::remove_dir_all(folder);
        });
        self.begun.push(record.work.clone());
        self.leaving.push(record);
    }

    /// Waits until the work that was begun since the last call is over.
    pub fn settled(&mut self) -> impl Future<Output = ()> + Send + 'static {
        let begun = std::mem::take(&mut self.begun);
        async {
            for work in begun {
                over(work).await;
            }
        }
    }

    /// Removes all hosts at the same time, and waits until they are gone.
    pub async fn remove_all(&mut self) {
        let names: Vec<String> = self.records.keys().cloned().collect();
        names.iter().for_each(|name| self.remove(name));
        for record in std::mem::take(&mut self.leaving) {
            over(record.work).await;
        }
    }

    /// All hosts, those that are removed at the end.
    pub fn all(&self) -> impl Iterator<Item = Shown<'_>> {
        let leaving = self.leaving.iter().filter(|record| record.is_at_work());
        self.records
            .values()
            .map(|record| record.shown(false))
            .chain(leaving.map(|record| record.shown(true)))
    }
}

/// Waits until something is so, but not for ever.
fn wait(limit: Duration, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + limit;
    while !is_so() && Instant::now() < end {
        std::thread::sleep(PAUSE);
    }
}

/// Ends programs, and all processes in their namespace: asks them, and kills those that go on. A process may have left
/// its program's group, as daemons do, or the namespace, but hardly both.
fn end(programs: &[Program], namespace: &Path) {
    // A process that starts now would not be found.
    wait(STOP_TIMEOUT, || programs.iter().all(|program| program.state() != ProgramState::Starting));
    programs.iter().for_each(|program| program.signal(Signal::TERM));
    end_processes(namespace);
    wait(STOP_TIMEOUT, || programs.iter().all(Program::has_ended));
    programs.iter().for_each(|program| program.signal(Signal::KILL));
    wait(STOP_TIMEOUT, || programs.iter().all(Program::has_ended));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder for a host, and the file of its namespace.
    fn places(name: &str) -> (PathBuf, PathBuf) {
        let folder = std::env::temp_dir().join(format!("ringway-hosts-{name}-{}", std::process::id()));
        let host = folder.join("h");
        (host.clone(), host.join("net"))
    }

    fn running(program: &Program) -> bool {
        matches!(program.state(), ProgramState::Running(_))
    }

    /// Whether the process of this number runs.
    fn lives(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
    }

    fn host(programs: &[String]) -> Host {
        Host { name: "h".into(), programs: programs.to_vec() }
    }

    #[tokio::test]
    async fn other_programs_run_once_daemons_of_the_earlier_ones_have_ended() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not run: a network namespace needs root");
            return;
        }
        let (folder, kept) = places("daemon");
        let mut hosts = Hosts::new(Keeper::thread().unwrap());
        hosts.add("h", folder.clone(), kept.clone()).unwrap();
        let pid_file = folder.join("daemon.pid");
        // In a session of its own, deaf to requests to end; the shell that started it has ended.
        let daemon = format!(
            "setsid sh -c \"trap '' TERM HUP; echo \\$\\$ > {}; while :; do sleep 1; done\" & exit 0",
            pid_file.display()
        );
        hosts.run(&host(&[daemon])).unwrap();
        let first = hosts.records["h"].programs[0].clone();
        let mut pid = String::new();
        wait(Duration::from_secs(20), || {
            pid = std::fs::read_to_string(&pid_file).unwrap_or_default();
            first.has_ended() && pid.ends_with('\n')
        });
        assert!(lives(&pid), "it goes on without its program: {:?}", first.state());

        hosts.run(&host(&["sleep 1000".into()])).unwrap();
        let shown = hosts.all().next().unwrap();
        assert!(shown.stopping && !shown.removed, "nobody has waited");
        assert_eq!(shown.programs[0].state(), ProgramState::Waiting);
        // Programs that never run since others come at once.
        hosts.run(&host(&["sleep 1001".into()])).unwrap();
        let second = hosts.records["h"].programs[0].clone();
        hosts.run(&host(&["sleep 1002".into()])).unwrap();
        hosts.settled().await;
        assert!(!lives(&pid), "the daemon has ended");
        assert_eq!(second.state(), ProgramState::Ended("it was not started".into()));
        let third = hosts.records["h"].programs[0].clone();
        wait(Duration::from_secs(20), || running(&third));
        assert!(running(&third) && !hosts.all().any(|shown| shown.stopping));

        // A host of its name comes while it leaves.
        hosts.remove("h");
        hosts.add("h", folder.clone(), kept.clone()).unwrap();
        let states: Vec<(bool, bool)> = hosts.all().map(|shown| (shown.stopping, shown.removed)).collect();
        assert_eq!(states, [(false, false), (true, true)]);
        hosts.settled().await;
        assert!(third.has_ended() && kept.exists() && hosts.all().count() == 1);
        hosts.run(&host(&["sleep 1003".into()])).unwrap();
        let fourth = hosts.records["h"].programs[0].clone();
        hosts.remove_all().await;
        assert!(fourth.has_ended() && hosts.all().count() == 0);
        assert_eq!(std::fs::read_dir(folder.parent().unwrap()).unwrap().count(), 0, "nothing is left");
        std::fs::remove_dir(folder.parent().unwrap()).unwrap();
    }

    #[tokio::test]
    async fn programs_whose_output_can_t_be_written_leave_those_that_run() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not run: a network namespace needs root");
            return;
        }
        let (folder, kept) = places("output");
        let mut hosts = Hosts::new(Keeper::thread().unwrap());
        hosts.add("h", folder.clone(), kept).unwrap();
        hosts.run(&host(&["sleep 1000".into()])).unwrap();
        let first = hosts.records["h"].programs[0].clone();
        wait(Duration::from_secs(20), || running(&first));
        std::fs::remove_file(folder.join(OUTPUT)).unwrap();
        std::fs::create_dir(folder.join(OUTPUT)).unwrap();
        assert!(matches!(hosts.run(&host(&["true".into()])), Err(HostFailure::Folder(..))));
        assert!(running(&first) && !hosts.all().any(|shown| shown.stopping));
        hosts.remove_all().await;
        std::fs::remove_dir(folder.parent().unwrap()).unwrap();
    }
}
