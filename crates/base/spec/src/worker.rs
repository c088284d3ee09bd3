//! Workers: threads of the data path.

use serde::{Deserialize, Serialize};

/// A worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Worker {
    /// The name, also of the thread.
    pub name: String,
    /// The core that the worker is pinned to.
    pub core: Option<usize>,
    /// The NUMA node that the worker and its ports' memory are on.
    #[serde(default)]
    pub node: Option<u16>,
    /// When the worker sleeps.
    pub poll: Poll,
    /// Nanoseconds that a queue stays polled after its last frame.
    pub spin: u64,
    /// Nanoseconds that frames of the worker's ports wait for a full destination, unless a port sets it.
    pub hold: u64,
}

/// When a worker sleeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Poll {
    /// Polls active queues, arms idle ones, sleeps when all are idle.
    #[default]
    Adaptive,
    /// Never arms a queue, never sleeps.
    Always,
    /// Arms a queue as soon as it is empty.
    Never,
}
