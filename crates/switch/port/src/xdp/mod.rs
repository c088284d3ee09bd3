//! AF_XDP: an interface of the host, whose frames pass to us before the host's stack sees them.
//!
//! Each queue has a socket and memory of its own. The first half of its chunks is for received frames (`tx.rs`: the
//! interface's line transmits into the fabric), the other half for frames to send (`rx.rs`). Control opens the
//! sockets and attaches the program (`open.rs`), since the data process can't.

pub mod open;
mod peer;
mod ring;
mod rx;
mod settings;
#[cfg(test)]
mod tests;
mod tx;

pub use peer::KIND;
pub use settings::{Keep, Settings};

use crate::Doorbell;
use crate::interface_page::InterfacePage;
use ring::XdpRing;
use ringway_frame::CountersRef;
use ringway_host::{HostError, Mapping, XDP_RING, xdp_rings};
use ringway_mem::{Memory, Published, Turn};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Bits of the page's mode.
mod mode {
    /// The program is attached, and the sockets are bound.
    pub const BOUND: u32 = 1;
    /// The program runs in the kernel's stack, not in the driver.
    pub const GENERIC: u32 = 2;
    /// The driver copies no frames.
    pub const ZERO_COPY: u32 = 4;
}

/// A socket with its rings and its memory.
struct Socket {
    socket: Arc<OwnedFd>,
    /// All chunks.
    memory: Memory,
    chunk: usize,
    received: XdpRing,
    send: XdpRing,
    fill: XdpRing,
    sent: XdpRing,
}

impl Socket {
    /// Maps a socket that is not bound yet, and gives the kernel all chunks for received frames.
    fn new(socket: OwnedFd, memory: &OwnedFd) -> Result<Socket, HostError> {
        let mapping = Mapping::sealed(memory)?;
        let chunk = mapping.len() / (2 * XDP_RING);
        let memory = Memory::new(vec![mapping.region()]).unwrap_or_default();
        let places = xdp_rings(socket.as_fd())?;
        let mut rings = Vec::new();
        for place in places {
            let mapping = Mapping::of_device(&socket, place.offset, place.len)?;
            let memory = Memory::new(vec![mapping.region()]).unwrap_or_default();
            rings.push(XdpRing::new(memory, &place));
        }
        let wrong = HostError::Impossible { offset: 0, len: 0 };
        let [received, send, fill, sent] = rings.try_into().map_err(|_| wrong)?;
        let socket = Socket { socket: Arc::new(socket), memory, chunk, received, send, fill, sent };
        (0..XDP_RING).for_each(|number| socket.fill.set_address(number as u32, (number * chunk) as u64));
        socket.fill.set_producer(XDP_RING as u32);
        Ok(socket)
    }
}

/// What a queue has while its interface is there.
#[derive(Default)]
struct Open {
    socket: Option<(Socket, InterfacePage)>,
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
    fn socket<'t>(&self, turn: &'t Turn<'_>) -> Option<(&'t Socket, &'t InterfacePage, u64)> {
        let open = self.open.read(turn);
        open.socket.as_ref().map(|(socket, page)| (socket, page, open.number))
    }
}
