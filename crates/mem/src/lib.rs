//! A peer's memory, and the only door to it.
//!
//! No Rust reference ever points into memory that a peer can write: [`Span`] and [`SpanMut`] are raw, bounded views,
//! and bytes move only through the copy primitives here. What a worker may touch is published by pointer
//! ([`Published`]) and read under a [`Turn`]; whoever replaces it waits until every worker's turn has passed.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod dirty;
pub mod iotlb;
mod memory;
mod orphan;
mod span;
mod translate;
mod turn;
mod words;

pub use dirty::{DirtyLog, Extent, Extents, LOG_PAGE, Logged, Trail};
pub use memory::{Hint, Kept, Memory, MemoryError, REGIONS, Region};
pub use orphan::Orphans;
pub use span::{Span, SpanMut, copy, prefetch_value};
pub use translate::{Direct, Fault, KEPT, Translate};
pub use turn::{Published, READERS, Reader, Retired, Snapshot, Turn};
pub use words::{Pairs, Words};
