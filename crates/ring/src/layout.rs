//! Ringway's own shared ring: two rings of slots and a set of buffers in one sealed memory file.
//!
//! The model is netmap's: slots name buffers, `head` and `cur` belong to the program, `tail` to Ringway. Here every
//! ring has a producer and a consumer, each with a cache line of its own that it alone writes:
//!
//! | | TX ring | RX ring |
//! |---|---|---|
//! | producer's index | `head`, by the program | `tail`, by Ringway |
//! | consumer's index | `tail` less the number of slots, by Ringway | `head`, by the program |
//! | `wake_at` of the program's line | `cur` | `cur` |
//!
//! Indices run freely through 32 bits, so no slot has to stay empty. In a pipe the second program has Ringway's place:
//! one's TX ring is the other's RX ring.
//!
//! All numbers are little-endian. Both sides hold the other for hostile: each reads an index or a slot once, into its
//! own memory, checks it there and uses what it checked; what it wrote itself it never reads back.
//!
//! | offset | content |
//! |---|---|
//! | 0 | [`Header`] |
//! | 512 | `closed`: not zero when this memory serves no longer |
//! | 1024 + 256 n | ring n: the producer's line, 128 bytes on the consumer's (`index`, `wake`, `wake_at`: u32 each) |
//! | 4096 | slots of ring 0, then of ring 1, 16 bytes each ([`Slot`]) |
//! | the next page | buffers, `stride` bytes apart |

mod consumer;
mod geometry;
mod handshake;
mod memory;
mod producer;
mod slot;
#[cfg(test)]
mod test;

pub use consumer::Consumer;
pub use geometry::{FEATURES, Geometry, Header, Kind, LayoutError, MAGIC, VERSION};
pub use handshake::{HandshakeError, Hello, Welcome};
pub use memory::{RX, RingMemory, TX};
pub use producer::Producer;
pub use slot::{MOREFRAG, Slot};

/// Fewest slots a ring may have.
pub const SLOTS_MIN: u32 = 64;
/// Most slots a ring may have.
pub const SLOTS_MAX: u32 = 4096;
/// Slots a frame may take, as in netmap.
pub const FRAGMENTS: usize = 64;

/// The other side broke the ring's rules; the ring is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Its index is not within the ring's slots from ours.
    Index,
    /// A slot names a buffer that doesn't exist.
    Buffer,
}

impl core::fmt::Display for Broken {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            Broken::Index => "the other side's index jumped by more than the ring's slots",
            Broken::Buffer => "the other side named a buffer that the ring doesn't have",
        })
    }
}

impl core::error::Error for Broken {}
