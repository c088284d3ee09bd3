//! Frames, bursts, counters and the port traits; owned packets.
//!
//! A [`Burst`] has borrowed frames. A frame's offload header and first [`HEAD`] bytes are copied to the
//! worker's memory, and all decisions use that copy; the bytes after them are copied directly from source to
//! destination. [`TxQueue`] and [`RxQueue`] are the two directions of a port. Read `port.rs` first, then
//! `burst.rs`.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod burst;
mod counters;
mod hash;
mod offload;
pub mod packet;
mod port;

pub use burst::{BURST, BURST_BYTES, Bounds, Burst, FrameReader, Full, HEAD, Meta, Storage};
pub use counters::{Counters, CountersPage, CountersRef, FIRST_REASONS, Reason, RingPlace, add};
pub use hash::fnv1a;
pub use offload::{Coalesced, Gso, HEADERS, Headers, LARGEST, Needs, Offload, OffloadError, Part, Segment};
pub use port::{Caps, Lost, RxQueue, TxQueue};
pub use ringway_mem::{count_at_most, prefetch_value as prefetch};
