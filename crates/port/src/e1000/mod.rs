//! A guest's port: an emulated network card that the guest's monitor attaches over a vfio-user socket.
//!
//! The session thread owns the model's registers ([`device`]) and serves the socket ([`backend`]); workers own the
//! engines of the rings. Both share the model's atomics, so a register write takes effect without a lock. The client's
//! memory and its interrupts are a [`card::Card`], published by pointer and replaced as a whole; a stopped ring and
//! unmapped memory are no longer used when every worker's turn in progress has ended.

mod backend;
mod card;
mod device;
mod peer;
mod rx;
#[cfg(test)]
mod tests;
mod tx;

pub use peer::KIND;

use ringway_nic::e1000::Model;
use ringway_nic::{self as nic, Doorbells, i82540em, i82574l};
use ringway_spec::MacAddress;
use serde::{Deserialize, Serialize};

/// The models that a port can have.
pub const MODELS: &[&Model] = &[&i82540em::MODEL, &i82574l::MODEL];

/// Settings of a port of this kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Name of its model, one of [`MODELS`].
    pub model: String,
    /// The card's address, which it must have.
    pub mac: Option<MacAddress>,
    /// Largest IP packet that the guest gets, if it is limited.
    pub mtu: Option<u16>,
    /// Bytes of memory that a client may share.
    pub memory: u64,
    /// What makes it fast.
    #[serde(default)]
    pub techniques: Techniques,
}

/// The techniques of a card, each with its own switch. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Techniques {
    /// The window with at most one interrupt for each ring, besides the chip's own; 0: none.
    pub moderate: u64,
    /// The chip's own interrupt delays.
    pub timers: bool,
    /// Interrupts of a turn are combined, and doorbells wake no worker that is about to look.
    pub combine: bool,
    /// One interrupt a burst instead of one a frame.
    pub batch: bool,
    /// Whether the registers of the rings are mapped.
    pub mapped: bool,
    /// The interval at which a sleeping worker looks at mapped doorbells.
    pub poll: u64,
    /// Whether filter registers are mapped, too.
    pub in_place: bool,
    /// Whether the shared block (CSB) is offered.
    pub csb: bool,
    /// The translation used last is kept from burst to burst.
    pub cached: bool,
}

impl Default for Techniques {
    fn default() -> Techniques {
        let nic::Techniques { moderate, timers, batch, poll, in_place, csb, cached, .. } =
            nic::Techniques::default();
        Techniques { moderate, timers, combine: false, batch, mapped: false, poll, in_place, csb, cached }
    }
}

/// The longest time for which [`Techniques::combine`] holds an interrupt back.
const COMBINE: u64 = 20_000;

impl Techniques {
    /// As the model has them.
    fn of(self) -> nic::Techniques {
        let Techniques { moderate, timers, combine, batch, mapped, poll, in_place, csb, cached } = self;
        let doorbells = if mapped { Doorbells::Mapped } else { Doorbells::Trapped };
        let combine = if combine { COMBINE } else { 0 };
        nic::Techniques { moderate, timers, combine, batch, doorbells, poll, in_place, csb, cached }
    }
}

/// Bytes of the memory for registers that clients map: a peer is attached with its socket and such a file.
pub const PAGES: usize = (nic::e1000::PAGES.0 + nic::e1000::PAGES.1) as usize;

/// Default of [`Settings::memory`].
pub const MEMORY: u64 = crate::vhost_user::MEMORY;
