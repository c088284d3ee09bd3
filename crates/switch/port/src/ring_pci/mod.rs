//! A guest's program: a PCI device, attached by the guest's monitor over a vfio-user socket, whose memory is a shared
//! ring (`ringway_nic::shared_ring` is the device, `ring` has the queues).
//!
//! `control` creates the memory for each client. The session thread serves the socket and the registers ([`device`]);
//! workers use the ring as that of a program of this host. A program of the guest resets the device, which makes the
//! ring anew, and maps it. One that violates the ring's rules loses it until the next reset; its guest keeps the
//! device.

mod device;
mod peer;
#[cfg(test)]
mod tests;
mod tx;

pub use peer::KIND;

use crate::ring;
use ringway_host::memfd;
use ringway_ring::{Geometry, LayoutError};
use serde::{Deserialize, Serialize};
use std::os::fd::OwnedFd;

/// Settings of a port of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Slots of each direction, a power of two.
    pub slots: u32,
    /// Bytes of a slot.
    pub slot_size: u32,
    /// Whether a sleeping worker looks at the ring every [`Settings::poll`], instead of asking for the doorbell.
    #[serde(default)]
    pub mapped: bool,
    /// The interval of the worker's looks, in nanoseconds.
    #[serde(default = "poll")]
    pub poll: u64,
}

/// Default of [`Settings::poll`], in nanoseconds.
pub const POLL: u64 = 100_000;

fn poll() -> u64 {
    POLL
}

/// Why there is no memory for a client.
#[derive(Debug, thiserror::Error)]
pub enum MemoryError {
    /// No ring has these sizes.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The system refused.
    #[error("no memory for the ring: {0}")]
    Host(#[from] ringway_host::HostError),
}

impl Settings {
    /// Sizes of the ring.
    pub fn geometry(&self) -> Geometry {
        let Settings { slots, slot_size, .. } = *self;
        ring::Settings { slots, slot_size }.geometry()
    }

    /// New memory for a client's ring. A peer is attached with its socket and such memory.
    ///
    /// # Errors
    /// The sizes are not those of a ring, or the system refuses it.
    pub fn memory(&self) -> Result<OwnedFd, MemoryError> {
        Ok(memfd("ringway-ring", self.geometry().header()?.bytes as usize)?)
    }
}
