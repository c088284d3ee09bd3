//! Random tables: what tuple space search finds is what a look at every flow finds, and any frame can be changed.

use crate::common::{Random, copies, flows, frame, of};
use proptest::prelude::*;
use ringway_flow::{Change, FlowFilter, FlowMod, Headers, Key, Numbers, Rules, Tables, Worker, place};
use std::sync::atomic::Ordering::Relaxed;

fn key(in_port: u16, frame: &[u8]) -> Key {
    Headers::default()
        .read((frame.len() as u32, None), in_port, |from, into| {
            let rest = frame.get(from..).unwrap_or_default();
            let count = into.len().min(rest.len());
            into[..count].copy_from_slice(&rest[..count]);
            count
        })
        .unwrap()
}

/// The key by which a frame is looked up: fragments have no ports.
fn looked_up(mut key: Key) -> Key {
    if key.get8(place::FRAG) != 0 {
        key.set(place::TP_SRC, 0u16);
        key.set(place::TP_DST, 0u16);
    }
    key
}

/// The flow of a table with the highest priority, found by a look at all of them.
fn naive<'f>(flows: &'f [FlowMod], table: u8, key: &Key) -> Option<&'f FlowMod> {
    flows.iter().filter(|flow| flow.table == table && flow.of.has(key)).max_by_key(|flow| flow.priority)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_search_finds_what_a_look_at_every_flow_finds(seed: u64) {
        let mut random = Random::new(seed);
        let mut tables = Tables::new(seed);
        let mut known: Vec<FlowMod> = Vec::new();
        for text in flows(&mut random, 120) {
            let flow = FlowMod::read(&text, &Numbers).unwrap_or_else(|error| panic!("{text}: {error}"));
            let again = FlowMod::read(&flow.show(&Numbers), &Numbers);
            prop_assert_eq!(again.as_ref(), Ok(&flow), "{}", text);
            tables.apply(&[Change::Add(flow.clone())], 0).unwrap();
            known.push(flow);
        }
        for _ in 0..3 {
            let mut worker = Worker::default();
            let pipeline = tables.current().clone();
            prop_assert_eq!(pipeline.len(), known.len());
            let mut expected = 0;
            for _ in 0..60 {
                let (in_port, frame) = (1 + random.below(4) as u16, frame(&mut random));
                let key = looked_up(key(in_port, &frame));
                for table in 0..4 {
                    let found = pipeline.table(table).and_then(|table| table.find(&key));
                    let found = found.map(|(_, flow)| &flow.flow);
                    prop_assert_eq!(found, naive(&known, table, &key));
                }
                expected += u64::from(naive(&known, 0, &key).is_some());
                // The second time, the cache has it.
                let first = copies(&pipeline, &mut worker, in_port, &frame);
                let second = copies(&pipeline, &mut worker, in_port, &frame);
                prop_assert_eq!(first, second);
            }
            let table = pipeline.table(0).unwrap();
            let counted: u64 = table.iter().map(|flow| flow.counters.frames.load(Relaxed)).sum();
            prop_assert!(counted >= 2 * expected, "{} < 2 * {}", counted, expected);
            // A third of them is removed, by a match at random or one by one.
            let filter = FlowFilter::read(&of(&mut random), false, &Numbers).unwrap();
            tables.apply(&[Change::Delete(filter.clone())], 0).unwrap();
            known.retain(|flow| !filter.has(flow));
            for _ in 0..known.len() / 3 {
                let gone = known.swap_remove(random.below(known.len()));
                let (table, strict) = (Some(gone.table), Some(gone.priority));
                let filter = FlowFilter { table, strict, of: gone.of, ..FlowFilter::default() };
                prop_assert_eq!(tables.apply(&[Change::Delete(filter)], 0), Ok(1));
            }
        }
        let rules = tables.rules();
        prop_assert_eq!(Rules::read(&rules.show(&Numbers), &Numbers), Ok(rules.clone()));
        prop_assert!(tables.difference(&rules).is_empty());
        let mut other = Tables::new(1);
        other.replace(&rules, 0).unwrap();
        prop_assert!(tables.difference(&other.rules()).is_empty());
    }

    #[test]
    fn whatever_changes_are_accepted_the_rules_can_be_read_again(seed: u64) {
        let mut random = Random::new(seed);
        let mut tables = Tables::new(seed);
        let rules = flows(&mut random, 40).join("\n");
        tables.replace(&Rules::read(&rules, &Numbers).unwrap(), 0).unwrap();
        for text in flows(&mut random, 40) {
            // The actions of any flow, for the flows that it contains.
            let (before, actions) = text.split_once("actions=").unwrap();
            let of: Vec<&str> = before.split(',').filter(|word| !word.starts_with("priority=")).collect();
            let of = if random.below(2) == 0 { of.join(",") } else { of[1..].join(",") };
            let read = FlowMod::read_mod(&format!("{of}actions={actions}"), false, &Numbers);
            let (new, mut filter) = read.unwrap_or_else(|error| panic!("{of}actions={actions}: {error}"));
            if random.below(2) == 0 {
                filter.table = None;
            }
            let before = tables.rules();
            if tables.apply(&[Change::Modify(Box::new((new, filter)))], 0).is_err() {
                prop_assert_eq!(tables.rules(), before);
            }
            let rules = tables.rules();
            prop_assert_eq!(Rules::read(&rules.show(&Numbers), &Numbers), Ok(rules));
        }
    }

    #[test]
    fn any_bytes_are_read_and_changed_without_a_panic(seed: u64, cut in 0usize..120, wrong: (usize, u8)) {
        let (at, byte) = wrong;
        let mut random = Random::new(seed);
        let mut frame = frame(&mut random);
        frame.truncate(cut.max(14));
        let place = at % frame.len();
        frame[place] = byte;
        let mut tables = Tables::new(seed);
        let rules = flows(&mut random, 40).join("\n");
        tables.replace(&Rules::read(&rules, &Numbers).unwrap(), 0).unwrap();
        for (_, copy) in copies(tables.current(), &mut Worker::default(), 1, &frame) {
            prop_assert!(copy.len() >= 10 && copy.len() <= frame.len() + 32);
        }
    }
}
