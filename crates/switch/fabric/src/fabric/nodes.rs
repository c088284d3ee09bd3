//! NUMA nodes of workers, and of their ports' memory.

use super::Fabric;
use crate::wakeup::Line;
use crate::worker::Worker;
use ringway_host::HostError;
use ringway_spec as spec;
use std::sync::{Arc, Once};

/// The node of a worker: the configured one, or on a host with several that of its core.
pub fn worker_node(worker: &spec::Worker) -> Option<u16> {
    worker.node.or_else(|| ringway_host::node_of_core(worker.core?))
}

/// Runs a worker on a thread of its own: on its core, or on the cores of its node.
pub(super) fn start_thread(spec: &spec::Worker, worker: Worker) -> Result<(), HostError> {
    let (core, node) = (spec.core, worker_node(spec));
    let run = move || {
        if let Some(node) = node {
            stay(node, core.is_none());
        }
        worker.run();
    };
    ringway_host::spawn(&spec.name, core, run).map(drop)
}

/// Keeps the calling thread on a node, if the system lets it.
fn stay(node: u16, on_cores: bool) {
    static SAID: Once = Once::new();
    if let Err(error) = ringway_host::stay_on_node(node, on_cores) {
        SAID.call_once(|| tracing::warn!(node, %error, "the kernel chooses the node of ports' memory"));
    }
}

impl Fabric {
    /// The node of a new port's memory: that of the worker of its first queue.
    pub(super) fn node_of(&self, lines: &[(usize, usize, Arc<Line>)]) -> Option<u16> {
        lines.first().and_then(|(worker, ..)| worker_node(&self.workers[*worker].spec))
    }
}
