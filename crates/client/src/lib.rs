//! A program's side of a ring: to a port of Ringway, or through a pipe to another program.
//!
//! ```no_run
//! use ringway_client::{Ring, Wait};
//!
//! # fn main() -> Result<(), ringway_client::RingError> {
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
//! The names are netmap's: a ring is made of slots, each slot names a buffer by `buf_idx`; `head` is what the program
//! is done with, `tail` is as far as it may go, and `sync` makes both sides know. Frames are copied in and out, a
//! burst is made visible by one `sync`; who wants no copy works on slots and buffers ([`Tx::slot`], [`Rx::slot`]).
//!
//! No Rust reference ever points into a buffer: the other side may write there at any time.

mod connect;
mod error;
mod link;
mod ring;
mod rx;
mod tx;

pub use connect::Asked;
pub use error::RingError;
pub use ring::{Coming, Ring, Wait};
pub use ringway_mem::{Span, SpanMut};
pub use ringway_ring::{FRAGMENTS, Kind, MOREFRAG, Slot};
pub use rx::{Received, Rx};
pub use tx::Tx;
