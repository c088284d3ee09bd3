//! Packet sockets: an interface of the host, whose frames the host's stack still sees.
//!
//! The kernel writes received frames into a ring of blocks (`tx.rs`: the interface's line transmits into the fabric),
//! and takes frames to send from a ring of slots (`rx.rs`). Workers read and write both rings in place: a frame is
//! copied once. Control opens the sockets (`open.rs`), since the data process can't.

pub mod open;
mod peer;
mod rx;
mod settings;
#[cfg(test)]
mod tests;
mod tx;

pub use peer::KIND;
pub use settings::Settings;

use crate::Doorbell;
use crate::interface_page::InterfacePage;
use ringway_frame::CountersRef;
use ringway_host::{HostError, Mapping, PACKET_RINGS, RX_BLOCK, RX_BLOCKS};
use ringway_mem::{Hint, Memory, Published, SpanMut, Turn, Words};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Offsets in a block of the receive ring (`struct tpacket_block_desc`), in bytes.
mod block {
    pub const STATUS: usize = 8;
    pub const FRAMES: usize = 12;
    pub const FIRST: usize = 16;
    pub const SEQUENCE: usize = 24;
    /// The part that the kernel leaves to us: the number of frames that were released.
    pub const RELEASED: usize = 48;
    /// Bytes of the header and that part.
    pub const HEADER: u32 = 56;
    /// A block that the kernel has handed over.
    pub const OURS: u32 = 1;
    pub const KERNELS: u32 = 0;
}

/// A socket with its rings.
struct Ring {
    memory: Memory,
    socket: Arc<OwnedFd>,
    /// The block that is read first.
    first: usize,
}

impl Ring {
    fn new(socket: OwnedFd) -> Result<Ring, HostError> {
        let mapping = Mapping::of_device(&socket, 0, PACKET_RINGS)?;
        let memory = Memory::new(vec![mapping.region()]).unwrap_or_default();
        let mut ring = Ring { memory, socket: Arc::new(socket), first: 0 };
        ring.first = ring.oldest();
        Ok(ring)
    }

    fn span(&self, at: usize, len: usize) -> Option<SpanMut<'_>> {
        self.memory.span_mut(at as u64, len as u32, &mut Hint::default())
    }

    /// Block `index` from its start.
    fn block(&self, index: usize) -> Option<SpanMut<'_>> {
        self.span(index % RX_BLOCKS * RX_BLOCK, RX_BLOCK)
    }

    fn words(&self, index: usize) -> Option<Words<'_, u32>> {
        Words::new(self.block(index)?)
    }

    /// Whether the kernel has handed a block over.
    #[inline]
    fn is_ours(&self, index: usize) -> bool {
        self.words(index).is_some_and(|words| words.load_acquire(block::STATUS / 4) & block::OURS != 0)
    }

    /// The block that the kernel handed over first, else the one that it fills: a former data process read those
    /// before it. The kernel numbers blocks as it begins them.
    fn oldest(&self) -> usize {
        let sequence = |index: usize| {
            let words = self.block(index).and_then(Words::<u64>::new);
            words.map_or(0, |words| words.load_acquire(block::SEQUENCE / 8))
        };
        let ours = (0..RX_BLOCKS).filter(|index| self.is_ours(*index)).min_by_key(|index| sequence(*index));
        ours.or_else(|| (0..RX_BLOCKS).max_by_key(|index| sequence(*index))).unwrap_or(0)
    }
}

/// What a queue has while its interface is there.
#[derive(Default)]
struct Open {
    ring: Option<(Ring, InterfacePage)>,
    /// Number of the interface, from 1.
    number: u64,
}

/// State shared by both directions of a queue.
#[derive(Clone)]
struct Shared {
    open: Arc<Published<Open>>,
    doorbell: Arc<dyn Doorbell>,
    counters: CountersRef,
}

impl Shared {
    /// Replaces the interface; the former rings are unmapped when this returns.
    fn replace(&self, open: Open) {
        drop(ringway_host::reclaim(self.open.replace(Arc::new(open))));
        // Only now, since until then a worker may have armed the queue and watched the old socket.
        self.doorbell.unwatch();
        self.doorbell.wake();
    }

    #[inline]
    fn ring<'t>(&self, turn: &'t Turn<'_>) -> Option<(&'t Ring, &'t InterfacePage, u64)> {
        let open = self.open.read(turn);
        open.ring.as_ref().map(|(ring, page)| (ring, page, open.number))
    }
}
