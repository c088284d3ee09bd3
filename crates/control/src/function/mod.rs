//! Functions: processes that run Click configurations on ring ports, and what is said to them.

pub mod handlers;
mod lines;
mod process;

pub use process::{Ended, Process};

use ringway_host::jail::dynamic_user;
use serde::{Deserialize, Serialize};

/// What a function's process is told first. With it come the socket it listens on, for handlers, and the one by which
/// it asks for its ports.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    /// The configuration's text.
    pub text: String,
    /// What the configuration is called.
    pub title: String,
    /// Its parameters, names and values.
    pub parameters: Vec<(String, String)>,
    /// Names of its ports.
    pub ports: Vec<String>,
    /// What the socket for handlers is called.
    pub handlers: String,
    /// Frames that it handles at once.
    pub burst: u32,
    /// Bytes of memory at most.
    pub memory: u64,
    /// The core it is pinned to.
    pub core: Option<usize>,
    /// The user it becomes, if it is root.
    pub user: u32,
}

/// What a function's process says.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Said {
    /// Its configuration runs.
    Up,
    /// Its configuration can't run; why.
    Wrong(String),
}

impl Start {
    /// What the process of a function is told.
    pub fn of(function: &ringway_spec::Function, fabric: &str, handlers: String) -> Start {
        Start {
            text: function.configuration.text.clone(),
            title: function.title().into(),
            parameters: function.parameters.clone(),
            ports: function.ports.clone(),
            handlers,
            burst: function.burst,
            memory: function.memory,
            core: function.core,
            user: dynamic_user(fabric, &function.name),
        }
    }
}
