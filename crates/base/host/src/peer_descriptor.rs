//! Descriptors from peers: their kind, and signalling through them.

use crate::aio;
use crate::clock::ticks;
use crate::error::HostError;
use crate::event::EventFd;
use crate::time_limit::Budget;
use rustix::io::Errno;
use rustix::net::AddressFamily;
use rustix::pipe::{PipeFlags, SpliceFlags};
use std::cell::{Cell, OnceCell};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, OnceLock};

/// The number added to an eventfd, and the bytes for a front-end that uses a pipe instead.
const ONE: [u8; 8] = 1_u64.to_ne_bytes();

/// Kinds of descriptors on which no call of ours waits for a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FdKind {
    /// Memory: a memfd, or a file on tmpfs or hugetlbfs.
    Memory,
    /// An eventfd.
    EventFd,
    /// A pipe's end.
    Pipe,
    /// A UNIX socket.
    Socket,
}

impl FdKind {
    /// The kind of a descriptor; `None` for unsupported kinds.
    ///
    /// Attack: a file on a file system that the peer serves itself. Querying, polling, writing or closing it
    /// takes as long as the peer likes. So only queries are used here that the kernel answers without the
    /// file system.
    pub fn of(fd: BorrowedFd<'_>) -> Option<FdKind> {
        if rustix::fs::fcntl_get_seals(fd).is_ok() {
            return Some(FdKind::Memory);
        }
        match rustix::net::sockopt::socket_domain(fd) {
            Ok(AddressFamily::UNIX) => return Some(FdKind::Socket),
            // Attack: closing a TCP socket may block for the linger time set by the peer.
            Ok(_) => return None,
            Err(_) => {}
        }
        if rustix::pipe::fcntl_getpipe_size(fd).is_ok() {
            return Some(FdKind::Pipe);
        }
        aio::is_eventfd(fd).unwrap_or_else(|| is_anonymous(fd)).then_some(FdKind::EventFd)
    }
}

/// Whether a descriptor has no file type, as is the case for an eventfd.
fn is_anonymous(fd: BorrowedFd<'_>) -> bool {
    // Not through `std`, which uses a system call that confined processes may not make.
    let mode = rustix::fs::fstat(fd).map(|seen| rustix::fs::FileType::from_raw_mode(seen.st_mode));
    mode == Ok(rustix::fs::FileType::Unknown)
}

/// Lets this thread signal shared eventfds without contending with other threads. `Err`: asynchronous I/O is
/// unavailable, and helper threads signal such eventfds, some microseconds later.
pub fn prepare_signals() -> Result<(), HostError> {
    aio::prepare().map_err(|error| HostError::Call { call: "io_setup", error })
}

thread_local! {
    /// Ticks and number of this thread's signals; `None`: they are not timed.
    static TIMED: Cell<Option<(u64, u64)>> = const { Cell::new(None) };
}

/// Has this thread's signals timed from now on, or no longer.
pub fn time_signals(on: bool) {
    TIMED.set(on.then_some((0, 0)));
}

/// Ticks that this thread's signals took since the last call, and their number, while they are timed.
pub fn timed_signals() -> (u64, u64) {
    let timed = TIMED.get();
    if timed.is_some_and(|(_, count)| count > 0) {
        TIMED.set(Some((0, 0)));
    }
    timed.unwrap_or_default()
}

/// Signals a shared eventfd once, asynchronously, before it is closed. Never blocks.
pub fn signal_once(fd: BorrowedFd<'_>) {
    // Where this is refused, the thread writes to the eventfd itself.
    let _ = aio::prepare_shared();
    // Without a thread or a descriptor, its waiters learn from their socket that it is closed.
    let helper = fd.try_clone_to_owned().ok().and_then(|fd| Helper::start(Arc::new(fd), None));
    helper.iter().for_each(Helper::signal);
}

/// Why a peer can't be woken by a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignalError {
    /// The descriptor can't be used for signalling.
    #[error("neither an eventfd nor a pipe")]
    Kind,
    /// Neither asynchronous I/O nor a thread is available.
    #[error(
        "an eventfd that can't be signalled without waiting: the system refuses io_setup (see \
         fs.aio-max-nr), and there are {PEERS_HELPERS} threads for such eventfds of its peer already, or \
         {HELPERS} in all"
    )]
    NoHelper,
}

/// A peer's descriptor for wake-ups. Signalling never blocks.
#[derive(Debug)]
pub struct Signal {
    fd: Arc<OwnedFd>,
    sort: FdKind,
    /// Signals an eventfd where asynchronous I/O is refused.
    helper: OnceLock<Option<Helper>>,
    budget: Option<Arc<Budget>>,
}

impl Signal {
    /// A signal through an eventfd, a pipe or a socket (User-Mode Linux uses a socket as a pipe).
    pub fn of(fd: Arc<OwnedFd>) -> Result<Signal, SignalError> {
        Signal::new(fd, None)
    }

    /// As [`Signal::of`], at a peer's expense: once its budget is exceeded, wake-ups stop.
    pub fn charged_to(fd: Arc<OwnedFd>, budget: &Arc<Budget>) -> Result<Signal, SignalError> {
        Signal::new(fd, Some(budget.clone()))
    }

    fn new(fd: Arc<OwnedFd>, budget: Option<Arc<Budget>>) -> Result<Signal, SignalError> {
        let sort = FdKind::of(fd.as_fd()).filter(|sort| *sort != FdKind::Memory).ok_or(SignalError::Kind)?;
        let signal = Signal { fd, sort, helper: OnceLock::new(), budget };
        if sort == FdKind::EventFd && aio::prepare_shared().is_err() && signal.helper().is_none() {
            return Err(SignalError::NoHelper);
        }
        Ok(signal)
    }

    /// Wakes the peer.
    #[inline]
    pub fn send(&self) {
        match &self.budget {
            Some(budget) => budget.wake(|| self.wake_timed()),
            None => self.wake_timed(),
        }
    }

    #[inline]
    fn wake_timed(&self) {
        let Some((time, count)) = TIMED.get() else { return self.wake() };
        let before = ticks();
        self.wake();
        TIMED.set(Some((time + ticks().saturating_sub(before), count + 1)));
    }

    fn wake(&self) {
        let fd = self.fd.as_fd();
        match self.sort {
            FdKind::Pipe => signal_pipe(fd),
            FdKind::Socket => crate::unix_socket::signal_socket(fd, &ONE),
            FdKind::EventFd | FdKind::Memory => {
                if aio::signal(fd).is_none() {
                    self.helper().into_iter().for_each(Helper::signal);
                }
            }
        }
    }

    #[cold]
    fn helper(&self) -> Option<&Helper> {
        let of_peer = self.budget.as_ref().map(|budget| budget.helpers());
        self.helper.get_or_init(|| Helper::start(self.fd.clone(), of_peer)).as_ref()
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Attack: a peer makes its eventfd blocking and fills it: the helper that writes it blocks until somebody
/// reads it, possibly forever. Then it sends the next eventfd. Largest number of helpers, and of those of one peer
/// and its predecessors.
const HELPERS: usize = 1024;
const PEERS_HELPERS: usize = 64;

/// A permit for one of a limited number of helpers, until dropped.
struct Permit(Arc<AtomicUsize>);

impl Permit {
    fn take(count: &Arc<AtomicUsize>, most: usize) -> Option<Permit> {
        let permit = Permit(count.clone());
        (count.fetch_add(1, Relaxed) < most).then_some(permit)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The number of helpers of this process.
static COUNT: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// A thread that signals one eventfd, and may wait for its peer.
#[derive(Debug)]
struct Helper {
    wanted: Arc<EventFd>,
    is_over: Arc<AtomicBool>,
}

impl Helper {
    fn start(fd: Arc<OwnedFd>, of_peer: Option<&Arc<AtomicUsize>>) -> Option<Helper> {
        let of_peer = match of_peer {
            Some(count) => Some(Permit::take(count, PEERS_HELPERS)?),
            None => None,
        };
        let permits = (of_peer, Permit::take(&COUNT, HELPERS)?);
        let wanted = Arc::new(EventFd::new().ok()?);
        let helper = Helper { wanted: wanted.clone(), is_over: Arc::new(AtomicBool::new(false)) };
        let is_over = helper.is_over.clone();
        let run = move || {
            let _permits = permits;
            while crate::wait_readable(&[wanted.as_fd()], None).is_ok() {
                if wanted.clear() && aio::signal(fd.as_fd()).is_none() {
                    // A full eventfd was signalled already.
                    let _ = rustix::io::write(&fd, &ONE);
                }
                if is_over.load(Relaxed) {
                    break;
                }
            }
        };
        crate::spawn("signals", None, run).ok()?;
        Some(helper)
    }

    fn signal(&self) {
        self.wanted.signal();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        self.wanted.signal();
    }
}

/// A pipe of this thread's own, to copy from.
struct Well {
    reader: OwnedFd,
    _writer: OwnedFd,
}

thread_local! {
    static WELL: OnceCell<Option<Well>> = const { OnceCell::new() };
}

fn well(bytes: &[u8]) -> Option<Well> {
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
    let written = rustix::io::write(&writer, bytes);
    (written == Ok(bytes.len())).then_some(Well { reader, _writer: writer })
}

/// Attack: a full pipe that the reader made blocking. Unlike a write, copying from our own pipe obeys a
/// non-blocking flag of the call itself (tee(2)).
fn signal_pipe(fd: BorrowedFd<'_>) {
    let copy = |well: &Well| rustix::pipe::tee(&well.reader, fd, ONE.len(), SpliceFlags::NONBLOCK);
    let _ = WELL.try_with(|own| own.get_or_init(|| well(&ONE)).as_ref().map(copy));
}

/// Guaranteed capacity of a pipe.
const SURE: usize = 4096;

/// Writes to a pipe without blocking, at most a page; bytes that don't fit are dropped.
pub(crate) fn write_pipe(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    let bytes = &bytes[..bytes.len().min(SURE)];
    let well = well(bytes).ok_or(Errno::MFILE)?;
    rustix::pipe::splice(&well.reader, None, fd, None, bytes.len(), SpliceFlags::NONBLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EventFd;
    use rustix::fs::OFlags;
    use std::io::Read;

    /// Clears O_NONBLOCK, as a peer that shares the file description can.
    fn make_blocking(fd: BorrowedFd<'_>) {
        let flags = rustix::fs::fcntl_getfl(fd).unwrap();
        rustix::fs::fcntl_setfl(fd, flags - OFlags::NONBLOCK).unwrap();
    }

    fn shared(fd: BorrowedFd<'_>) -> Signal {
        Signal::of(Arc::new(fd.try_clone_to_owned().unwrap())).unwrap()
    }

    #[test]
    fn a_full_blocking_eventfd_blocks_no_sender() {
        let event = EventFd::new().unwrap();
        let signal = shared(event.as_fd());
        make_blocking(event.as_fd());
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        (0..1000).for_each(|_| signal.send());
        assert!(event.clear());
        // The pipe is empty, so reading it would block.
        crate::set_nonblocking(event.as_fd()).unwrap();
        assert!(!event.clear());
        signal.send();
        assert!(event.clear());
    }

    #[test]
    fn a_full_blocking_pipe_blocks_no_sender() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let signal = shared(writer.as_fd());
        signal.send();
        let mut bytes = [0; 8];
        reader.read_exact(&mut bytes).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 1);
        (0..100_000).for_each(|_| signal.send());
        reader.read_exact(&mut bytes).unwrap();
        assert_eq!(u64::from_ne_bytes(bytes), 1);
        drop(reader);
        signal.send();
    }

    /// Attack: programs that disconnect and leave full eventfds that nobody reads.
    #[test]
    fn a_full_blocking_eventfd_that_is_signalled_once_keeps_no_thread() {
        let event = EventFd::new().unwrap();
        rustix::io::write(&event, &(u64::MAX - 1).to_ne_bytes()).unwrap();
        make_blocking(event.as_fd());
        signal_once(event.as_fd());
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while COUNT.load(Relaxed) > 0 {
            assert!(std::time::Instant::now() < end, "the thread waits for a reader");
            std::thread::yield_now();
        }
    }

    #[test]
    fn kinds_of_descriptors_are_recognized() {
        let sort = |fd: &dyn AsFd| FdKind::of(fd.as_fd());
        let event = EventFd::new().unwrap();
        assert_eq!(sort(&event), Some(FdKind::EventFd));
        assert!(!event.clear(), "a query signals nobody");
        assert_eq!(sort(&crate::memfd("test", 4096).unwrap()), Some(FdKind::Memory));
        let (reader, writer) = std::io::pipe().unwrap();
        assert_eq!((sort(&reader), sort(&writer)), (Some(FdKind::Pipe), Some(FdKind::Pipe)));
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(sort(&socket), Some(FdKind::Socket));
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let others: [&dyn AsFd; 4] = [
            &tcp,
            &std::fs::File::open("/proc/self/exe").unwrap(),
            &std::fs::File::open("/dev/zero").unwrap(),
            &crate::Epoll::new().unwrap(),
        ];
        for other in others {
            assert_eq!(sort(other), None);
            assert!(Signal::of(Arc::new(other.as_fd().try_clone_to_owned().unwrap())).is_err());
        }
    }
}
