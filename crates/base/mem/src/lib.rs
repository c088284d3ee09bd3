//! Access to a peer's memory.
//!
//! No Rust reference ever points into memory that a peer can write: [`Span`] and [`SpanMut`] are raw, bounded
//! views, and bytes are copied only by the primitives here. [`Memory`] holds a guest's regions, [`iotlb::Iotlb`] the
//! mappings of its IOMMU; [`Translate`] turns a peer's addresses into spans. State shared with workers is
//! published by pointer ([`Published`]) and read within a [`Turn`]; a thread that replaces such state waits
//! until the turns of its readers have ended, then frees it. Read `span.rs` first, then `turn.rs`.
#![cfg_attr(not(any(test, ringway_loom)), no_std)]

extern crate alloc;

mod deferred;
mod dirty;
pub mod iotlb;
mod memory;
#[cfg(all(test, ringway_loom))]
mod models;
mod span;
#[doc(hidden)]
pub mod sync;
mod translate;
mod turn;
mod words;

pub use deferred::{DeferredFrees, defer_free};
pub use dirty::{DirtyLog, Extent, Extents, LOG_PAGE, Logged, Trail};
pub use memory::{Hint, Memory, MemoryError, OwnedSpan, REGIONS, Region};
pub use span::{Span, SpanMut, copy, count_at_most, prefetch_value};
pub use translate::{Direct, Fault, KEPT, Translate};
pub use turn::{Pinned, Published, READERS, Reader, Readers, Retired, Snapshot, Turn, TurnMark};
pub use words::{Pairs, Words};
