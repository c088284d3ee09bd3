//! Frames, bursts and the port traits.
//!
//! A frame is taken by copying its offload header and its first [`HEAD`] bytes into the worker's memory; whatever
//! decides about the frame uses that copy, and only the bytes behind it go straight from source to destination.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod burst;
mod counters;
mod offload;
pub mod packet;
mod port;

pub use burst::{BURST, BURST_BYTES, Bounds, Burst, FrameReader, Full, HEAD, Meta, Storage};
pub use counters::{Counters, CountersPage, CountersRef, Reason, add};
pub use offload::{Gso, HEADERS, Headers, LARGEST, Needs, Offload, OffloadError, Part};
pub use port::{Caps, Lost, RxQueue, TxQueue};
/// Asks for a value's first and last cache line ahead of its use.
pub use ringway_mem::prefetch_value as prefetch;
