//! A worker's exact-match cache: which subtable has the flow of a frame with these headers.

use crate::classifier::mix;
use crate::flow::Flow;
use crate::key::Key;
use crate::pipeline::Pipeline;
use std::sync::Arc;

/// Most frames' headers that a worker's cache has. Attack: frames that are all different displace each other, so that
/// each costs what it does without a cache.
pub const CACHE: usize = 1024;
/// Places that an entry may have. Attack: few frames, whose senders know that they have the same place.
const WAYS: usize = 2;
/// Masks of a table up to which a look-up costs less than a look into the cache.
const FEW: usize = 2;
/// Instead of a subtable's number: no flow matches.
const NONE: u16 = u16::MAX;

const _: () = assert!(crate::MASKS < NONE as usize);

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    /// That of the snapshot; 0: there is no entry.
    version: u64,
    table: u8,
    subtable: u16,
    /// How many subtables were looked into.
    looked: u16,
    key: Key,
}

/// The cache of one worker.
#[derive(Debug)]
pub(crate) struct Cache {
    entries: Box<[[Entry; WAYS]]>,
}

impl Default for Cache {
    fn default() -> Cache {
        Cache { entries: vec![[Entry::default(); WAYS]; CACHE / WAYS].into() }
    }
}

impl Cache {
    /// The flow of a frame in a table; and how many subtables a look-up without the cache looks into.
    #[inline]
    pub(crate) fn find<'p>(
        &mut self,
        pipeline: &'p Pipeline,
        table: u8,
        key: &Key,
    ) -> (Option<&'p Arc<Flow>>, usize) {
        let Some(own) = pipeline.table(table) else { return (None, 0) };
        if own.masks() <= FEW {
            let (found, looked) = own.search(key);
            return (found.map(|(_, flow)| flow), looked);
        }
        let hash = key.0.iter().fold(pipeline.seed ^ u64::from(table), |hash, word| mix(hash, *word));
        let count = self.entries.len();
        let Some(ways) = self.entries.get_mut(hash as usize % count) else { return (None, 0) };
        let is_it =
            |entry: &&Entry| entry.version == pipeline.version() && entry.table == table && entry.key == *key;
        if let Some(entry) = ways.iter().find(is_it) {
            let subtable = (entry.subtable != NONE).then(|| usize::from(entry.subtable));
            return (subtable.and_then(|subtable| own.find_in(subtable, key)), entry.looked.into());
        }
        let (found, looked) = own.search(key);
        let subtable = found.map_or(NONE, |(subtable, _)| subtable as u16);
        // The newest is the first one.
        ways.rotate_right(1);
        ways[0] = Entry { version: pipeline.version(), table, subtable, looked: looked as u16, key: *key };
        (found.map(|(_, flow)| flow), looked)
    }
}
