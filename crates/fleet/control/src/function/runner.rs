//! What runs a function: one [`Runner`] for each isolation. [`launch`] is the only place that chooses.

use super::process::Process;
use super::resident::Resident;
pub use super::resident::report;
use super::spare::Spare;
use super::{FunctionMessage, Start};
use crate::engine::Inbox;
use crate::keeper::Keeper;
use ringway_spec::{Function, Isolation, printable, printable_lines};
use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

/// A started function. Dropping it ends the function at once.
pub trait Runner: Debug + Send {
    /// ID of its process; 0 if it has none of its own.
    fn pid(&self) -> u32;

    /// Asks the function to end; a suspended one is resumed for that.
    fn ask_to_end(&self);

    /// Stops the function, which keeps its state.
    fn suspend(&self);

    /// Lets a suspended function go on.
    fn resume(&self);

    /// Ends the function at once; that is reported as an end by itself.
    fn kill(&self);

    /// Takes a snapshot of a function in a virtual machine; the memory goes to the file. A message reports the result.
    /// With `freeze` the function is then stopped until it is resumed.
    fn snapshot(&self, _file: OwnedFd, _freeze: bool) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// What happened to a started function.
#[derive(Debug)]
pub enum What {
    /// The function sent a message.
    Message(FunctionMessage),
    /// The function ended.
    Ended(Ended),
}

impl What {
    /// With texts that are safe to show. Attack: a function, a program or a guest whose reasons and lines act on the
    /// operator's terminal, or are false lines of the log.
    pub fn printable(self) -> What {
        let lines = |text: String| printable_lines(&text).into_owned();
        let line = |text: String| printable(&text).into_owned();
        match self {
            What::Message(FunctionMessage::Wrong(why)) => What::Message(FunctionMessage::Wrong(lines(why))),
            What::Message(FunctionMessage::Fallback(why)) => {
                What::Message(FunctionMessage::Fallback(line(why)))
            }
            What::Message(FunctionMessage::Snapshot(Err(why))) => {
                What::Message(FunctionMessage::Snapshot(Err(line(why))))
            }
            What::Ended(Ended { status, last }) => {
                What::Ended(Ended { status: line(status), last: line(last) })
            }
            What::Message(FunctionMessage::Up | FunctionMessage::Snapshot(Ok(_))) => self,
        }
    }
}

/// How a function ended.
#[derive(Clone, Debug)]
pub struct Ended {
    /// Its exit status, in words.
    pub status: String,
    /// The last lines of its output.
    pub last: String,
}

/// Reports what happens to a function; must not block.
pub type Tell = Arc<dyn Fn(What) + Send + Sync>;

/// What a function is started with.
pub struct Launch<'a> {
    /// Its name.
    pub name: &'a str,
    /// The function.
    pub function: &'a Function,
    /// The number of this start.
    pub number: u64,
    /// The first message to it.
    pub start: Start,
    /// Arguments that make this program a function's process.
    pub arguments: &'a [OsString],
    /// A process that waits for it.
    pub spare: Option<Spare>,
    /// Listening socket for its handlers.
    pub listener: &'a UnixListener,
    /// The memory of the snapshot from which the function resumes.
    pub memory: Option<&'a OwnedFd>,
    /// Socket paths of its ports, in order.
    pub port_sockets: Vec<PathBuf>,
    /// Is called with everything that happens to it.
    pub tell: Tell,
    /// Takes requests to `data`.
    pub inbox: Inbox,
    /// Lets its process outlive this one.
    pub keeper: &'a Keeper,
}

/// Starts a function.
///
/// # Errors
/// The system's.
pub fn launch(launch: Launch<'_>) -> io::Result<Box<dyn Runner>> {
    match launch.function.isolation {
        // A VM's monitor is such a process.
        Isolation::Process | Isolation::Vm => Ok(Box::new(Process::start(launch)?)),
        Isolation::Worker => Ok(Box::new(Resident::start(launch)?)),
    }
}
