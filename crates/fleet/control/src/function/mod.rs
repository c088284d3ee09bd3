//! Functions: what runs Click configurations on ring ports ([`runner`]), and its messages to `control`.

mod admission;
mod ending;
pub mod graph;
pub mod handlers;
mod lines;
pub mod process;
mod resident;
pub mod runner;
pub mod spare;
pub mod trial;

use ringway_host::jail::dynamic_user;
use ringway_host::memfd;
use ringway_spec::Isolation;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

/// Messages to a function's process before it runs one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum First {
    /// Make an empty virtual machine: the order to come will need one.
    Prepare,
    /// The order.
    Start(Box<Start>),
    /// Say what the function would do with a frame, and end.
    Trial(Box<trial::Trial>),
}

/// The order to a function's process. Two descriptors come with it: the listening socket for handlers, and the
/// socket by which the process requests connections to its ports.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    /// The function's name.
    pub name: String,
    /// The configuration's text.
    pub text: String,
    /// The configuration's name in messages.
    pub title: String,
    /// Its parameters, names and values.
    pub parameters: Vec<(String, String)>,
    /// Names of its ports.
    pub ports: Vec<String>,
    /// Devices that the configuration names, and the port that each stands for.
    pub devices: Vec<(String, String)>,
    /// Path of the socket for handlers.
    pub handlers: String,
    /// Frames that it handles at once.
    pub burst: u32,
    /// Memory limit in bytes.
    pub memory: u64,
    /// The core it is pinned to.
    pub core: Option<usize>,
    /// What separates it from the rest of the fabric.
    pub isolation: Isolation,
    /// Whether it runs as a process where the host has no KVM for its virtual machine.
    pub fallback: bool,
    /// The user ID that the process switches to if it was started as root.
    pub user: u32,
    /// The snapshot from which the function resumes, as its monitor described it. The file of the snapshot's memory
    /// comes with this message as a third descriptor.
    pub snapshot: Option<String>,
    /// Whether the function owns that memory from now on, since it has moved.
    pub moved: bool,
    /// What its program finds out, names and values; none of a configuration. The image comes with this message as a
    /// third descriptor.
    pub program: Option<Vec<(String, String)>>,
}

/// Messages to a function's process that runs one.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub enum Order {
    /// Take a snapshot of its virtual machine. The file for its memory comes with it.
    Snapshot,
    /// Take a snapshot and stop the guest at it. The file for its memory comes with it.
    Freeze,
    /// Let a stopped guest run again.
    Thaw,
    /// Say again that the configuration runs, if it does: another `control` asks.
    Report,
}

/// Messages from a function's process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum FunctionMessage {
    /// The configuration is running.
    Up,
    /// The function runs as a process instead of a virtual machine, for this reason.
    Fallback(String),
    /// The configuration can't run, with the reason.
    Wrong(String),
    /// The snapshot's description, or why there is none.
    Snapshot(Result<String, String>),
}

impl Start {
    /// The first message to the process of `function`.
    pub fn of(function: &ringway_spec::Function, fabric: &str, handlers: String) -> Start {
        Start {
            name: function.name.clone(),
            text: function.configuration.text.clone(),
            title: function.title().into(),
            parameters: function.parameters.clone(),
            ports: function.ports.clone(),
            devices: function.devices.clone(),
            handlers,
            burst: function.burst,
            memory: function.memory,
            core: function.core,
            isolation: function.isolation,
            fallback: function.fallback,
            user: dynamic_user(fabric, &function.name),
            snapshot: None,
            moved: false,
            program: function.program.as_ref().map(|program| program.settings.clone()),
        }
    }
}

/// A file with the image of a function's program, if it has one.
///
/// # Errors
/// The system's.
pub fn image_of(function: &ringway_spec::Function) -> io::Result<Option<OwnedFd>> {
    let Some(program) = &function.program else { return Ok(None) };
    let bytes = &*program.image.0;
    let mut file = File::from(memfd("image", bytes.len()).map_err(io::Error::other)?);
    file.write_all(bytes)?;
    Ok(Some(file.into()))
}
