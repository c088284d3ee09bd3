//! The page of counters that `control` maps and reads.

use ringway_frame::{Counters, CountersPage};
use ringway_host::{HostError, Mapping};
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;

/// Index of the word of a queue's counters by which `control` finds what made the data path crash: [`SERVED`], [`RUN`],
/// or 0.
pub const SERVING: usize = std::mem::offset_of!(Counters, spare) / 8;
/// A worker takes frames of this queue and passes them on.
pub const SERVED: u64 = 1;
/// A worker runs the function whose first port this is.
pub const RUN: u64 = 2;

/// That word.
#[inline]
pub(crate) fn serving(counters: &Counters) -> &AtomicU64 {
    &counters.spare[0]
}

/// Counters in a shared mapping.
#[derive(Debug)]
pub struct SharedPage {
    mapping: Mapping,
    count: usize,
}

impl SharedPage {
    /// Size of `count` entries in bytes.
    pub fn size(count: usize) -> usize {
        (count * size_of::<Counters>()).next_multiple_of(4096)
    }

    /// Maps the first `count` entries of `memfd`.
    pub fn map(memfd: OwnedFd, count: usize) -> Result<SharedPage, HostError> {
        let mapping = Mapping::shared(&memfd, 0, SharedPage::size(count))?;
        Ok(SharedPage { mapping, count })
    }
}

impl CountersPage for SharedPage {
    fn counters(&self) -> &[Counters] {
        let all = Counters::of(self.mapping.words());
        &all[..self.count.min(all.len())]
    }
}
