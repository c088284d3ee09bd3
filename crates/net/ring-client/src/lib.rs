//! The client side of a ring: connects a program to a port of Ringway, or through a pipe to another program.
//! [`Ring`] is the main type; read `ring.rs` first.
//!
//! ```no_run
//! use ringway_ring_client::{Ring, Wait};
//!
//! # fn main() -> Result<(), ringway_ring_client::RingError> {
//! let mut ring = Ring::connect("/run/ringway/ports/a".as_ref())?;
//! let mut frame = [0; 1518];
//! loop {
//!     ring.wait(Wait::RX, None)?;
//!     while let Some(received) = ring.rx.pop(&mut frame)? {
//!         frame[..12].rotate_left(6);
//!         ring.tx.push(&frame[..received.len])?;
//!     }
//!     ring.sync()?;
//! }
//! # }
//! ```
//!
//! The names are netmap's: a ring consists of slots, each slot names a buffer by `buf_idx`; `head` is the
//! program's position, `tail` the limit up to which it may advance, and `sync` exchanges both with the other
//! side. Frames are copied in and out, and one `sync` publishes a burst; programs that avoid the copy use
//! slots and buffers directly ([`Tx::slot`], [`Rx::slot`]).
//!
//! No Rust reference ever points into a buffer: the other side may write there at any time.

pub mod attachment;
mod connect;
mod device;
mod error;
mod parts;
mod ring;
mod rx;
mod shared;
mod tx;

#[cfg(doctest)]
#[doc = include_str!("../../../../docs/programs.md")]
struct ProgramsPage;

pub use connect::{Map, Pool, RingOptions};
pub use device::devices;
pub use error::RingError;
pub use parts::RingParts;
pub use ring::{Closing, PendingRing, Ring, Wait};
pub use ringway_mem::{Span, SpanMut};
pub use ringway_ring::{Broken, BufferPool, FRAGMENTS, MOREFRAG, Received, RingKind, Slot};
pub use rx::{Rx, Taken};
pub use tx::{Lent, Tx};
