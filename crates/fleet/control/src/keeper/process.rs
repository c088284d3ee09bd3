//! The keeper as a process: the parent of `control`, which it restarts after a crash.

use super::{client::serve, store::Store};
use ringway_fabric::MessageStream;
use ringway_host::{SignalFd, become_subreaper, end_children};
use rustix::process::{Pid, Signal};
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

/// Runs `control`, as started by `command` with the socket to this process as its standard input, until its end is
/// wanted: it exits with 0, or the first one can't bring the fabric up. `started` is called once, when the first one
/// was started. Returns its exit code.
///
/// # Errors
/// The system's.
pub fn run(mut command: impl FnMut(OwnedFd) -> Command, started: impl FnOnce()) -> io::Result<u8> {
    let signals = [Signal::CHILD, Signal::TERM, Signal::INT, Signal::HUP].map(Signal::as_raw);
    let signals = SignalFd::new(&signals).map_err(io::Error::other)?;
    // Guests that outlive `control` have this process as their parent: it collects them.
    become_subreaper().map_err(io::Error::other)?;
    let (mut store, mut started) = (Store::default(), Some(started));
    let (mut quick_crashes, mut is_first) = (0, true);
    loop {
        let (ours, theirs) = UnixStream::pair()?;
        let begun = Instant::now();
        let child = command(theirs.into()).spawn()?;
        if let Some(started) = started.take() {
            started();
        }
        let status =
            supervise(&mut store, MessageStream::new(ours.into()), &signals, Pid::from_child(&child));
        quick_crashes = if begun.elapsed() > STABLE { 0 } else { quick_crashes + 1 };
        let is_first = std::mem::replace(&mut is_first, false);
        let again = RESTARTS.get(quick_crashes).filter(|_| has_crashed(status, is_first));
        let Some(wait) = again else {
            end_children(STOP_TIMEOUT, None);
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(code.unwrap_or(1));
        };
        tracing::error!(%status, wait_ms = wait, "the control process ended; starting it again");
        std::thread::sleep(Duration::from_millis(*wait));
    }
}

/// Whether a `control` with this status is to be replaced: a signal or a panic ended it, or it can't go on with the
/// fabric of the one before it, which may be better a moment later.
fn has_crashed(status: ExitStatus, is_first: bool) -> bool {
    match status.code() {
        Some(code) => code == i32::from(PANICKED) || code != 0 && !is_first,
        None => true,
    }
}

/// Serves a `control` process, and passes signals on to it, until it has ended.
fn supervise(store: &mut Store, stream: MessageStream, signals: &SignalFd, control: Pid) -> ExitStatus {
    let mut stream = Some(stream);
    loop {
        match &stream {
            Some(open) => {
                if serve(store, open, Some(signals.as_fd())).is_err() {
                    stream = None;
                }
            }
            None => _ = ringway_host::wait_readable(&[signals.as_fd()], None),
        }
        let mut ended = None;
        while let Some(arrived) = signals.next() {
            // A terminal's signals reach `control` without this process.
            if arrived.is_sent && arrived.number != Signal::CHILD.as_raw() {
                ringway_host::pass_signal(control, arrived.number);
            }
            ended = ended.or_else(|| store.collect(control).map(ExitStatus::from_raw));
        }
        if let Some(status) = ended {
            // What it has sent before its end counts.
            if let Some(open) = &stream {
                while has_requests(open) && serve(store, open, None).is_ok() {}
            }
            return status;
        }
    }
}

fn has_requests(stream: &MessageStream) -> bool {
    ringway_host::wait_readable(&[stream.as_fd()], Some(0)).is_ok_and(|ready| ready.contains(&true))
}
