//! Starts a program with a network of its own: in new network and mount namespaces, and, without root, in a user
//! namespace.
//!
//! The child is a copy of this process that prepares itself: call [`launch`] while the process has one thread.

mod filter;
pub mod numbers;
mod preload;
mod prepare;

use crate::error::{HostError, Named};
use crate::process_setup::{Forked, fork};
use crate::seccomp_notify::{Trap, duplicate};
use crate::{TapAddresses, TapSettings, receive_with};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// Longest message of the child.
const MESSAGE: usize = 512;
const TALK: &str = "talking to the started process";

/// A program, and what is around it.
#[derive(Clone, Debug)]
pub struct Launch {
    /// The program and its arguments. It is searched for as by execvp.
    pub program: Vec<OsString>,
    /// Whether the user is root in the program's user namespace; without, it stays who it is.
    pub map_root: bool,
    /// The interface of its network namespace. Its own namespace's name is not used.
    pub interface: TapSettings,
    /// Further addresses and default routes of the interface.
    pub addresses: TapAddresses,
    /// Files that the program sees with other contents; one that does not exist is left out.
    pub files: Vec<(PathBuf, Vec<u8>)>,
    /// Sockets of services that would answer from the host's network. The program finds an empty file there.
    pub hidden: Vec<PathBuf>,
    /// Settings of the kernel's network in the namespace: names as of sysctl, and values.
    pub sysctls: Vec<(String, String)>,
    /// An empty folder of the caller, used to prepare the files, and removed then.
    pub folder: PathBuf,
    /// A library that each program with the C library loads before its others (`/etc/ld.so.preload`, ld.so(8)).
    pub preload: Option<&'static [u8]>,
    /// Whether system calls on internet sockets are trapped.
    pub trap: bool,
}

/// A process that prepares itself to become the program.
#[derive(Debug)]
pub struct Launched {
    /// The process.
    pub process: Pid,
    /// Readable when it has ended.
    pub end: OwnedFd,
    traps: bool,
    talk: OwnedFd,
}

/// What is in a program's namespaces only.
#[derive(Debug)]
pub struct Inside {
    /// A socket of its network namespace, to ask about interfaces.
    pub control: OwnedFd,
    /// A folder without a name, for sockets that nobody else reaches.
    pub folder: OwnedFd,
}

/// Why a program could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// A call of this process failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The preparation failed.
    #[error("{0}")]
    Prepare(String),
    /// The program can't be executed.
    #[error("{program}: {error}")]
    Program {
        /// Its name.
        program: String,
        /// The kernel's reason.
        error: Errno,
    },
}

/// Starts a process that prepares itself for a program, while the caller goes on. Then it waits for
/// [`Launched::start`].
///
/// # Errors
/// There can't be one more process.
pub fn launch(launch: &Launch) -> Result<Launched, LaunchError> {
    let (process, talk) = match fork()? {
        Forked::Parent(process, ours) => (process, ours),
        Forked::Child(theirs) => prepare::become_program(launch, &theirs),
    };
    let end = pidfd_open(process, PidfdFlags::empty()).named("pidfd_open")?;
    Ok(Launched { process, end, traps: launch.trap, talk })
}

fn refusal(message: &[u8]) -> LaunchError {
    match message {
        [] => LaunchError::Prepare("the started process ended at once".into()),
        text => LaunchError::Prepare(String::from_utf8_lossy(text).into_owned()),
    }
}

impl Launched {
    /// Waits until the process is prepared. Returns its interface's queue, and its trapped calls with what else the one
    /// who answers them needs.
    ///
    /// # Errors
    /// The kernel does not permit namespaces, or the interface is impossible.
    pub fn prepared(&self) -> Result<(OwnedFd, Option<(Trap, Inside)>), LaunchError> {
        self.receive().inspect_err(|_| {
            // The child reported an error, or waits for an answer that does not come.
            let _ = rustix::process::kill_process(self.process, rustix::process::Signal::KILL);
            let _ = rustix::process::waitpid(Some(self.process), rustix::process::WaitOptions::empty());
        })
    }

    /// What the child sends: its interface and what else is inside, then the number of the descriptor of its trapped
    /// calls.
    fn receive(&self) -> Result<(OwnedFd, Option<(Trap, Inside)>), LaunchError> {
        let mut message = [0; MESSAGE];
        let (len, descriptors) = receive_with(&self.talk, &mut message, 3)?;
        let Ok([interface, control, folder]) = <[OwnedFd; 3]>::try_from(descriptors) else {
            return Err(refusal(&message[..len]));
        };
        if !self.traps {
            return Ok((interface, None));
        }
        let (len, _) = receive_with(&self.talk, &mut message, 0)?;
        let Ok(number) = <[u8; 4]>::try_from(&message[..len]) else { return Err(refusal(&message[..len])) };
        let listener = duplicate(&self.end, i32::from_ne_bytes(number))
            .named("taking the trapped calls (pidfd_getfd)")?;
        Ok((interface, Some((listener.into(), Inside { control, folder }))))
    }

    /// Lets the process become the program; returns when it is.
    ///
    /// # Errors
    /// [`LaunchError::Program`]: there is no such program, or it can't be executed.
    pub fn start(&self, program: &OsString) -> Result<(), LaunchError> {
        crate::send_with(&self.talk, b"go", &[])?;
        let mut message = [0; MESSAGE];
        let (len, _) = receive_with(&self.talk, &mut message, 0)?;
        match <[u8; 4]>::try_from(&message[..len]) {
            // The program has no such descriptor.
            _ if len == 0 => Ok(()),
            Ok(number) => Err(LaunchError::Program {
                program: program.to_string_lossy().into_owned(),
                error: Errno::from_raw_os_error(i32::from_ne_bytes(number)),
            }),
            Err(_) => Err(HostError::Call { call: TALK, error: Errno::PROTO }.into()),
        }
    }
}
