//! The memory that a front-end shares: its regions, their files, and the dirty log.

use crate::vhost_user::dirty_log::{Log, MOST as LOG_MAPPINGS};
use crate::vhost_user::usage::Usage;
use ringway_frame::Counters;
use ringway_host::{Account, FileId, Keep};
use ringway_mem::{Memory, Region};
use ringway_vhost_user::{MemoryRegion, Refused, SharedRegion};
use std::sync::Arc;

/// Multiple of its limit of shared memory, and number of the longest logs, that a port may have mapped at once,
/// including released ones that are not unmapped yet.
const MEMORIES: u64 = 8;
const LOGS: u64 = 4;

/// A region and its mapping.
pub struct Mapped {
    pub entry: MemoryRegion,
    region: Region,
    /// The file behind it, if that is known.
    pub file: Option<FileId>,
}

impl Mapped {
    pub fn again(&self) -> Mapped {
        Mapped { entry: self.entry, region: self.region.clone(), file: self.file }
    }
}

/// A front-end's memory table and its mappings.
pub struct SharedMemory {
    /// Bytes that the front-end may share.
    most: u64,
    pub table: Vec<Mapped>,
    pub memory: Arc<Memory>,
    /// Counts and limits mapped bytes.
    pub account: Account,
    usage: Usage,
    /// The dirty log.
    pub(in crate::vhost_user) log: Log,
}

impl SharedMemory {
    /// An empty table; the front-end may share `most` bytes.
    pub fn new(most: u64) -> SharedMemory {
        let account = Account::limited(most.saturating_mul(MEMORIES).saturating_add(LOGS * LOG_MAPPINGS));
        let (memory, usage, log) = (Arc::new(Memory::default()), Usage::default(), Log::default());
        SharedMemory { most, table: Vec::new(), memory, account, usage, log }
    }

    /// Removes all regions and the log.
    pub fn clear(&mut self) {
        self.table.clear();
        self.usage.end();
        (self.memory, self.log) = (Arc::new(Memory::default()), Log::default());
    }

    /// Maps a region; fails without using any of it if the file is unsuitable.
    pub fn map(
        &mut self,
        SharedRegion { region: entry, fd }: SharedRegion,
        keep: Keep,
    ) -> Result<Mapped, Refused> {
        let at = (entry.guest, entry.user);
        let region = ringway_host::map_region_for(&self.account, &fd, (entry.offset, entry.size), at, keep);
        let region = region.map_err(|error| Refused(format!("region at {:#x}: {error}", entry.guest)))?;
        Ok(Mapped { entry, region, file: self.usage.share(fd) })
    }

    /// Replaces the memory table; returns the former one.
    pub fn replace(&mut self, table: Vec<Mapped>) -> Result<Vec<Mapped>, Refused> {
        let shared = table.iter().fold(0_u64, |sum, mapped| sum.saturating_add(mapped.entry.size));
        if shared > self.most {
            self.usage.keep(&self.table);
            let [shared, most] = [shared, self.most].map(|bytes| bytes.div_ceil(1 << 20));
            return Err(Refused(format!("{shared} MB are shared; the port's `memory` is {most} MB")));
        }
        let regions = table.iter().map(|mapped| mapped.region.clone()).collect();
        let memory = Memory::new(regions).map_err(|error| Refused(error.to_string()))?;
        self.memory = Arc::new(memory);
        let former = std::mem::replace(&mut self.table, table);
        self.usage.keep(&self.table);
        Ok(former)
    }

    /// Whether a file behind the memory or the log shrank.
    pub fn is_lost(&self) -> bool {
        let log = self.log.bits.iter().map(|log| log.region());
        self.memory.regions().iter().chain(log).any(ringway_host::is_lost)
    }

    /// Whether the files grew by more than the permitted amount: the limit of shared memory, and the same again for
    /// released memory. Attack: one sparse file after the other, all of which the front-end keeps.
    pub fn has_grown(&mut self, now: u64, counters: &Counters) -> bool {
        self.usage.measure(now, counters) > self.most.saturating_mul(2)
    }
}
