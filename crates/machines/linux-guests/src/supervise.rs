//! A guest's threads: starting its program, reading its output, waiting for its end.

use super::console::{self, Log};
use super::rate_limit::RateLimited;
use super::{Holder, Launch, Output, Shared, Spec, agent, confine};
use crate::outlive::HeldGuest;
use ringway_host::jail::{Jail, JailError, Jailed, Pipes, Program};
use ringway_host::wait_readable;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process_group, pidfd_open, waitid,
};
use std::fs::File;
use std::io::{self, BufReader, PipeWriter};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Time for the rest of a guest's output after its process has ended.
const REST: Duration = Duration::from_millis(500);

/// The process that runs a guest.
pub struct Process {
    child: Jailed,
    /// The process itself; none if it does not outlive this one.
    descriptor: Option<OwnedFd>,
}

impl Process {
    /// A process that another one has started.
    pub fn adopted(child: Jailed, descriptor: OwnedFd) -> Process {
        Process { child, descriptor: Some(descriptor) }
    }

    /// Waits for its end; nobody takes its status, so that its number stays its own.
    fn wait_for_end(&self) {
        match &self.descriptor {
            Some(descriptor) => {
                while !wait_readable(&[descriptor.as_fd()], None).is_ok_and(|ready| ready.contains(&true)) {}
            }
            // If that fails, taking the status reports it.
            None => {
                let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
                let _ = waitid(WaitId::Pid(self.child.process()), options);
            }
        }
    }
}

/// A guest that a thread attends to for its lifetime.
pub struct Supervised {
    pub spec: Spec,
    pub shared: Arc<Shared>,
    pub holder: Option<Arc<dyn Holder>>,
    /// The log of its console.
    pub console: PathBuf,
}

impl Supervised {
    /// Starts its program, and attends to it until its end.
    pub fn start(
        self,
        jail: Jail<'static>,
        launch: &Launch,
        log: File,
        started: &Sender<Result<(Pid, PipeWriter), JailError>>,
    ) {
        let group = confine::group(&self.spec);
        let jail = Jail { group: group.as_ref(), ..jail };
        let program =
            Program { path: &launch.program, arguments: &launch.arguments, environment: &launch.environment };
        let begun = jail.start(&program).and_then(|(child, pipes)| {
            let input = pipes.input.try_clone().map_err(|error| lacking(&child, &error))?;
            let descriptor = self.held(&child, launch, group.as_ref(), (&pipes, &log))?;
            Ok((Process { child, descriptor }, pipes, input))
        });
        match begun {
            Ok((process, pipes, input)) => {
                // The caller waits for this answer.
                let _ = started.send(Ok((process.child.process(), input)));
                self.attend(process, pipes, Log::new(log));
            }
            Err(error) => _ = started.send(Err(error)),
        }
    }

    /// Lets the holder have what another process needs. Returns the descriptor of the process.
    fn held(
        &self,
        child: &Jailed,
        launch: &Launch,
        group: Option<&ringway_host::jail::ControlGroup>,
        (pipes, log): (&Pipes, &File),
    ) -> Result<Option<OwnedFd>, JailError> {
        let Some(holder) = &self.holder else { return Ok(None) };
        let descriptor = pidfd_open(child.process(), PidfdFlags::empty());
        let descriptor = descriptor.map_err(|error| lacking(child, &error.into()))?;
        let held = HeldGuest::new(child, &launch.note, group, &launch.names);
        holder.hold(&held, &HeldGuest::descriptors(&descriptor, pipes, log));
        Ok(Some(descriptor))
    }

    /// Reads a guest's output, and waits for its end.
    pub fn attend(self, process: Process, pipes: Pipes, log: Log) {
        let Pipes { input: _, output, errors } = pipes;
        let Supervised { spec, shared, holder, console } = self;
        let log = Arc::new(Mutex::new(log));
        let (listener, keeper) = (Arc::clone(&shared), Arc::clone(&log));
        let panicked = {
            let (shared, spec, process) = (Arc::clone(&shared), spec.clone(), process.child.process());
            move |said| shared.panicked(&spec, process, said)
        };
        let also_panicked = panicked.clone();
        let (open, closed) = channel::<()>();
        let also_open = open.clone();
        let readers = [
            std::thread::spawn(move || {
                listen(BufReader::new(RateLimited::new(output)), &listener, &keeper, panicked);
                drop(open);
            }),
            std::thread::spawn(move || {
                let errors = File::from(OwnedFd::from(errors));
                console::record(RateLimited::new(errors), &log, also_panicked);
                drop(also_open);
            }),
        ];
        let status = end(&process, &shared, (holder.as_deref(), &console), &closed);
        tracing::info!(guest = spec.name, %status, "its process ended");
        for reader in readers {
            // A panic of the reader was reported already.
            let _ = reader.join();
        }
    }
}

/// Ends a program that can't be attended to.
fn lacking(child: &Jailed, error: &io::Error) -> JailError {
    let _ = kill_process_group(child.process(), Signal::KILL);
    child.wait();
    let error = rustix::io::Errno::from_io_error(error).unwrap_or(rustix::io::Errno::IO);
    JailError::Given { what: "a descriptor".into(), error }
}

/// Waits for the program, then ends the rest of its process group. `closed` is disconnected when all of its output has
/// been read.
fn end(
    process: &Process,
    shared: &Shared,
    (holder, console): (Option<&dyn Holder>, &Path),
    closed: &Receiver<()>,
) -> ExitStatus {
    process.wait_for_end();
    let pid = process.child.process();
    // Helpers of User-Mode Linux that outlived it; usually there are none.
    let _ = kill_process_group(pid, Signal::KILL);
    // Whoever learns that it has ended finds its last lines in the log, unless another process holds its output open.
    let _ = closed.recv_timeout(REST);
    let status = holder.map_or_else(|| process.child.wait(), |holder| holder.status(pid));
    shared.ended(status, holder, console);
    status
}

/// Takes the agent's answers until the line closes.
fn listen(mut from: impl io::BufRead, shared: &Shared, log: &Mutex<Log>, mut panicked: impl FnMut(String)) {
    while let Ok(Some(message)) = agent::read(&mut from) {
        match message {
            agent::Message::Text(line) => drop(console::append(log, &line).map(&mut panicked)),
            agent::Message::Answer(0, ..) => shared.lock().boots += 1,
            agent::Message::Answer(id, status, text) => {
                let mut known = shared.lock();
                // A process that goes on with it has not heard that it booted.
                known.boots = known.boots.max(1);
                // Attack: unsolicited answers would pile up.
                if id <= known.requests && known.answers.len() < 64 {
                    known.answers.insert(id, Output { status, text });
                }
            }
        }
        shared.changed.notify_all();
    }
}
