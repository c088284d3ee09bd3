//! `RandomSource(LENGTH, LIMIT, BURST, ACTIVE, TIMESTAMP, STOP, END_CALL)`: generates packets of random bytes as fast
//! as possible.
//!
//! Ports: no inputs; one output, push or pull.
//!
//! Arguments:
//! - `LENGTH`: length of a packet in bytes.
//! - The others: those of `InfiniteSource`.
//!
//! Handlers: those of `InfiniteSource` but `data`.
use super::infinite_source::InfiniteSource;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("RandomSource", || Box::new(InfiniteSource::random()))
    .ports("0/1")
    .flags("S1")
    .metadata(Metadata::Ignores)
    .live();
