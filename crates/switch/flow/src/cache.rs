//! A worker's exact-match cache: which subtable has the flow of a frame with these headers.

use crate::classifier::mix;
use crate::flow::Flow;
use crate::key::Key;
use crate::pipeline::Pipeline;
use std::sync::Arc;

/// Most frames' headers that a worker's cache has. Attack: frames that are all different displace each other, so that
/// each costs what it does without a cache.
pub const CACHE: usize = 1024;
/// Masks of a table up to which a look-up costs less than a look into the cache.
const FEW: usize = 2;
/// Instead of a subtable's number: no flow matches.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// That of the snapshot; 0: there is no entry.
    version: u64,
    table: u8,
    subtable: u32,
    key: Key,
}

/// The cache of one worker.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    entries: Vec<Entry>,
}

impl Cache {
    /// The flow of a frame in a table.
    #[inline]
    pub(crate) fn find<'p>(&mut self, pipeline: &'p Pipeline, table: u8, key: &Key) -> Option<&'p Arc<Flow>> {
        let own = pipeline.table(table)?;
        if own.masks() <= FEW {
            return own.find(key).map(|(_, flow)| flow);
        }
        if self.entries.is_empty() {
            self.entries = vec![Entry::default(); CACHE];
        }
        let hash = key.0.iter().fold(u64::from(table), |hash, word| mix(hash, *word));
        let entry = self.entries.get_mut(hash as usize % CACHE)?;
        if entry.version == pipeline.version() && entry.table == table && entry.key == *key {
            return if entry.subtable == NONE { None } else { own.find_in(entry.subtable as usize, key) };
        }
        let found = own.find(key);
        let subtable = found.map_or(NONE, |(subtable, _)| subtable as u32);
        *entry = Entry { version: pipeline.version(), table, subtable, key: *key };
        found.map(|(_, flow)| flow)
    }
}
