//! The wire: frames to and from one peer over UDP (VXLAN, Geneve, or a frame a datagram) or TCP.
//!
//! `codec.rs` has the headers, `send.rs` and `receive.rs` the queues of UDP, `stream.rs` those of TCP. Control opens
//! the sockets (`open.rs`), since the data process can't.

mod codec;
pub mod open;
mod peer;
mod receive;
mod send;
mod settings;
mod stream;
#[cfg(test)]
mod tests;

pub use codec::Codec;
pub use peer::KIND;
pub use settings::{Dscp, Encapsulation, Settings};

use crate::peer::Alarm;
use crate::{Doorbell, too_big};
use ringway_frame::{CountersRef, LARGEST};
use ringway_host::{Epoll, HostError, path_mtu};
use ringway_mem::{Published, Turn};
use ringway_wire::ethernet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::sync::{Arc, Mutex};

/// Most source ports of a port. The two sets of their sockets and `RECEIVERS` fit into a message to the data process,
/// which has 64 descriptors.
pub const SOURCE_PORTS: u16 = 31;
/// Answers that wait to enter the fabric. Attack: a sender of many frames that are too long.
const ANSWERS: usize = 8;

/// The sockets of UDP.
struct Datagrams {
    /// Becomes readable when one of the receiving sockets does.
    readable: Arc<OwnedFd>,
    /// Receives what the peer sends.
    receiver: OwnedFd,
    /// Receives what others send to the same address and port, to count it.
    strangers: OwnedFd,
    /// Sends datagrams, one for each source port.
    senders: Vec<OwnedFd>,
    /// Sends datagrams without a checksum, one for each source port; empty if all have one.
    unfilled: Vec<OwnedFd>,
}

/// Number of descriptors before those of the source ports.
const RECEIVERS: usize = 2;

impl Datagrams {
    /// From the descriptors of [`open::datagrams`]. `None`: there are too few.
    fn new(mut descriptors: Vec<OwnedFd>, source_ports: usize) -> Result<Option<Datagrams>, HostError> {
        let counts = [RECEIVERS + source_ports, RECEIVERS + 2 * source_ports];
        if source_ports == 0 || !counts.contains(&descriptors.len()) {
            return Ok(None);
        }
        let mut senders = descriptors.split_off(RECEIVERS);
        let unfilled = senders.split_off(source_ports);
        let (Some(strangers), Some(receiver)) = (descriptors.pop(), descriptors.pop()) else {
            return Ok(None);
        };
        let epoll = Epoll::new()?;
        for socket in [&receiver, &strangers] {
            epoll.add_level(socket.as_fd(), 0)?;
        }
        let readable = Arc::new(OwnedFd::from(epoll));
        Ok(Some(Datagrams { readable, receiver, strangers, senders, unfilled }))
    }

    /// Longest frame that the path carries and the settings permit; `None` if there is no path now.
    fn largest(&self, limits: Limits) -> Option<u32> {
        let mtu = path_mtu(self.senders.first()?.as_fd(), limits.ipv6)?;
        let path = mtu.min(u32::from(u16::MAX)).saturating_sub(limits.overhead);
        let configured = limits.mtu.map_or(LARGEST, |mtu| u32::from(mtu) + ethernet::HEADER_LEN as u32);
        Some(path.min(configured))
    }
}

/// What the longest frame follows from, besides the path.
#[derive(Clone, Copy)]
struct Limits {
    ipv6: bool,
    /// Bytes of the headers before a frame.
    overhead: u32,
    mtu: Option<u16>,
}

impl Limits {
    fn of(settings: &Settings) -> Limits {
        Limits { ipv6: settings.peer.is_ipv6(), overhead: settings.overhead(), mtu: settings.mtu }
    }
}

/// The sockets, while there are some.
#[derive(Default)]
struct Open {
    datagrams: Option<Datagrams>,
    stream: Option<Arc<OwnedFd>>,
    /// Number of the stream, from 1.
    number: u64,
    /// A worker found the stream closed or broken.
    is_gone: AtomicBool,
}

/// What both queues share.
struct Shared {
    open: Published<Open>,
    doorbell: Arc<dyn Doorbell>,
    counters: CountersRef,
    alarm: Arc<Alarm>,
    /// Longest frame on the wire, Ethernet header included.
    largest: AtomicU32,
    /// Answers to frames that are too long, on their way into the fabric. Workers only try the lock.
    answers: Mutex<Vec<Vec<u8>>>,
}

impl Shared {
    #[inline]
    fn datagrams<'t>(&self, turn: &'t Turn<'_>) -> Option<&'t Datagrams> {
        self.open.read(turn).datagrams.as_ref()
    }

    /// Replaces the sockets; the former ones are closed when this returns.
    fn replace(&self, open: Open) {
        drop(ringway_host::reclaim(self.open.replace(Arc::new(open))));
        // Only now: until then a worker may have armed the queue and watched the old sockets.
        self.doorbell.unwatch();
        self.doorbell.wake();
    }
}
