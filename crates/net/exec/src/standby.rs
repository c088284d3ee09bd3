//! The process that becomes the agent if the one of a program is killed.
//!
//! It is started with the program's, waits, and has the trapped calls too, so that they wait for it and do not fail.
//! When the first agent's process ends before its program, it starts another one like itself, and serves.
//! Connections of the first agent are reset; listening sockets, and calls that waited on them, go on
//! (`agent/journal.rs`).

use crate::agent::{Journal, has_no_callers};
use crate::emulated::Emulated;
use crate::run::{ENDING, ExecError, Former, Options, TAKEN, host, raise_descriptors, serve, wait};
use crate::user_network::{UserNetwork, UserNetworkConfig};
use ringway_host::{HostError, Inside, SignalFd, Trap, receive_with, send_with, start_child};
use ringway_link::Profile;
use ringway_sockets::{Device, DeviceError, Host, RingDevice, TapDevice, TapSettings};
use rustix::io::Errno;
use rustix::process::{Signal, pidfd_send_signal};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

/// Descriptors that a standby gets: trapped calls, a socket and a folder of the program's namespaces, the journal, the
/// program.
const DESCRIPTORS: usize = 5;
/// What the agent's process says at its program's end.
const END: &[u8] = b"end";
/// How long to wait between two attempts to have the network; the port may still be the former agent's.
const RETRY: Duration = Duration::from_millis(50);

/// An emulated link, and the seed of its random decisions.
pub type Link = Box<(Profile, u64)>;

/// What a program's network is attached to.
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
            Attachment::Interface { tap, link } => {
                Ok((host_over(options, TapDevice::open(tap)?, link.as_deref())?, None))
            }
            Attachment::User { config, link } => {
                let (network, device) = UserNetwork::start((**config).clone())?;
                Ok((host_over(options, device, link.as_deref())?, Some(network)))
            }
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

/// What an agent has of its program's processes.
#[derive(Clone, Copy, Debug)]
pub struct Parts<'a> {
    pub trap: &'a Trap,
    pub inside: &'a Inside,
    pub journal: &'a OwnedFd,
    /// The program's pidfd.
    pub program: &'a OwnedFd,
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
        let Parts { trap, inside, journal, program } = parts;
        let descriptors =
            [trap.as_fd(), inside.control.as_fd(), inside.folder.as_fd(), journal.as_fd(), program.as_fd()];
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
    let (_, descriptors) = receive_with(socket, &mut message, DESCRIPTORS)?;
    let Ok([trap, control, folder, journal, program]) = <[OwnedFd; DESCRIPTORS]>::try_from(descriptors)
    else {
        return Ok(());
    };
    let (trap, inside) = (Trap::from(trap), Inside { control, folder });
    let (len, _) = receive_with(socket, &mut message, 0)?;
    if len > 0 || has_ended(&trap) {
        return Ok(());
    }
    // This process has one thread still.
    let next = Standby::start(options, attachment)?;
    next.give(Parts { trap: &trap, inside: &inside, journal: &journal, program: &program })?;
    raise_descriptors();
    let network = loop {
        match attachment.host(options) {
            Ok(network) => break network,
            Err(_) if has_ended(&trap) => return Ok(()),
            Err(_) => wait(&[signals.as_fd()], Some(RETRY))?,
        }
        if pass(&signals, &program) {
            return Ok(());
        }
    };
    let (host, user_network) = network;
    // The program may have closed standard error.
    let _ = writeln!(
        std::io::stderr(),
        "ringway: the agent was killed; another one serves new connections, and listening sockets"
    );
    let watched = Trap::from(trap.as_fd().try_clone_to_owned().map_err(|_| Errno::MFILE)?);
    let former = Former { journal: Journal::open(&journal)?, is_taken_over: true };
    let serving = serve(options, (trap, inside), host, None, former)?;
    while !has_ended(&watched) && !pass(&signals, &program) {
        wait(&[watched.as_fd(), signals.as_fd()], Some(Duration::from_secs(1)))?;
    }
    serving.finish(&signals)?;
    user_network.into_iter().for_each(UserNetwork::finish);
    drop(next);
    Ok(())
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
