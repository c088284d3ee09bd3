//! The keeper as a process: the parent of `control`, which it restarts after a crash.

use super::image::{self, Restored};
use super::trial::{Trial, tell};
use super::{client::serve, store::Store};
use crate::upgrade::UpgradeAnswer;
use ringway_fabric::MessageStream;
use ringway_host::{SignalFd, become_subreaper, end_children};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// Delays before another `control` is started, in milliseconds. After as many quick crashes in a row, the fabric ends.
const RESTARTS: [u64; 4] = [0, 100, 500, 2_000];
/// A run longer than this resets the count of quick crashes.
const STABLE: Duration = Duration::from_secs(1);
/// The exit code of a `control` that panicked, as that of any program whose first thread panics.
pub const PANICKED: u8 = 101;
/// How long processes of the fabric may take to end when `control` has ended.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long `control` may take to end once it has asked for another program.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);

/// How the keeper starts programs.
pub trait Programs {
    /// The command that starts a `control` process with the socket to the keeper as its standard input: of the program
    /// in a descriptor, or of this one.
    fn control(&mut self, binary: Option<&OwnedFd>, socket: OwnedFd) -> Command;

    /// Called once, when the first `control` was started.
    fn started(&mut self);

    /// Called when a `control` serves the fabric: at first, and each time that another one goes on with it.
    fn serving(&mut self);

    /// The arguments with which a program goes on as the keeper ([`resume`]), for the number of a descriptor.
    fn keeper(&self, image: i32) -> Vec<OsString>;
}

/// Runs `control` until its end is wanted: it exits with 0, or the first one can't bring the fabric up. Returns its
/// exit code.
///
/// # Errors
/// The system's.
pub fn run(programs: impl Programs) -> io::Result<u8> {
    KeeperProcess::new(programs, Store::default())?.run(None)
}

/// Goes on as the keeper in place of another program, which ran in this process and left its image at a descriptor.
///
/// # Errors
/// The system's, or there is no such image.
pub fn resume(programs: impl Programs, image: i32) -> io::Result<u8> {
    let Restored { store, control, stream, client, notes } = image::take(image)?;
    let keeper = KeeperProcess::new(programs, store)?;
    tracing::info!(version = env!("CARGO_PKG_VERSION"), "the fabric runs with the new program");
    if let Some(client) = client {
        tell(client, &UpgradeAnswer::Done { notes });
    }
    keeper.run(Some((control, stream)))
}

/// What becomes of the fabric when a `control` process has ended.
enum Next {
    /// Another one starts, after so many milliseconds.
    Start(u64),
    /// The fabric ends.
    End,
}

/// Whether a `control` with this status is to be replaced: a signal or a panic ended it, or it can't go on with the
/// fabric of the one before it, which may be better a moment later.
fn has_crashed(status: ExitStatus, is_first: bool) -> bool {
    match status.code() {
        Some(code) => code == i32::from(PANICKED) || code != 0 && !is_first,
        None => true,
    }
}

struct KeeperProcess<P> {
    programs: P,
    signals: SignalFd,
    store: Store,
    trial: Option<Trial>,
    quick_crashes: usize,
    is_started: bool,
    /// No `control` process of the fabric has ended yet.
    is_first: bool,
}

impl<P: Programs> KeeperProcess<P> {
    fn new(programs: P, store: Store) -> io::Result<KeeperProcess<P>> {
        let signals = [Signal::CHILD, Signal::TERM, Signal::INT, Signal::HUP].map(Signal::as_raw);
        let signals = SignalFd::new(&signals).map_err(io::Error::other)?;
        // Guests that outlive `control` have this process as their parent: it collects them.
        become_subreaper().map_err(io::Error::other)?;
        let (trial, quick_crashes, is_started, is_first) = (None, 0, false, true);
        Ok(KeeperProcess { programs, signals, store, trial, quick_crashes, is_started, is_first })
    }

    /// Supervises `control` processes, first the one that runs already, if there is one.
    fn run(mut self, running: Option<(Pid, MessageStream)>) -> io::Result<u8> {
        self.is_started = running.is_some();
        self.is_first = running.is_none();
        let mut running = running;
        loop {
            let begun = Instant::now();
            let (control, stream) = match running.take().map_or_else(|| self.start(), Ok) {
                Ok(started) => started,
                Err(error) => match self.trial.take() {
                    Some(trial) => {
                        trial.go_back(&mut self.store, format!("it can't be started: {error}"));
                        continue;
                    }
                    None => return Err(error),
                },
            };
            let status = self.supervise(control, stream);
            match self.after(status, begun) {
                Next::Start(wait) => std::thread::sleep(Duration::from_millis(wait)),
                Next::End => {
                    end_children(STOP_TIMEOUT, None);
                    let code = status.code().and_then(|code| u8::try_from(code).ok());
                    return Ok(code.unwrap_or(1));
                }
            }
        }
    }

    /// Starts a `control` process: of the program on trial, if there is one.
    fn start(&mut self) -> io::Result<(Pid, MessageStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        let binary = self.trial.as_ref().map(|trial| &trial.binary);
        let child = self.programs.control(binary, theirs.into()).spawn()?;
        if !std::mem::replace(&mut self.is_started, true) {
            self.programs.started();
        }
        Ok((Pid::from_child(&child), MessageStream::new(ours.into())))
    }

    /// What becomes of the fabric, whose `control` process has ended.
    fn after(&mut self, status: ExitStatus, begun: Instant) -> Next {
        let is_first = std::mem::replace(&mut self.is_first, false);
        if let Some(trial) = self.trial.take() {
            trial.go_back(&mut self.store, format!("its control process ended ({status})"));
            return Next::Start(0);
        }
        self.trial = Trial::begin(&mut self.store);
        if self.trial.is_some() {
            tracing::info!("starting the new program");
            return Next::Start(0);
        }
        self.quick_crashes = if begun.elapsed() > STABLE { 0 } else { self.quick_crashes + 1 };
        match RESTARTS.get(self.quick_crashes).filter(|_| has_crashed(status, is_first)) {
            Some(wait) => {
                tracing::error!(%status, wait_ms = wait, "the control process ended; starting it again");
                Next::Start(*wait)
            }
            None => Next::End,
        }
    }

    /// Serves a `control` process, and passes signals on to it, until it has ended.
    fn supervise(&mut self, control: Pid, stream: MessageStream) -> ExitStatus {
        let mut stream = Some(stream);
        let mut leaves_until = None;
        loop {
            let timeout = self.timeout(leaves_until);
            match &stream {
                Some(open) => {
                    if serve(&mut self.store, open, Some(self.signals.as_fd()), timeout).is_err() {
                        stream = None;
                    }
                }
                None => _ = ringway_host::wait_readable(&[self.signals.as_fd()], timeout),
            }
            if self.store.upgrade.is_some() && leaves_until.is_none() {
                leaves_until = Some(Instant::now() + LEAVE_TIMEOUT);
            }
            self.look_at_trial(control, stream.as_ref(), leaves_until);
            if let Some(status) = self.take_signals(control) {
                // What it has sent before its end counts.
                if let Some(open) = &stream {
                    while has_requests(open) && serve(&mut self.store, open, None, None).is_ok() {}
                }
                return status;
            }
        }
    }

    /// Nanoseconds until a `control` process must have done something.
    fn timeout(&self, leaves_until: Option<Instant>) -> Option<u64> {
        let trial = self.trial.as_ref().filter(|trial| !trial.has_failed()).map(Trial::left);
        let leaves = leaves_until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = trial.into_iter().chain(leaves).min()?;
        // One millisecond more, so that the time is over when this one is.
        Some(left.as_nanos() as u64 + 1_000_000)
    }

    /// Ends a `control` process that takes too long, and becomes the program on trial once that serves the fabric.
    fn look_at_trial(&mut self, control: Pid, stream: Option<&MessageStream>, leaves_until: Option<Instant>) {
        // It may be gone.
        let kill = || _ = kill_process(control, Signal::KILL);
        if leaves_until.is_some_and(|until| Instant::now() >= until) {
            kill();
        }
        let notes = self.store.serving.take();
        if notes.is_some() {
            self.programs.serving();
        }
        let Some(trial) = self.trial.as_mut().filter(|trial| !trial.has_failed()) else { return };
        if let (Some(notes), Some(stream)) = (notes, stream) {
            let words = |image| self.programs.keeper(image);
            let (running, client) = ((control, stream), Some(trial.client()));
            let error =
                image::become_program(trial.binary.as_fd(), words, &self.store, running, client, notes);
            trial.fail(format!("the keeper can't become it: {error}"));
            kill();
        } else if trial.left().is_zero() {
            trial.expire();
            kill();
        }
    }

    /// Passes signals on, and collects processes; returns the status of `control` if it has ended.
    fn take_signals(&self, control: Pid) -> Option<ExitStatus> {
        let mut ended = None;
        while let Some(arrived) = self.signals.next() {
            // A terminal's signals reach `control` without this process.
            if arrived.is_sent && arrived.number != Signal::CHILD.as_raw() {
                ringway_host::pass_signal(control, arrived.number);
            }
            ended = ended.or_else(|| self.store.collect(control).map(ExitStatus::from_raw));
        }
        ended
    }
}

fn has_requests(stream: &MessageStream) -> bool {
    ringway_host::wait_readable(&[stream.as_fd()], Some(0)).is_ok_and(|ready| ready.contains(&true))
}
