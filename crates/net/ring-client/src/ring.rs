//! A ring with both directions, and waiting for it.

use crate::attachment::PAUSES;
use crate::connect::{Map, Pool, RingOptions, UNANNOUNCED, ask, connect, get, map_anywhere};
use crate::device;
use crate::shared::Shared;
use crate::{RingError, Rx, Tx};
use ringway_mem::Region;
use ringway_ring::{RX, RingKind, RingMemory, TX};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of slots to wait for in each direction. 0: none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Filled slots to receive.
    pub rx: u32,
    /// Free slots for sending.
    pub tx: u32,
}

impl Wait {
    /// Anything to receive.
    pub const RX: Wait = Wait { rx: 1, tx: 0 };
    /// Room to send anything.
    pub const TX: Wait = Wait { rx: 0, tx: 1 };
}

/// A ring to a port, or one end of a pipe.
#[derive(Debug)]
pub struct Ring {
    /// The sending direction.
    pub tx: Tx,
    /// The receiving direction.
    pub rx: Rx,
    pub(crate) shared: Arc<Shared>,
    pub(crate) origin: Origin,
    pub(crate) spin: Duration,
    pub(crate) is_second: bool,
}

/// Where a ring comes from.
#[derive(Debug)]
pub(crate) enum Origin {
    /// A socket, and the port that it was connected to, if this program knows it.
    Socket(UnixStream, Option<(PathBuf, RingOptions)>),
    Device(PathBuf, device::Registers),
}

impl Origin {
    /// Sets the port of a socket, if this program knows it.
    fn with_port(self, port: Option<(PathBuf, RingOptions)>) -> Origin {
        match self {
            Origin::Socket(socket, _) => Origin::Socket(socket, port),
            device @ Origin::Device(..) => device,
        }
    }
}

impl Ring {
    /// The ring of the port at `path`, a socket, or of the PCI device whose folder in sysfs is `path`.
    pub fn open(path: &Path) -> Result<Ring, RingError> {
        if path.is_dir() { Ring::open_device(path) } else { Ring::connect(path) }
    }

    /// In a guest: the ring of a port of kind `ring-pci`, whose device has the folder `path`,
    /// `/sys/bus/pci/devices/ADDRESS`. The sizes are the port's. If vfio-pci has the device, its interrupt wakes this
    /// program; otherwise nobody does, so that [`Ring::wait`] looks every 100 us, and root's rights are needed.
    pub fn open_device(path: &Path) -> Result<Ring, RingError> {
        let (shared, registers) = device::open(path)?;
        let shared = Arc::new(shared);
        let (tx, rx) = (Tx::new(shared.clone(), TX), Rx::new(shared.clone(), RX));
        let origin = Origin::Device(path.into(), registers);
        Ok(Ring { tx, rx, shared, origin, spin: Duration::ZERO, is_second: false })
    }

    /// Connects to the port at `path`, or at `SOCKET:PORT` with a switch's socket, which makes one. The parameters are
    /// the defaults. On a pipe this waits for the other end, and on a port while another program has it; after a second
    /// a warning says so ([`tracing`]).
    pub fn connect(path: &Path) -> Result<Ring, RingError> {
        Ring::connect_with(path, RingOptions::default(), None)
    }

    /// As `connect`, with the parameters `options`, waiting at most `timeout`.
    pub fn connect_with(
        path: &Path,
        options: RingOptions,
        timeout: Option<Duration>,
    ) -> Result<Ring, RingError> {
        let ring = Ring::over(ask(connect(path)?, options, None)?, timeout, &map_anywhere, None)?;
        Ok(Ring { origin: ring.origin.with_port(Some((path.into(), options))), ..ring })
    }

    /// As `connect_with`, again and again after delays that grow to a second, while nobody listens or the ring is
    /// refused, as long as another program has it.
    fn connect_again(
        path: &Path,
        options: RingOptions,
        timeout: Option<Duration>,
    ) -> Result<Ring, RingError> {
        let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let left = || end.map(|end| end.saturating_duration_since(Instant::now()));
        let [first, most] = [PAUSES.0, PAUSES.1].map(Duration::from_nanos);
        let (mut pause, began, mut is_told) = (first, Instant::now(), false);
        loop {
            match Ring::connect_with(path, options, left()) {
                Err(error) if error.may_pass() && left() != Some(Duration::ZERO) => {
                    if !is_told && began.elapsed() >= UNANNOUNCED {
                        is_told = true;
                        tracing::warn!("waits for the ring of {}: {error}", path.display());
                    }
                }
                tried => return tried,
            }
            std::thread::sleep(left().map_or(pause, |left| left.min(pause)));
            pause = (pause * 2).min(most);
        }
    }

    fn over(
        socket: UnixStream,
        timeout: Option<Duration>,
        map: Map<'_>,
        pool: Option<Region>,
    ) -> Result<Ring, RingError> {
        let got = get(&socket, timeout, map, pool)?;
        let (tx, rx) = (Tx::new(got.shared.clone(), got.rings[0]), Rx::new(got.shared.clone(), got.rings[1]));
        let is_second = got.rings == [RX, TX];
        let origin = Origin::Socket(socket, None);
        Ok(Ring { tx, rx, shared: got.shared, origin, spin: Duration::ZERO, is_second })
    }

    /// Another ring after [`RingError::Closed`] or [`RingError::Broken`]; frames in the old memory are lost. A pipe
    /// waits for its new other end, a PCI device is opened again, and a program that connected to a port by its path
    /// connects to it again, as soon as its fabric is up.
    ///
    /// # Errors
    /// After `timeout`, or what can't pass: the socket is another user's, or the port refuses such a ring for good
    /// ([`RingError::Unsuitable`]).
    pub fn renew(self, timeout: Option<Duration>) -> Result<Ring, RingError> {
        let (spin, is_pipe) = (self.spin, self.kind() == RingKind::Pipe);
        let Ring { tx, rx, shared, origin, .. } = self;
        // A port, or a PCI device, has one program at a time.
        drop((tx, rx, shared));
        let new = match origin {
            Origin::Socket(socket, port) => {
                let next = if is_pipe {
                    Ring::over(socket, timeout, &map_anywhere, None)
                } else {
                    // The port has this program until its socket hangs up.
                    drop(socket);
                    Err(RingError::Closed)
                };
                match (next, port) {
                    (Ok(ring), port) => Ring { origin: ring.origin.with_port(port), ..ring },
                    (Err(RingError::Closed), Some((path, options))) => {
                        Ring::connect_again(&path, options, timeout)?
                    }
                    (Err(error), _) => return Err(error),
                }
            }
            Origin::Device(path, registers) => {
                drop(registers);
                Ring::open_device(&path)?
            }
        };
        Ok(Ring { spin, ..new })
    }

    /// Drops the ring, and prepares to receive another from the pipe's new other end over the same socket, if it came
    /// over a socket.
    pub fn another(self) -> Option<PendingRing> {
        match self.origin {
            Origin::Socket(socket, _) => Some(PendingRing { socket, pool: None }),
            Origin::Device(..) => None,
        }
    }

    /// Tells when the fabric has ended its use of the ring, also after this program has dropped it.
    pub fn closing(&self) -> Closing {
        Closing(self.shared.memory.clone())
    }

    /// The kind of ring: to a port, or a pipe.
    pub fn kind(&self) -> RingKind {
        self.shared.memory.kind()
    }

    /// Whether this is a pipe's second end, which fills ring 1.
    pub fn is_second(&self) -> bool {
        self.is_second
    }

    /// The memory of the rings, for a program such as a guest that uses it in place of this one.
    pub fn region(&self) -> &Region {
        self.shared.memory.region()
    }

    /// The eventfd that notifies the other side; none for a device, which has a register.
    pub fn kick_fd(&self) -> Option<BorrowedFd<'_>> {
        self.shared.kick_fd().map(|kick| kick.as_fd())
    }

    /// Bytes of a slot's buffer.
    pub fn slot_size(&self) -> u32 {
        self.shared.memory.slot_size()
    }

    /// Whether its buffers are the program's ([`Pool`]). They are not, although the program has brought them, if the
    /// fabric is of a former version, if the port is a pipe, and while the port closes what another program has passed
    /// to it.
    #[inline]
    pub fn has_pool(&self) -> bool {
        self.shared.memory.has_pool()
    }

    /// Number of buffers. Buffers beyond the total number of slots are initially in no slot.
    pub fn buffers(&self) -> u32 {
        self.shared.memory.header().buffers
    }

    /// Sets how long [`Ring::wait`] polls the memory before it sleeps. Sleeping costs several microseconds,
    /// polling costs a core.
    pub fn set_spin(&mut self, spin: Duration) {
        self.spin = spin;
    }

    /// `sync` of both directions; an error if the ring is closed.
    #[inline]
    pub fn sync(&mut self) -> Result<(), RingError> {
        self.tx.sync()?;
        self.rx.sync()?;
        if self.shared.memory.is_closed() { Err(RingError::Closed) } else { Ok(()) }
    }

    /// Syncs, then waits for `wait`. `false` after `timeout`.
    pub fn wait(&mut self, wait: Wait, timeout: Option<Duration>) -> Result<bool, RingError> {
        self.sync()?;
        if self.is_there(wait)? {
            return Ok(true);
        }
        let started = Instant::now();
        while started.elapsed() < self.spin {
            if self.is_there(wait)? {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        while self.arm(wait)? {
            let left = timeout.map(|timeout| timeout.saturating_sub(started.elapsed()));
            let woken = self.shared.sleep(left)?;
            if self.shared.memory.is_closed() {
                return Err(RingError::Closed);
            }
            if !woken && left.is_some_and(|left| left.is_zero()) {
                self.disarm(wait);
                return self.is_there(wait);
            }
        }
        Ok(true)
    }

    /// Asks the other side to notify us, through the descriptor of [`Ring::as_fd`], when `wait` is satisfied.
    /// `false`: it is already. For programs that wait on several descriptors; [`Ring::wait`] does this
    /// itself.
    pub fn arm(&mut self, wait: Wait) -> Result<bool, RingError> {
        let rx = wait.rx == 0 || self.rx.arm(wait.rx)?;
        let tx = wait.tx == 0 || self.tx.arm(wait.tx)?;
        if !(rx && tx) {
            self.disarm(wait);
            return Ok(false);
        }
        self.shared.arm()?;
        Ok(true)
    }

    /// Cancels [`Ring::arm`].
    pub fn disarm(&mut self, wait: Wait) {
        if wait.rx != 0 {
            self.rx.disarm();
        }
        if wait.tx != 0 {
            self.tx.disarm();
        }
    }

    fn is_there(&mut self, wait: Wait) -> Result<bool, RingError> {
        let rx = wait.rx != 0 && self.rx.available(wait.rx)? >= wait.rx.min(self.rx.slots());
        Ok(rx || wait.tx != 0 && self.tx.room(wait.tx)? >= wait.tx.min(self.tx.slots()))
    }

    /// Whether the other side closed the ring, or has another one; never of a PCI device's.
    pub fn is_hung_up(&self) -> bool {
        self.socket().is_some_and(crate::attachment::is_readable)
    }

    /// All its descriptors: a process that forked and does not use the ring in the child closes them there.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        let shared = &self.shared;
        let own = [shared.call.as_fd(), shared.epoll()];
        own.into_iter().chain(self.kick_fd()).chain(self.socket()).collect()
    }

    /// The socket that delivered the ring, if it came over one. It hangs up when the ring is closed.
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.origin {
            Origin::Socket(socket, _) => Some(socket.as_fd()),
            Origin::Device(..) => None,
        }
    }
}

/// Whether a fabric still uses a ring. It closes the ring a while after the program has hung up, and writes received
/// frames to its buffers until then: a program that has brought them ([`Pool`]) uses them for nothing else before.
#[derive(Clone, Debug)]
pub struct Closing(RingMemory);

impl Closing {
    /// Whether the fabric has closed the ring. Never, if it ended without doing so.
    pub fn is_over(&self) -> bool {
        self.0.is_closed()
    }
}

/// The eventfd that the other side writes after [`Ring::arm`], or a timer in its place. It stays readable until it is
/// read, so watch it edge-triggered, or read it.
impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.call.as_fd()
    }
}

/// A requested ring that has not arrived, for programs that wait on several descriptors.
#[derive(Debug)]
pub struct PendingRing {
    pub(crate) socket: UnixStream,
    pub(crate) pool: Option<Region>,
}

impl PendingRing {
    /// Requests a ring from the port at `path`.
    pub fn connect(path: &Path, options: RingOptions) -> Result<PendingRing, RingError> {
        PendingRing::over(connect(path)?, options)
    }

    /// Requests a ring from the port that `socket` is connected to.
    pub fn over(socket: UnixStream, options: RingOptions) -> Result<PendingRing, RingError> {
        Ok(PendingRing { socket: ask(socket, options, None)?, pool: None })
    }

    /// As [`PendingRing::connect`], with buffers of this program.
    pub fn connect_with_pool(
        path: &Path,
        options: RingOptions,
        pool: Pool<'_>,
    ) -> Result<PendingRing, RingError> {
        let socket = ask(connect(path)?, options, Some(&pool))?;
        Ok(PendingRing { socket, pool: Some(pool.region) })
    }

    /// The ring, once the socket is readable; waits at most `timeout`.
    pub fn ring(self, timeout: Option<Duration>) -> Result<Ring, RingError> {
        self.ring_by(timeout, &map_anywhere)
    }

    /// The ring, with its memory mapped by `map`, once the socket is readable; waits at most `timeout`.
    pub fn ring_by(self, timeout: Option<Duration>, map: Map<'_>) -> Result<Ring, RingError> {
        Ring::over(self.socket, timeout, map, self.pool)
    }
}

/// The socket that will deliver the ring.
impl AsFd for PendingRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
