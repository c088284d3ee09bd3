//! `RandomSource(LENGTH, LIMIT, BURST, ACTIVE, TIMESTAMP, STOP, END_CALL)`: makes packets of bytes by
//! chance as fast as it can.
//!
//! Ports: no inputs; one output, push or pull.
//!
//! Arguments:
//! - `LENGTH`: bytes of a packet.
//! - The others: those of `InfiniteSource`.
//!
//! Handlers: those of `InfiniteSource` but `data`.
use super::infinite_source::InfiniteSource;
use alloc::boxed::Box;
use ringway_click::{Class, Metadata};

pub static CLASS: Class = Class::new("RandomSource", || Box::new(InfiniteSource::random()))
    .ports("0/1")
    .flags("S1")
    .metadata(Metadata::Ignores);
