//! A guest's port: virtio-net queues that the guest's monitor describes over a vhost-user socket.
//!
//! The control side opens the socket (`open.rs`). The data path gets the connected stream (`Backend::connect`), which
//! one thread serves: it maps the guest's memory and publishes the rings, which the workers then use without a lock. A
//! ring is only ever replaced as a whole, and the former description is released after every worker's turn has ended.

mod backend;
mod config_space;
mod control;
mod device;
mod dirty_log;
mod iommu;
mod offer;
mod peer;
#[cfg(test)]
mod plants;
mod rarp;
mod rx;
#[cfg(test)]
pub(crate) mod tests;
mod tx;
mod usage;
mod vring;

pub use backend::{Backend, BackendError};
use device::Guest;
pub(crate) use device::{Mapped, SharedMemory};
pub use offer::Without;
pub use peer::{KIND, continues};

use crate::{Doorbell, Queue};
use ringway_frame::CountersRef;
use ringway_ring::Policy;
use ringway_spec::MacAddress;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Maximum number of queue pairs of a port: ring numbers have one byte in messages with descriptors, and there may be
/// a ring for control.
pub const PAIRS: u16 = 127;

/// Settings of a port of this kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Whether the port listens and the front-end connects, or the other way round.
    pub server: bool,
    /// Address offered to the guest.
    pub mac: Option<MacAddress>,
    /// MTU offered to the guest.
    pub mtu: Option<u16>,
    /// Features not to offer: names of [`Without`].
    pub without: Vec<String>,
    /// Bytes of memory that a front-end may share.
    pub memory: u64,
    /// Whether the device has a carrier: a connected cable.
    #[serde(default = "crate::carrier")]
    pub carrier: bool,
}

/// Default of [`Settings::memory`].
pub const MEMORY: u64 = 8 << 30;

impl Default for Settings {
    fn default() -> Settings {
        let without = Vec::new();
        Settings { server: true, mac: None, mtu: None, without, memory: MEMORY, carrier: true }
    }
}

/// The device offered to a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Address of its network card; chosen by the monitor if none.
    pub mac: Option<[u8; 6]>,
    /// Its MTU; chosen by the driver if none.
    pub mtu: Option<u16>,
    /// Queue pairs, at least 1 and at most [`PAIRS`].
    pub queues: u16,
    /// Features that are not offered.
    pub without: Without,
    /// How the guest is notified.
    pub policy: Policy,
    /// Bytes of memory that a front-end may share.
    pub memory: u64,
    /// Whether the device has a carrier.
    pub carrier: bool,
}

impl Default for Config {
    fn default() -> Config {
        let (without, policy) = (Without::default(), Policy::default());
        Config { mac: None, mtu: None, queues: 1, without, policy, memory: MEMORY, carrier: true }
    }
}

/// A port without a front-end: the back-end that serves the socket, and one [`Queue`] for each of `counters`, one per
/// queue pair of `config`. Doorbell `n` wakes the worker of queue `n`.
pub fn new(
    config: Config,
    doorbells: Vec<Arc<dyn Doorbell>>,
    counters: Vec<CountersRef>,
) -> (Backend, Vec<Queue>) {
    let pairs = counters.len().min(doorbells.len()).clamp(1, usize::from(PAIRS)) as u16;
    let config = Config { queues: config.queues.clamp(1, pairs), ..config };
    let first = counters.first().cloned().unwrap_or_else(CountersRef::private);
    let (guest, queues) = Guest::new(config, offer::offer(&config), doorbells, counters);
    (Backend::new(guest, first), queues)
}
