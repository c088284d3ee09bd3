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
use ringway_nic::{i82540em, i82574l};
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
}

/// Default of [`Settings::memory`].
pub const MEMORY: u64 = crate::vhost_user::MEMORY;
