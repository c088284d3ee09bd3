//! The device IOTLB: which of a device's addresses (IOVAs) a peer has granted, and where they lie in the memory
//! that it shared.
//!
//! One thread, the [`Editor`]'s, changes it; workers look it up by [`Lookup`] without a lock. A change makes a new
//! [`Map`] and publishes it, so that every look-up sees a whole one. What was taken back may still be in use by turns
//! under way: whoever acknowledges that waits for one turn of every worker first (`host::grace`).

mod editor;
mod lookup;
mod map;
#[cfg(test)]
mod test;

pub use editor::{Change, Editor, UpdateError};
pub use lookup::{Lookaside, Lookup, MISSED, Missed};
pub use map::Map;

use crate::memory::Memory;
use crate::turn::Published;
use alloc::sync::Arc;
use core::sync::atomic::AtomicU64;

/// Entries that one guest may have, if nothing else is said.
pub const ENTRIES: usize = 65_536;

/// What may be done with a range (vhost-user protocol, "An IOTLB message", permissions).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u8);

impl Access {
    /// The device may read.
    pub const READ: Access = Access(1);
    /// The device may write.
    pub const WRITE: Access = Access(2);
    /// Both.
    pub const BOTH: Access = Access(3);

    /// From the protocol's number; `None` where that grants nothing.
    pub fn from_bits(bits: u8) -> Option<Access> {
        (1..=3).contains(&bits).then_some(Access(bits))
    }

    /// The protocol's number.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Whether all of `need` is granted.
    #[inline]
    pub fn covers(self, need: Access) -> bool {
        self.0 & need.0 == need.0
    }
}

/// An IOTLB as workers see it, and the memory that it leads to. Alone in its lines of the cache, since a worker looks
/// here every turn.
#[derive(Debug)]
#[repr(align(128))]
pub struct Iotlb {
    /// No two have the same; 0 is nobody's.
    id: u64,
    memory: Arc<Memory>,
    map: Published<Map>,
    /// Counts what was taken back: what a queue remembers of an earlier epoch is worth nothing.
    epoch: AtomicU64,
    /// Counts grants: what missed at this version misses still.
    version: AtomicU64,
}

impl Iotlb {
    /// The memory that it leads to.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Counts grants: what missed at this version misses still.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(core::sync::atomic::Ordering::SeqCst)
    }
}
