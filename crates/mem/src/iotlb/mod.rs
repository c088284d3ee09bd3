//! The device IOTLB: the device addresses (IOVAs) that a guest has mapped, and their targets in the memory
//! that it shared.
//!
//! One thread, the owner of the [`Editor`], updates it; workers look it up by [`Lookup`] without a lock. An
//! update builds a new [`Map`] and publishes it, so every lookup sees a consistent map. Turns in progress may
//! still use an unmapped range: before an unmapping is acknowledged, the caller waits for one turn of every
//! worker (`host::grace`).

mod editor;
mod lookup;
mod map;
#[cfg(test)]
mod tests;

pub use editor::{Change, Editor, UpdateError};
pub use lookup::{Lookaside, Lookup, MISSED, Missed};
pub use map::Map;

use crate::memory::Memory;
use crate::turn::Published;
use alloc::sync::Arc;
use core::sync::atomic::AtomicU64;

/// Default limit of entries of one guest.
pub const ENTRIES: usize = 65_536;

/// Permission of a range (vhost-user protocol, "An IOTLB message", permissions).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access(u8);

impl Access {
    /// The device may read.
    pub const READ: Access = Access(1);
    /// The device may write.
    pub const WRITE: Access = Access(2);
    /// Reading and writing.
    pub const BOTH: Access = Access(3);

    /// From the protocol's number; `None` if it grants no access.
    pub fn from_bits(bits: u8) -> Option<Access> {
        (1..=3).contains(&bits).then_some(Access(bits))
    }

    /// The protocol's number.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Whether all of `need` is permitted.
    #[inline]
    pub fn covers(self, need: Access) -> bool {
        self.0 & need.0 == need.0
    }
}

/// An IOTLB as workers see it, with the memory that it maps to. Aligned to its own cache lines, since workers
/// read it every turn.
#[derive(Debug)]
#[repr(align(128))]
pub struct Iotlb {
    /// Unique number; 0 is none.
    id: u64,
    memory: Arc<Memory>,
    map: Published<Map>,
    /// Counts unmappings: cache entries of an earlier epoch are invalid.
    epoch: AtomicU64,
    /// Counts mappings: a miss at this version is still a miss.
    version: AtomicU64,
}

impl Iotlb {
    /// The memory that it maps to.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Counts mappings: a miss at this version is still a miss.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(core::sync::atomic::Ordering::SeqCst)
    }
}
