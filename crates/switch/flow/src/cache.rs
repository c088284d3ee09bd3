//! A worker's exact-match cache: which subtable has the flow of a frame with these headers.

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
    /// What flows of the table match of the frames' key.
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
        let (hash, matched) = own.matched(key, pipeline.seed ^ u64::from(table));
        let count = self.entries.len();
        let Some(ways) = self.entries.get_mut(hash as usize % count) else { return (None, 0) };
        let is_it = |entry: &&Entry| {
            entry.version == pipeline.version() && entry.table == table && own.is_same(&entry.key, &matched)
        };
        if let Some(entry) = ways.iter().find(is_it) {
            let subtable = (entry.subtable != NONE).then(|| usize::from(entry.subtable));
            return (subtable.and_then(|subtable| own.find_in(subtable, key)), entry.looked.into());
        }
        let (found, looked) = own.search(key);
        let subtable = found.map_or(NONE, |(subtable, _)| subtable as u16);
        // The newest is the first one.
        ways.rotate_right(1);
        ways[0] = Entry { version: pipeline.version(), table, subtable, looked: looked as u16, key: matched };
        (found.map(|(_, flow)| flow), looked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Numbers, Rules, Tables, place};

    #[test]
    fn frames_that_differ_where_no_flow_matches_have_one_entry() {
        let rules = "in_port=1,actions=output:2\ndl_dst=02:00:00:00:00:01,actions=output:3\n\
            priority=5,tcp,tp_dst=80,actions=output:4\npriority=4,udp,actions=output:5";
        let mut tables = Tables::new(7);
        tables.replace(&Rules::read(rules, &Numbers).unwrap(), 0).unwrap();
        let pipeline = tables.current();
        let mut cache = Cache::default();
        let mut key = Key::EMPTY;
        key.set(place::ETH_TYPE, 0x800u16);
        key.set(place::NW_PROTO, 6u8);
        for source in 0..5000u32 {
            key.set(place::NW_SRC, source);
            key.set(place::TP_SRC, source as u16);
            key.set(place::TP_DST, 80u16);
            let (found, _) = cache.find(pipeline, 0, &key);
            assert_eq!(found.map(|flow| flow.flow.priority), Some(5));
        }
        let entries = cache.entries.iter().flatten().filter(|entry| entry.version != 0).count();
        assert_eq!(entries, 1);
        key.set(place::TP_DST, 81u16);
        assert!(cache.find(pipeline, 0, &key).0.is_none(), "what flows match is compared");
        // Without the flow that matches it, a field is left out.
        let changes = crate::Changes::read("tcp", Some("flow delete"), &Numbers).unwrap().changes;
        tables.apply(&changes, 0).unwrap();
        let (pipeline, mut cache) = (tables.current(), Cache::default());
        for port in 0..50u16 {
            key.set(place::TP_DST, port);
            assert!(cache.find(pipeline, 0, &key).0.is_none());
        }
        assert_eq!(cache.entries.iter().flatten().filter(|entry| entry.version != 0).count(), 1);
    }
}
