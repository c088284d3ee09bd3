//! The fabric's hosts: their network namespaces, and the programs in them.

use ringway_host::{HostError, create_namespace, enter_namespace, remove_namespace};
use ringway_spec::Host;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// The file in a host's folder with the output of its programs.
const OUTPUT: &str = "programs.log";
/// How long a program may take to end when it is asked to.
const FAREWELL: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(5);

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
}

impl Program {
    /// Its state.
    pub fn state(&self) -> ProgramState {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Starts it in a namespace, on a thread that waits until it ends.
    fn start(command: &str, namespace: &Path, output: File) -> Program {
        let state = Arc::new(Mutex::new(ProgramState::Starting));
        let program = Program { command: command.into(), state: state.clone() };
        let (command, namespace) = (command.to_string(), namespace.to_path_buf());
        let set = move |new| *state.lock().unwrap_or_else(PoisonError::into_inner) = new;
        let failed = set.clone();
        // A program inherits the namespace of the thread that starts it.
        let thread = std::thread::Builder::new().name("program".into()).spawn(move || {
            let started = enter_namespace(&namespace).map_err(io::Error::other);
            let status = started.and_then(|()| run(&command, output, &set));
            set(ProgramState::Ended(status.unwrap_or_else(|error| error.to_string())));
        });
        if let Err(error) = thread {
            failed(ProgramState::Ended(error.to_string()));
        }
        program
    }

    fn signal(&self, signal: Signal) {
        if let ProgramState::Running(pid) = self.state() {
            // It may have ended already.
            let _ = kill_process_group(pid, signal);
        }
    }

    fn has_ended(&self) -> bool {
        matches!(self.state(), ProgramState::Ended(_))
    }
}

/// Runs a command until it ends; returns its exit status in words.
fn run(command: &str, output: File, set: &impl Fn(ProgramState)) -> io::Result<String> {
    let errors = output.try_clone()?;
    let mut shell = Command::new("/bin/sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
    let mut child = shell.spawn()?;
    set(ProgramState::Running(Pid::from_child(&child)));
    child.wait().map(|status| status.to_string())
}

struct Record {
    folder: PathBuf,
    namespace: PathBuf,
    programs: Vec<Program>,
}

/// All hosts of a fabric.
#[derive(Default)]
pub struct Hosts {
    records: BTreeMap<String, Record>,
    /// Removals that may still wait for processes to end.
    leaving: Vec<JoinHandle<()>>,
}

impl Hosts {
    /// Adds a host, whose namespace is kept by the file `namespace` in `folder`.
    pub async fn add(&mut self, name: &str, folder: PathBuf, namespace: PathBuf) -> Result<(), HostFailure> {
        // A host with its name may be leaving.
        self.settle().await;
        let made = DirBuilder::new().recursive(true).mode(0o755).create(&folder);
        made.map_err(|error| HostFailure::Folder(name.into(), folder.clone(), error))?;
        create_namespace(&namespace).map_err(|error| HostFailure::Namespace(name.into(), error))?;
        self.records.insert(name.into(), Record { folder, namespace, programs: Vec::new() });
        Ok(())
    }

    /// Ends the programs of a host, and starts these.
    pub async fn run(&mut self, host: &Host) -> Result<(), HostFailure> {
        let Some(record) = self.records.get_mut(&host.name) else { return Ok(()) };
        let programs = std::mem::take(&mut record.programs);
        // A panic of the task was reported by its thread.
        let _ = tokio::task::spawn_blocking(move || end(&programs)).await;
        let path = record.folder.join(OUTPUT);
        for command in &host.programs {
            let output = OpenOptions::new().create(true).append(true).open(&path);
            let output =
                output.map_err(|error| HostFailure::Folder(host.name.clone(), path.clone(), error))?;
            record.programs.push(Program::start(command, &record.namespace, output));
        }
        Ok(())
    }

    /// Removes a host, and ends everything that runs in it. `settle` waits until that is done, for several hosts at the
    /// same time, since processes may take seconds to end.
    pub fn remove(&mut self, name: &str) {
        let record = self.records.remove(name);
        self.leaving.extend(record.map(|record| tokio::task::spawn_blocking(move || remove(&record))));
    }

    /// Waits until removed hosts are gone.
    pub async fn settle(&mut self) {
        for task in std::mem::take(&mut self.leaving) {
            // A panic of the task was reported by its thread.
            let _ = task.await;
        }
    }

    /// Removes all hosts at the same time.
    pub async fn remove_all(&mut self) {
        let names: Vec<String> = self.records.keys().cloned().collect();
        names.iter().for_each(|name| self.remove(name));
        self.settle().await;
    }

    /// Name, namespace, file of the programs' output, and programs of each host.
    pub fn all(&self) -> impl Iterator<Item = (&str, &Path, PathBuf, &[Program])> {
        self.records.iter().map(|(name, record)| {
            (&**name, &*record.namespace, record.folder.join(OUTPUT), &*record.programs)
        })
    }
}

fn remove(record: &Record) {
    remove_namespace(&record.namespace);
    // The output of its programs goes with it.
    let _ = std::fs::remove_dir_all(&record.folder);
}

/// Ends programs: asks them, and kills those that go on.
fn end(programs: &[Program]) {
    for signal in [Signal::TERM, Signal::KILL] {
        programs.iter().for_each(|program| program.signal(signal));
        let limit = Instant::now() + FAREWELL;
        while !programs.iter().all(Program::has_ended) && Instant::now() < limit {
            std::thread::sleep(PAUSE);
        }
    }
}
