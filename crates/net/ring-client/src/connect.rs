//! Requesting a ring over the port's UNIX socket.

use crate::RingError;
use crate::shared::Shared;
use ringway_host::{HostError, Mapping, receive_with, send_with};
use ringway_mem::Region;
use ringway_ring::{BufferPool, FEATURES, Hello, PortName, RX, RingKind, RingMemory, TX, Welcome};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
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

/// Buffers of this program for a ring, instead of those that Ringway makes. Several rings can have the same ones.
#[derive(Clone, Debug)]
pub struct Pool<'p> {
    /// Their memory, a memfd that is sealed against shrinking and growing.
    pub file: BorrowedFd<'p>,
    /// The same, mapped as a whole.
    pub region: Region,
    /// Where in it they are. They are [`RingOptions::slot_size`] bytes apart, which must not be 0.
    pub place: BufferPool,
}

/// A received ring.
pub(crate) struct Got {
    pub shared: Arc<Shared>,
    /// Numbers of the rings that this side fills and empties.
    pub rings: [usize; 2],
}

/// Connects to the port at `path`: its socket, or `SOCKET:PORT` to open it on the switch that has this socket.
pub(crate) fn connect(path: &Path) -> Result<UnixStream, RingError> {
    let failed = |error| RingError::Connect { path: path.into(), error };
    let Some((socket, port)) = opened(path) else { return UnixStream::connect(path).map_err(failed) };
    let mut stream = UnixStream::connect(socket).map_err(failed)?;
    stream.write_all(&port.to_bytes())?;
    Ok(stream)
}

/// The socket of a switch and the port to open there, if no file has the path.
fn opened(path: &Path) -> Option<(PathBuf, PortName)> {
    let (socket, port) = path.file_name()?.to_str()?.rsplit_once(':')?;
    let port = PortName::new(port).filter(|_| !socket.is_empty() && !path.exists())?;
    Some((path.with_file_name(socket), port))
}

/// Requests a ring.
pub(crate) fn ask(
    mut socket: UnixStream,
    options: RingOptions,
    pool: Option<&Pool<'_>>,
) -> Result<UnixStream, RingError> {
    let hello = Hello {
        slots: options.slots,
        slot_size: options.slot_size,
        extra: options.extra,
        features: if options.offloads { FEATURES } else { 0 },
        largest: options.largest,
        has_pool: pool.is_some(),
    };
    socket.write_all(&hello.to_bytes())?;
    if let Some(pool) = pool {
        send_pool(&socket, pool)?;
    }
    Ok(socket)
}

/// Says where the program's buffers are.
fn send_pool(socket: &UnixStream, pool: &Pool<'_>) -> Result<(), RingError> {
    // The message is far shorter than a socket's buffer.
    match send_with(socket, &pool.place.to_bytes(), &[pool.file]) {
        // A fabric of a former version, which does not wait for it, may have answered and closed.
        Err(HostError::Call { error: Errno::PIPE | Errno::CONNRESET, .. }) => Ok(()),
        sent => Ok(sent.map(drop)?),
    }
}

/// Maps a ring's memory, a sealed memfd.
pub type Map<'a> = &'a dyn Fn(&OwnedFd) -> Result<Region, HostError>;

/// Maps it where there is room.
pub(crate) fn map_anywhere(file: &OwnedFd) -> Result<Region, HostError> {
    Ok(Mapping::sealed(file)?.region())
}

/// How long a program waits for a ring before that is logged.
pub(crate) const UNANNOUNCED: Duration = Duration::from_secs(1);

/// Logs that a program waits for a ring that was asked for.
fn log_waiting(socket: &UnixStream) {
    let address = socket.peer_addr().ok();
    let path = address.as_ref().and_then(|address| address.as_pathname());
    let port = path.unwrap_or(Path::new("the port")).display();
    tracing::warn!(
        "waits for the ring of {port}: connected, but it gives none; another program may have it, \
         or a pipe's other end is missing: `ringway ps` shows it"
    );
}

/// Waits for the ring.
pub(crate) fn get(
    socket: &UnixStream,
    timeout: Option<Duration>,
    map: Map<'_>,
    pool: Option<Region>,
) -> Result<Got, RingError> {
    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut bytes = [0; Welcome::SIZE];
    let (mut filled, mut descriptors) = (0, Vec::new());
    tell_late(socket, end, UNANNOUNCED, || log_waiting(socket))?;
    while filled < bytes.len() {
        wait_readable(socket, end)?;
        let received = receive_with(socket.as_fd(), &mut bytes[filled..], Welcome::DESCRIPTORS);
        let (count, mut new) = match received {
            // The server closed before it read the request.
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
    let end = welcome.end().map_err(|why| match welcome.is_final() {
        true => RingError::Unsuitable(why.into()),
        false => RingError::Refused(why.into()),
    })?;
    let count = descriptors.len();
    let [memory, kick, call]: [OwnedFd; Welcome::DESCRIPTORS] =
        descriptors.try_into().map_err(|_| RingError::Descriptors(count))?;
    let memory = RingMemory::attach_with(map(&memory)?, pool)?;
    let rings = match memory.kind() {
        RingKind::Pipe if end == 1 => [RX, TX],
        _ => [TX, RX],
    };
    Ok(Got { shared: Arc::new(Shared::new(memory, kick, call, socket)?), rings })
}

/// Waits for an answer; calls `late` if there is none `after` a while.
fn tell_late(
    socket: &UnixStream,
    end: Option<Instant>,
    after: Duration,
    late: impl FnOnce(),
) -> Result<(), RingError> {
    let first = Instant::now().checked_add(after);
    if end.is_some() && end <= first {
        return Ok(());
    }
    match wait_readable(socket, first) {
        Err(RingError::TimedOut) => {
            late();
            Ok(())
        }
        waited => waited,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_without_a_file_names_a_port_of_a_switch() {
        let folder = std::env::temp_dir();
        let name = format!("rw-switch-{}", std::process::id());
        let path = folder.join(format!("{name}:me"));
        assert_eq!(opened(&path), Some((folder.join(&name), PortName::new("me").unwrap())));
        std::fs::write(&path, "").unwrap();
        assert_eq!(opened(&path), None, "a port's own socket may have such a name");
        std::fs::remove_file(&path).unwrap();
        for none in ["a.sock", ":me", "switch:", "/"] {
            assert_eq!(opened(none.as_ref()), None, "{none}");
        }
    }

    #[test]
    fn a_fabric_that_refuses_before_it_reads_the_pool_is_heard() {
        let (own, other) = UnixStream::pair().unwrap();
        (&other).write_all(&Welcome::refused("another program has it").to_bytes()).unwrap();
        drop(other);
        let file = ringway_host::memfd("pool", 4096).unwrap();
        let region = Mapping::sealed(&file).unwrap().region();
        let place = BufferPool { at: 0, buffers: 2, first: 1 };
        send_pool(&own, &Pool { file: file.as_fd(), region, place }).unwrap();
        match get(&own, None, &map_anywhere, None) {
            Err(RingError::Refused(why)) => assert_eq!(why, "another program has it"),
            other => panic!("{:?}", other.map(drop)),
        }
    }

    #[test]
    fn a_program_that_waits_long_is_told() {
        let (own, other) = UnixStream::pair().unwrap();
        let mut told = 0;
        let long = || Instant::now().checked_add(Duration::from_secs(3600));
        tell_late(&own, long(), Duration::ZERO, || told += 1).unwrap();
        tell_late(&own, None, Duration::from_millis(1), || told += 1).unwrap();
        assert_eq!(told, 2);
        // The client gives up itself before.
        tell_late(&own, Instant::now().checked_add(Duration::ZERO), UNANNOUNCED, || told += 1).unwrap();
        assert_eq!(told, 2);
        // The client has an answer.
        (&other).write_all(&[0]).unwrap();
        tell_late(&own, None, Duration::from_secs(3600), || told += 1).unwrap();
        assert_eq!(told, 2);
    }
}
