//! Runs every target on its seeds and on the inputs kept in `fuzz/corpus`, as they are and changed, with a stable
//! compiler: a short version of a libFuzzer run.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use ringway_fuzz::corpus;

/// A change to some bytes.
#[derive(Clone, Debug)]
enum Edit {
    Set(Index, u8),
    Flip(Index, u8),
    Interesting(Index, u32),
    Remove(Index, Index),
    Repeat(Index, Index),
    Insert(Index, Vec<u8>),
}

fn edit() -> impl Strategy<Value = Edit> {
    let numbers = vec![0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fff_ffff, 0x8000_0000, u32::MAX];
    prop_oneof![
        4 => any::<(Index, u8)>().prop_map(|(at, to)| Edit::Set(at, to)),
        4 => (any::<Index>(), 0u8..8).prop_map(|(at, bit)| Edit::Flip(at, bit)),
        3 => (any::<Index>(), prop::sample::select(numbers)).prop_map(|(at, to)| Edit::Interesting(at, to)),
        1 => any::<(Index, Index)>().prop_map(|(from, to)| Edit::Remove(from, to)),
        1 => any::<(Index, Index)>().prop_map(|(from, to)| Edit::Repeat(from, to)),
        1 => (any::<Index>(), vec(any::<u8>(), 1..24)).prop_map(|(at, bytes)| Edit::Insert(at, bytes)),
    ]
}

impl Edit {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let range = |from: &Index, to: &Index, len: usize| {
            let (a, b) = (from.index(len), to.index(len));
            (a.min(b), a.max(b).min(a.min(b) + 64))
        };
        if bytes.is_empty() {
            bytes.push(0);
        }
        let len = bytes.len();
        match self {
            Edit::Set(at, to) => bytes[at.index(len)] = *to,
            Edit::Flip(at, bit) => bytes[at.index(len)] ^= 1 << bit,
            Edit::Interesting(at, to) => {
                let at = at.index(len);
                let end = (at + 4).min(len);
                let (big, little) = (to.to_be_bytes(), to.to_le_bytes());
                let number = if at % 2 == 0 { big } else { little };
                bytes[at..end].copy_from_slice(&number[..end - at]);
            }
            Edit::Remove(from, to) => {
                let (from, to) = range(from, to, len);
                bytes.drain(from..to);
            }
            Edit::Repeat(from, to) => {
                let (from, to) = range(from, to, len);
                let again = bytes[from..to].to_vec();
                bytes.splice(to..to, again);
            }
            Edit::Insert(at, new) => {
                let at = at.index(len);
                bytes.splice(at..at, new.iter().copied());
            }
        }
    }
}

fn mutate(name: &str) {
    let target = ringway_fuzz::target(name);
    let mut seeds = (target.seeds)();
    assert!(!seeds.is_empty());
    seeds.extend(corpus::read(name).unwrap_or_else(|error| panic!("{error}")));
    seeds.iter().for_each(|seed| (target.run)(seed));
    (target.run)(&[]);
    let cases: u32 =
        std::env::var("RINGWAY_FUZZ_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(5000);
    // Unlike the others, these targets create a store and make decisions, run a connection, map a port's memory, or
    // build two routers that run for minutes of simulated time, in each case.
    let cases = match name {
        "pppoe_server" => cases / 20,
        "moved_connection" | "stack_frames" | "tcp_segments" => cases / 4,
        _ if name.starts_with("place_") || name.starts_with("netmap_") => cases / 4,
        _ => cases,
    };
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(seed in any::<Index>(), edits in vec(edit(), 0..12))| {
        let mut bytes = seeds[seed.index(seeds.len())].clone();
        edits.iter().for_each(|edit| edit.apply(&mut bytes));
        (target.run)(&bytes);
    });
}

macro_rules! tests {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            mutate(stringify!($name));
        })*

        #[test]
        fn libfuzzer_has_every_target() {
            let manifest = include_str!("../libfuzzer/Cargo.toml");
            let names = manifest.lines().filter_map(|line| line.trim().strip_prefix("{ name = \""));
            let names: Vec<&str> = names.filter_map(|rest| Some(rest.split_once('"')?.0)).collect();
            assert_eq!(names, [$(stringify!($name)),*]);
        }
    };
}
ringway_fuzz::each_target!(tests);
