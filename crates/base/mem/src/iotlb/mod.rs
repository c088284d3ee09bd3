//! The device IOTLB: the I/O virtual addresses (IOVAs) that a guest has mapped, and their targets in the
//! guest's shared memory.
//!
//! One thread, the owner of the [`Editor`], updates the IOTLB; workers translate with a [`Lookup`], without a
//! lock. An update builds a new [`Map`] and publishes it, so every lookup sees a consistent map. Turns in
//! progress may still use an unmapped range: before acknowledging an unmapping, the caller waits for one turn
//! of every worker (`host::grace`).

mod editor;
mod lookup;
mod map;
#[cfg(test)]
mod tests;

pub use editor::{Change, Editor, UpdateError};
pub use lookup::{Lookaside, Lookup, MISSED, Missed};
pub use map::Map;

use crate::memory::Memory;
use crate::sync::{AtomicU64, Ordering};
use crate::turn::Published;
use alloc::sync::Arc;

/// Default limit on the entries of one guest.
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

    /// From the protocol's number; `None` if the number is invalid or grants no access.
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

/// An IOTLB as workers see it, with the memory that it maps to. Aligned, so that no other data shares its
/// cache lines: workers read them every turn.
#[derive(Debug)]
#[repr(align(128))]
pub struct Iotlb {
    /// Unique number; 0 is none.
    id: u64,
    memory: Arc<Memory>,
    map: Published<Map>,
    /// Number of unmappings: cache entries of an earlier epoch are invalid.
    epoch: AtomicU64,
    /// Number of mappings: a miss at this version is still a miss.
    version: AtomicU64,
}

impl Iotlb {
    /// The memory that it maps to.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// Number of mappings: a miss at this version is still a miss.
    #[inline]
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::SeqCst)
    }
}
