//! A program's port: a shared ring in a sealed memory file (the `ring` crate has its layout).
//!
//! `control` listens on the port's UNIX socket, makes the memory and two eventfds for each program that connects, and
//! hands them to it and to the data path ([`open`]). The data path never sees the socket.

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

/// What a program's port needs.
pub struct Config {
    /// Where it counts.
    pub counters: CountersRef,
    /// How its worker is woken.
    pub doorbell: Arc<dyn Doorbell>,
    /// How programs are notified of what they receive.
    pub policy: Policy,
    /// Is told when the program breaks the ring's rules, on the worker's thread: it must neither block nor fail. The
    /// port serves no longer then, until it is detached and attached again.
    pub broken: Arc<dyn Fn(Fault) + Send + Sync>,
}
