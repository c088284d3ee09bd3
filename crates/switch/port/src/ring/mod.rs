//! A program's port: a shared ring in a sealed memory file (the `ring` crate has its layout).
//!
//! `control` listens on the port's UNIX socket, creates the memory and two eventfds for each program that connects,
//! and passes them to it and to the data path ([`open`]). The data path never gets the socket. Instead of a program, a
//! function of this process may have the port ([`crate::frame_queue`]).

mod inside;
pub mod open;
mod peer;
mod rx;
mod session;
#[cfg(test)]
mod tests;
mod tx;

pub use peer::KIND;
pub use rx::RingRx;
pub use session::{Fault, RingPort};
pub use tx::RingTx;

use crate::Doorbell;
use ringway_frame::CountersRef;
use ringway_ring::{Geometry, Policy};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Settings of a port of this kind, and of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Slots of each direction, a power of two.
    pub slots: u32,
    /// Bytes of a slot.
    pub slot_size: u32,
}

impl Settings {
    /// Sizes for programs that leave them open.
    pub fn geometry(&self) -> Geometry {
        Geometry { slots: [self.slots; 2], slot_size: self.slot_size, ..Geometry::default() }
    }
}

/// Configuration of a program's port.
pub struct Config {
    /// Its counters.
    pub counters: CountersRef,
    /// Wakes its worker.
    pub doorbell: Arc<dyn Doorbell>,
    /// How programs are notified of received frames.
    pub policy: Policy,
    /// Called on the worker's thread when the program violates the ring's rules; it must neither block nor fail. The
    /// port is then no longer served until it is detached and attached again.
    pub broken: Arc<dyn Fn(Fault) + Send + Sync>,
}
