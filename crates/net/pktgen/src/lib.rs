//! A packet generator whose receiver checks every frame, and measurements of a device by RFC 2544.
//!
//! [`Generator`] writes numbered frames, [`Checker`] counts what became of them. [`run`] sends and receives over a
//! [`Line`]: a program's rings ([`RingLine`]), or, in tests, a line in virtual time. [`rfc2544`] searches for the
//! highest rate without loss. Read `frame.rs` first.
#![forbid(unsafe_code)]

mod check;
mod frame;
mod latency;
mod line;
mod pace;
pub mod rfc2544;
pub mod run;
mod tag;

pub use check::{Checker, Received};
pub use frame::{Flows, Generator, LARGEST, SMALLEST, ShapeError, Sizes, Vary};
pub use latency::{Latency, LatencySummary};
pub use line::{Line, LineError, Rest, RingLine, monotonic};
pub use pace::{Pacer, Rate};
