//! The page of counters that `control` maps and reads.

use ringway_frame::{Counters, CountersPage};
use ringway_host::{HostError, Mapping};
use std::os::fd::OwnedFd;

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
