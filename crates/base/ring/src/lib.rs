//! The notifier, and the layout of Ringway's own shared ring.
//!
//! [`Notifier`] decides when one side of a ring notifies the other, for every kind of ring. `layout` is the
//! shared memory of `ring` and `pipe` ports, with a [`Producer`] and a [`Consumer`]; `capture` is
//! that of captures. Read `notifier.rs` first.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod capture;
mod layout;
#[cfg(all(test, ringway_loom))]
mod models;
mod notifier;

pub use layout::{
    BYTES_MAX, Broken, BufferPool, Consumer, FEATURES, FRAGMENTS, Geometry, HandshakeError, Header, Hello,
    LayoutError, MAGIC, MOREFRAG, Part, PortName, Producer, PushError, RX, Received, RingKind, RingMemory,
    SLOTS_MAX, SLOTS_MIN, Slot, TX, VERSION, Welcome,
};
pub use notifier::{Notifier, Policy, View};
