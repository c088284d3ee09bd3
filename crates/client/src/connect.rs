//! Requesting a ring over the port's UNIX socket.

use crate::RingError;
use crate::link::Link;
use ringway_host::{HostError, Mapping, receive_with};
use ringway_mem::Region;
use ringway_ring::{FEATURES, Hello, RX, RingKind, RingMemory, TX, Welcome};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Parameters of the requested ring. 0 leaves the choice to Ringway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingOptions {
    /// Slots for sending and for receiving, powers of two from 64 to 4096.
    pub slots: [u32; 2],
    /// Bytes of a slot's buffer, a multiple of 64 up to 32,768. Longer frames take several slots.
    pub slot_size: u32,
    /// Buffers in addition to one per slot.
    pub extra: u32,
    /// Whether this program accepts frames with checksums to fill and segmentation to do, as described by
    /// [`crate::Received::offload`]; otherwise Ringway does both first.
    pub offloads: bool,
    /// Largest frame in bytes that it accepts without segmentation.
    pub largest: u32,
}

/// A received ring.
pub(crate) struct Got {
    pub link: Arc<Link>,
    /// Numbers of the rings that this side fills and empties.
    pub rings: [usize; 2],
}

/// Connects to the port at `path`.
pub(crate) fn connect(path: &Path) -> Result<UnixStream, RingError> {
    UnixStream::connect(path).map_err(|error| RingError::Connect { path: path.into(), error })
}

/// Requests a ring.
pub(crate) fn ask(mut socket: UnixStream, options: RingOptions) -> Result<UnixStream, RingError> {
    let hello = Hello {
        slots: options.slots,
        slot_size: options.slot_size,
        extra: options.extra,
        features: if options.offloads { FEATURES } else { 0 },
        largest: options.largest,
    };
    socket.write_all(&hello.to_bytes())?;
    Ok(socket)
}

/// Maps a ring's memory, a sealed memfd.
pub type Map<'a> = &'a dyn Fn(&OwnedFd) -> Result<Region, HostError>;

/// Maps it where there is room.
pub(crate) fn anywhere(file: &OwnedFd) -> Result<Region, HostError> {
    Ok(Mapping::sealed(file)?.region())
}

/// Waits for the ring.
pub(crate) fn get(socket: &UnixStream, timeout: Option<Duration>, map: Map<'_>) -> Result<Got, RingError> {
    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut bytes = [0; Welcome::SIZE];
    let (mut filled, mut descriptors) = (0, Vec::new());
    while filled < bytes.len() {
        wait_readable(socket, end)?;
        let received = receive_with(socket.as_fd(), &mut bytes[filled..], Welcome::DESCRIPTORS);
        let (count, mut new) = match received {
            // It was closed before it read the request.
            Err(HostError::Call { error: Errno::CONNRESET, .. }) => return Err(RingError::Closed),
            received => received?,
        };
        if count == 0 {
            return Err(RingError::Closed);
        }
        filled += count;
        descriptors.append(&mut new);
    }
    let welcome = Welcome::from_bytes(&bytes)?;
    let end = welcome.end().map_err(|why| RingError::Refused(why.into()))?;
    let count = descriptors.len();
    let [memory, kick, call]: [OwnedFd; Welcome::DESCRIPTORS] =
        descriptors.try_into().map_err(|_| RingError::Descriptors(count))?;
    let memory = RingMemory::attach(map(&memory)?)?;
    let rings = match memory.kind() {
        RingKind::Pipe if end == 1 => [RX, TX],
        _ => [TX, RX],
    };
    Ok(Got { link: Arc::new(Link::new(memory, kick, call, socket)?), rings })
}

fn wait_readable(socket: &UnixStream, end: Option<Instant>) -> Result<(), RingError> {
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let timeout = left.map(|left| rustix::time::Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: i64::from(left.subsec_nanos()),
        });
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], timeout.as_ref()) {
            Ok(0) => return Err(RingError::TimedOut),
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}
