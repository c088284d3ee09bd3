//! Ringway's own shared ring: two rings of slots, and buffers, in a sealed memory file.
//!
//! The model is netmap's: slots name buffers; the program owns `head` and `cur`, Ringway owns `tail`. Each
//! ring has a producer and a consumer, each with its own cache line that only it writes:
//!
//! | | TX ring | RX ring |
//! |---|---|---|
//! | producer's index | `head`, by the program | `tail`, by Ringway |
//! | consumer's index | `tail` less the number of slots, by Ringway | `head`, by the program |
//! | `wake_at` of the program's line | `cur` | `cur` |
//!
//! Indices are free-running 32-bit counters, so all slots can be in use. In a pipe, a second program takes
//! Ringway's place: each program's TX ring is the other's RX ring.
//!
//! All numbers are little-endian. Each side treats the other as hostile: it reads an index or a slot once
//! into its own memory, and checks and uses that copy; it never reads values back that it wrote.
//!
//! | offset | content |
//! |---|---|
//! | 0 | [`Header`] |
//! | 512 | `closed`: non-zero when this memory is no longer in use |
//! | 1024 + 256 n | ring n: the producer's line, 128 bytes on the consumer's (`index`, `wake`, `wake_at`: u32 each) |
//! | 4096 | slots of ring 0, then of ring 1, 16 bytes each ([`Slot`]) |
//! | the next page | buffers, `stride` bytes apart, unless they are in a memory of the program ([`BufferPool`]) |

mod consumer;
mod geometry;
mod handshake;
mod memory;
mod producer;
mod slot;
#[cfg(test)]
mod tests;
mod transfer;

pub use consumer::Consumer;
pub use geometry::{
    BYTES_MAX, BufferPool, FEATURES, Geometry, Header, LayoutError, MAGIC, RingKind, VERSION,
};
pub use handshake::{HandshakeError, Hello, PortName, Welcome};
pub use memory::{RX, RingMemory, TX};
pub use producer::Producer;
pub use slot::{MOREFRAG, Slot};
pub use transfer::{Part, PushError, Received};

/// Smallest number of slots of a ring.
pub const SLOTS_MIN: u32 = 64;
/// Largest number of slots of a ring.
pub const SLOTS_MAX: u32 = 4096;
/// Largest number of slots of a frame, as in netmap.
pub const FRAGMENTS: usize = 64;

/// How the other side violated the ring's rules. The ring is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// The other side's index differs from ours by more than the ring's slots.
    Index,
    /// A slot names a buffer that doesn't exist.
    Buffer,
}

impl core::fmt::Display for Broken {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.write_str(match self {
            Broken::Index => "the other side's index moved by more than the ring's slots",
            Broken::Buffer => "the other side used a buffer number that the ring doesn't have",
        })
    }
}

impl core::error::Error for Broken {}
