//! Virtqueues, split and packed (virtio 1.3, 2.6 to 2.8), device and driver side.
//!
//! The device side works in bursts: [`TxDevice`] shows chains without taking them off the ring and releases
//! them in order afterwards; [`RxDevice`] reserves buffers, fills them and publishes once. The ring's
//! contents are not trusted: indices and descriptors are read once into locals and checked there, and every
//! address is translated by [`ringway_mem::Translate`]. [`Driver`] is the driver side, for tests and load
//! generators. Read `format.rs` first, then `tx.rs` and `rx.rs`.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod chain;
mod command;
mod descriptor;
mod driver;
mod error;
mod format;
mod layout;
mod logged;
mod packed;
mod prefetch;
mod rx;
mod signals;
mod split;
mod tx;

pub use chain::{CHAIN, Chain};
pub use command::CommandDevice;
pub use descriptor::{INDIRECT, NEXT, WRITE};
pub use driver::{Buffer, Driver, Indirect};
pub use error::{LayoutError, QueueError};
pub use format::{Cursor, Progress, Used};
pub use layout::{Areas, LARGEST, Layout, Lengths, Ring};
pub use logged::{LoggedRing, Tracker};
pub use packed::{PackedDriver, PackedRing};
pub use prefetch::{disable_kicks, enable_kicks, is_available, prefetch_translations};
pub use rx::{FRAMES, Fill, RxDevice, RxHeader};
pub use signals::Signals;
pub use split::{SplitDriver, SplitRing};
pub use tx::{BATCH, Look, TxDevice, Verdict};
