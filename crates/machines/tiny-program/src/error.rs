//! Errors of the library.

use alloc::string::{String, ToString};
use core::fmt;
use ringway_netstack::SocketError;

/// Why something failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A call on a socket failed.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The peer ended the stream before all bytes were there.
    #[error("the stream ended early")]
    Ended,
    /// The machine has no such port.
    #[error("the program has no port \"{0}\"; name it in the function's `ports`")]
    NoPort(String),
    /// A network or another part of the program has the port.
    #[error("port {0} is in use by the program already")]
    PortInUse(String),
    /// The frame is longer than the port can carry.
    #[error("a frame of {0} bytes is too long for the port")]
    FrameTooLong(usize),
    /// There are as many tasks as the memory permits.
    #[error("there are {0} tasks, which is the most for this memory; set a larger `memory`")]
    TooManyTasks(usize),
    /// A setting is missing or wrong.
    #[error("{name}: {why}")]
    Setting {
        /// Its name.
        name: String,
        /// What is wrong.
        why: String,
    },
    /// The program's own error.
    #[error("{0}")]
    Other(String),
}

impl Error {
    /// An error of the program itself.
    pub fn other(what: impl fmt::Display) -> Error {
        Error::Other(what.to_string())
    }

    /// A setting is wrong.
    pub fn setting(name: &str, why: impl fmt::Display) -> Error {
        Error::Setting { name: name.into(), why: why.to_string() }
    }
}
