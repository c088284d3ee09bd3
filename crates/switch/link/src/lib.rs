//! A link emulator: one direction of a link with a rate, a queue, loss, ECN marks, corruption, duplication and
//! delay.
//!
//! Time and seeds are arguments, so a run is repeatable, in virtual time or real time. A frame passes these stages:
//!
//! 1. **MTU**: a larger frame is dropped.
//! 2. **Queue** ([`Queue`]): drop-tail, RED, CoDel or FQ-CoDel, which drop frames or mark them (ECN).
//! 3. **Rate**: the transmitter serializes one frame after the other.
//! 4. **Wire**: a serialized frame is lost, marked (ECN), corrupted or duplicated, as [`Loss`] and three probabilities
//!    say.
//! 5. **Delay** ([`Delay`]): propagation, with jitter. Frames stay in order unless [`Profile::reorder`] is set.
//!
//! [`Link::send`] takes a frame, [`Link::receive`] returns those that have arrived, [`Link::due`] says when to look
//! again. Every stage is computed for exact instants: it makes no difference how late `receive` is called. Frames of
//! more than one segment must be cut before, since a wire has no larger frames. Read `link.rs` first.
#![no_std]

extern crate alloc;

mod delay;
mod frame;
mod link;
mod loss;
mod profile;
mod queue;
#[cfg(test)]
mod tests;
mod wire;

pub use delay::Delay;
pub use frame::{Frame, mark_ip};
pub use link::{Counters, Link, Reason, seed_of};
pub use loss::Loss;
pub use profile::{MEMORY, Profile, ProfileError};
pub use queue::{Capacity, CoDelSettings, Queue};
