//! Flow tables: what becomes of a frame by rules in `ovs-ofctl`'s words.
//!
//! A *flow* has a table, a priority, a match and actions. A frame enters table 0; the flow with the highest priority of
//! those that match it says what happens: copies to ports, changes of headers, further tables, groups, meters. Text is
//! read and shown by `flow.rs`, `matching.rs`, `action.rs`, `group.rs` and `meter.rs`; `changes.rs` reads commands.
//!
//! [`Tables`] is the side of whoever changes flows: each change, or a bundle of them, makes a new [`Pipeline`], which
//! shares what has not changed with the former one. Workers take the current one from [`Published`] and run bursts
//! through it by [`Pipeline::begin`]: they take no lock, and no frame needs memory. A table is searched by tuple space
//! search (`classifier.rs`), behind an exact-match cache (`cache.rs`).
//!
//! No frame leaves the switch here: a [`Verdict`] says where its copies go, and with which headers. Read this file
//! first, then `key.rs`, `flow.rs`, `tables.rs` and `run.rs`.

mod action;
mod cache;
mod changes;
mod classifier;
mod field;
mod flow;
mod group;
mod headers;
mod key;
mod matching;
mod meter;
mod pipeline;
mod rules;
mod run;
mod tables;
mod text;

pub use action::{ACTIONS, Action, Bits, show_all};
pub use cache::CACHE;
pub use changes::{COMMANDS, Changes};
pub use classifier::{MASKS, Table, TooManyMasks};
pub use field::{FIELDS, Field, Needs};
pub use flow::{Counters, Flow, FlowFilter, FlowMod, PRIORITY};
pub use group::{BUCKETS, Bucket, GROUP_ACTIONS, GROUPS, Group, GroupKind};
pub use headers::{Headers, LONGEST_HEADERS, TooLong};
pub use key::{Key, Place, REGISTERS, WORDS, place};
pub use matching::Match;
pub use meter::{METERS, Meter, MeterCounters, MeterMod, Unit};
pub use pipeline::{Pipeline, Published};
pub use rules::{FileError, LONGEST_FILE, Rules};
pub use run::{
    Arrival, Batch, COPIES, DEPTH, Dropped, LOOKUPS, NESTED, OUTPUTS, Output, Step, To, Verdict, WORK, Worker,
};
pub use tables::{ALL_ACTIONS, ALL_TEXT, Change, Difference, FLOWS, Tables, TablesError};
pub use text::{FlowError, Form, LONGEST};

/// Number of tables.
pub const TABLES: usize = 255;

/// The numbers that flows have for the ports of a switch.
pub trait Ports {
    /// The number of a port that a text names.
    fn number(&self, word: &str) -> Option<u16>;
    /// The name of a port, if it has one.
    fn name(&self, number: u16) -> Option<String>;
}

/// Ports without names: numbers from 1 to 65279, as in OpenFlow.
#[derive(Clone, Copy, Debug)]
pub struct Numbers;

/// The greatest number of a port, as in OpenFlow.
const LAST_PORT: u16 = 0xfeff;

impl Ports for Numbers {
    fn number(&self, word: &str) -> Option<u16> {
        let is_decimal = !word.is_empty() && word.bytes().all(|digit| digit.is_ascii_digit());
        word.parse().ok().filter(|number| is_decimal && (1..=LAST_PORT).contains(number))
    }

    fn name(&self, _number: u16) -> Option<String> {
        None
    }
}
