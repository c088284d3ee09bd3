//! The process that becomes the agent if the one of a program is killed.
//!
//! It is started with the program's, waits, and has the trapped calls too, so that they wait for it and do not fail.
//! When the first agent's process ends before its program, it starts another one like itself, and serves.
//! Connections of the first agent are reset; listening sockets, and calls that waited on them, go on
//! (`agent/journal.rs`). Without a network, or after the third end within a minute, calls fail (`agent/interim.rs`).

use crate::agent::{Interim, Journal, has_no_callers};
use crate::emulated::Emulated;
use crate::run::{ENDING, ExecError, Notes, Options, TAKEN, host, raise_descriptors, serve, wait};
use crate::user_network::{Limits, UserNetwork, UserNetworkConfig};
use ringway_host::{HostError, Inside, SignalFd, Trap, receive_with, send_with, start_child};
use ringway_link::Profile;
use ringway_sockets::{Device, DeviceError, Host, RingDevice, TapDevice, TapSettings};
use rustix::io::Errno;
use rustix::process::{Resource, Signal, getrlimit, pidfd_send_signal};
use rustix::time::{ClockId, clock_gettime};
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Descriptors that a standby gets: trapped calls, a socket and a folder of the program's namespaces, the journal, the
/// program; and one more if the network has a number.
const DESCRIPTORS: usize = 5;
/// What the agent's process says at its program's end.
const END: &[u8] = b"end";
/// How long to wait between two attempts to have the network; the port may still be the former agent's.
const RETRY: Duration = Duration::from_millis(50);
/// How long calls wait for the network before they fail, and how long to wait between two attempts then.
const NETWORK_TIMEOUT: Duration = Duration::from_secs(5);
const LATER_RETRY: Duration = Duration::from_secs(1);

/// An emulated link, and the seed of its random decisions.
pub type Link = Box<(Profile, u64)>;

/// What a program's network is attached to: the first agent's process attaches it there by the same settings, and any
/// next one by these.
#[derive(Clone, Debug)]
pub enum Attachment {
    /// A ring port or a pipe, with the path of its socket.
    Ring(PathBuf),
    /// An interface of the host.
    Interface {
        /// The interface.
        tap: TapSettings,
        /// The link between.
        link: Option<Link>,
        /// Holds the number of the network while a process has it, so that no other program gets the number. Only the
        /// process that has made it has the descriptor; a next agent gets another one.
        number: Arc<OwnedFd>,
    },
    /// Sockets of the host.
    User {
        /// The network.
        config: Box<UserNetworkConfig>,
        /// The link between.
        link: Option<Link>,
    },
}

impl Attachment {
    /// The program's stack there, and the network if it is one of this process.
    fn host(&self, options: &Options) -> Result<(Host, Option<UserNetwork>), DeviceError> {
        match self {
            Attachment::Ring(path) => Ok((host(options, RingDevice::connect(path)?)?, None)),
            Attachment::Interface { tap, link, .. } => {
                Ok((host_over(options, TapDevice::open(tap)?, link.as_deref())?, None))
            }
            Attachment::User { config, link } => {
                let (network, device) = UserNetwork::start((**config).clone())?;
                Ok((host_over(options, device, link.as_deref())?, Some(network)))
            }
        }
    }
}

impl Attachment {
    /// The descriptors that the network needs in the agent's process.
    pub(crate) fn descriptors(&self) -> usize {
        match self {
            Attachment::Ring(_) | Attachment::Interface { .. } => 0,
            Attachment::User { .. } => Limits::of(getrlimit(Resource::Nofile).current).descriptors(),
        }
    }

    /// What holds the number of the network, in the process that has made it.
    pub(crate) fn number(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Attachment::Interface { number, .. } => Some(number.as_fd()),
            Attachment::Ring(_) | Attachment::User { .. } => None,
        }
    }
}

/// The stack on a device behind a link, if there is one.
fn host_over(
    options: &Options,
    device: impl Device + 'static,
    link: Option<&(Profile, u64)>,
) -> Result<Host, DeviceError> {
    match link {
        None => host(options, device),
        Some((profile, seed)) => {
            // It was possible before.
            host(options, Emulated::new(device, profile, *seed).map_err(|_| DeviceError::Closed)?)
        }
    }
}

/// The process, as the agent's has it.
#[derive(Debug)]
pub struct Standby(OwnedFd);

/// What an agent's process has of its program, and gives the process that waits behind it.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    pub trap: &'a Trap,
    pub inside: &'a Inside,
    pub journal: &'a OwnedFd,
    /// The program's pidfd.
    pub program: &'a OwnedFd,
    /// What holds the number of the network.
    pub number: Option<BorrowedFd<'a>>,
}

impl Standby {
    /// Starts the process. To be called while this process has one thread.
    ///
    /// # Errors
    /// There can't be one more process.
    pub fn start(options: &Options, attachment: &Attachment) -> Result<Standby, HostError> {
        let (_, socket) = start_child(|socket| i32::from(run(&socket, options, attachment).is_err()))?;
        Ok(Standby(socket))
    }

    /// Gives it what it needs.
    ///
    /// # Errors
    /// It has ended.
    pub fn give(&self, parts: Parts<'_>) -> Result<(), HostError> {
        let Parts { trap, inside, journal, program, number } = parts;
        let (control, folder) = (inside.control.as_fd(), inside.folder.as_fd());
        let mut descriptors = vec![trap.as_fd(), control, folder, journal.as_fd(), program.as_fd()];
        descriptors.extend(number);
        send_with(&self.0, b"parts", &descriptors).map(drop)
    }
}

/// The program has ended, or was never started.
impl Drop for Standby {
    fn drop(&mut self) {
        // It may have been killed.
        let _ = send_with(&self.0, END, &[]);
    }
}

/// What the process does.
fn run(socket: &OwnedFd, options: &Options, attachment: &Attachment) -> Result<(), ExecError> {
    // Those of a terminal are the program's, and this process ends with it.
    let signals = SignalFd::new(&TAKEN)?;
    let mut message = [0; 16];
    let (_, mut descriptors) = receive_with(socket, &mut message, DESCRIPTORS + 1)?;
    let number = if descriptors.len() > DESCRIPTORS { descriptors.pop() } else { None };
    let Ok([trap, control, folder, file, program]) = <[OwnedFd; DESCRIPTORS]>::try_from(descriptors) else {
        return Ok(());
    };
    let (trap, inside) = (Trap::from(trap), Inside { control, folder });
    let (len, _) = receive_with(socket, &mut message, 0)?;
    if len > 0 || has_ended(&trap) {
        return Ok(());
    }
    let journal = Journal::open(&file)?;
    let mut waiting =
        Waiting { interim: Interim::new(trap.as_fd(), journal.clone())?, trap: &trap, signals, program };
    if !journal.take_over(now()) {
        say("the agent was killed three times within a minute; no other one serves, and connections fail");
        waiting.interim.fail();
        while !waiting.is_over(Duration::MAX)? {}
        return Ok(());
    }
    // This process has one thread still.
    let next = Standby::start(options, attachment)?;
    let (program, number) = (&waiting.program, number.as_ref().map(AsFd::as_fd));
    next.give(Parts { trap: &trap, inside: &inside, journal: &file, program, number })?;
    raise_descriptors();
    let Some((host, user_network)) = waiting.attach(options, attachment)? else { return Ok(()) };
    let Waiting { signals, program, .. } = waiting;
    let watched = Trap::from(trap.as_fd().try_clone_to_owned().map_err(|_| Errno::MFILE)?);
    let notes = Notes { journal, is_taken_over: true, has_next: true };
    let serving = serve(options, (trap, inside), host, None, notes)?;
    say("the agent was killed; another one serves new connections, and listening sockets");
    while !has_ended(&watched) && !pass(&signals, &program) {
        wait(&[watched.as_fd(), signals.as_fd()], Some(Duration::from_secs(1)))?;
    }
    drop(next);
    serving.finish(&signals)?;
    user_network.map_or(Ok(()), UserNetwork::finish)
}

/// The wait for a network, in which calls are answered.
struct Waiting<'a> {
    interim: Interim,
    trap: &'a Trap,
    signals: SignalFd,
    program: OwnedFd,
}

impl Waiting<'_> {
    /// The program's stack in its network; none: the program has ended.
    fn attach(
        &mut self,
        options: &Options,
        attachment: &Attachment,
    ) -> Result<Option<(Host, Option<UserNetwork>)>, ExecError> {
        let (begin, mut retry) = (Instant::now(), RETRY);
        loop {
            let error = match attachment.host(options) {
                Ok(network) => return Ok(Some(network)),
                Err(error) => error,
            };
            if retry == RETRY && begin.elapsed() >= NETWORK_TIMEOUT {
                retry = LATER_RETRY;
                let what = "the agent was killed; connections fail until another one has a network";
                say(&format!("{what}: {error}"));
                self.interim.fail();
            }
            if self.is_over(retry)? {
                return Ok(None);
            }
        }
    }

    /// Answers calls for a time; whether the program has ended.
    fn is_over(&mut self, time: Duration) -> Result<bool, ExecError> {
        let begin = Instant::now();
        while begin.elapsed() < time {
            let left = time.saturating_sub(begin.elapsed());
            wait(&[self.trap.as_fd(), self.signals.as_fd()], Some(left).filter(|left| *left < LATER_RETRY))?;
            if has_ended(self.trap) || pass(&self.signals, &self.program) {
                return Ok(true);
            }
            self.interim.serve();
        }
        Ok(false)
    }
}

/// Seconds since the machine started, and 1 more.
fn now() -> u64 {
    u64::try_from(clock_gettime(ClockId::Boottime).tv_sec).unwrap_or(0) + 1
}

/// Tells the user.
fn say(what: &str) {
    // The program may have closed standard error.
    let _ = writeln!(std::io::stderr(), "ringway: {what}");
}

/// Whether the last process of the program has ended.
fn has_ended(trap: &Trap) -> bool {
    has_no_callers(trap.as_fd())
}

/// Passes signals that other processes sent on to the program; whether one of them asks this process to end, since the
/// program is gone.
fn pass(signals: &SignalFd, program: &OwnedFd) -> bool {
    while let Some(signal) = signals.next() {
        let number = Signal::from_named_raw(signal.number).filter(|_| signal.is_sent);
        let passed = number.map(|number| pidfd_send_signal(program, number));
        if passed.is_some_and(|passed| passed.is_err()) && ENDING.contains(&signal.number) {
            return true;
        }
    }
    false
}
