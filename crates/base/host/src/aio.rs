//! Signalling eventfds whose open file description a peer shares.
//!
//! A write to a full eventfd blocks unless its description has O_NONBLOCK, and the peer can clear that flag
//! at any time. The kernel's own signal never blocks: an asynchronous request that completes at once signals
//! the eventfd in `aio_resfd` (io_submit(2)). The same call distinguishes an eventfd from other descriptors
//! without calling into the file's own code.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::cell::OnceCell;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Once;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicPtr, AtomicU32};

/// Number of results that may wait to be read.
const EVENTS: usize = 256;
/// Number of attempts while other threads use up the freed room.
const TRIES: usize = 16;
// linux/aio_abi.h
const READ: u16 = 0;
const POLL: u16 = 5;
const RESFD: u32 = 1;

/// `struct iocb` of linux/aio_abi.h; the order of the first two words' halves matters to none of our fields.
#[derive(Default)]
#[repr(C)]
struct Request {
    data: u64,
    key_and_flags: u64,
    opcode: u16,
    priority: i16,
    fd: u32,
    buffer: u64,
    bytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: u32,
}

/// `struct io_event` of linux/aio_abi.h.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Event([u64; 4]);

/// A queue of requests.
struct Queue {
    id: libc::c_ulong,
    /// Always readable: a poll request completes at once.
    ready: OwnedFd,
    /// Not readable: a read request fails after its eventfd was checked.
    unreadable: OwnedFd,
    /// How many forks led to the process that made it. A child does not have it: the kernel leaves it out at fork.
    forks: u32,
}

/// The queue of threads without their own: the number of requests is limited system-wide (`fs.aio-max-nr`).
static SHARED: AtomicPtr<Queue> = AtomicPtr::new(std::ptr::null_mut());

/// How many forks led to this process since the first queue was made.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// In a child: the queues are its parent's. A child of the kernel's `clone` (`jail`) signals nothing.
extern "C" fn in_child() {
    FORKS.fetch_add(1, Relaxed);
    // SAFETY: it is null, or a queue that is never freed.
    if let Some(queue) = unsafe { SHARED.swap(std::ptr::null_mut(), AcqRel).as_ref() } {
        for fd in [&queue.ready, &queue.unreadable] {
            // SAFETY: nobody has the queue any more; it stays in the child's memory, so that they are closed once.
            unsafe { rustix::io::close(fd.as_raw_fd()) };
        }
    }
}

/// The shared queue.
fn shared() -> Option<&'static Queue> {
    // SAFETY: it is null, or a queue that is never freed.
    unsafe { SHARED.load(Acquire).as_ref() }
}

thread_local! {
    static OWN: OnceCell<Queue> = const { OnceCell::new() };
}

impl Queue {
    fn new() -> Result<Queue, Errno> {
        let ready = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let (_, unreadable) = pipe_with(PipeFlags::CLOEXEC)?;
        let mut id: libc::c_ulong = 0;
        // SAFETY: the kernel writes one number to `id`.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, EVENTS, &raw mut id) } == 0;
        let error = || Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO);
        static PREPARED: Once = Once::new();
        // SAFETY: the function only counts. It is removed if the library is unloaded.
        PREPARED.call_once(|| unsafe { _ = libc::pthread_atfork(None, None, Some(in_child)) });
        let forks = FORKS.load(Relaxed);
        if made { Ok(Queue { id, ready, unreadable, forks }) } else { Err(error()) }
    }

    fn is_own(&self) -> bool {
        self.forks == FORKS.load(Relaxed)
    }

    fn submit(&self, mut request: Request) -> Result<(), Errno> {
        let mut list = [&raw mut request];
        for _ in 0..TRIES {
            // SAFETY: `list` has one request, whose fields are numbers; none names memory that is written.
            let done = unsafe { libc::syscall(libc::SYS_io_submit, self.id, 1, list.as_mut_ptr()) };
            match Errno::from_io_error(&std::io::Error::last_os_error()) {
                _ if done == 1 => return Ok(()),
                Some(Errno::AGAIN) => self.forget(),
                error => return Err(error.unwrap_or(Errno::IO)),
            }
        }
        Err(Errno::AGAIN)
    }

    /// Makes room for the results of further requests.
    #[cold]
    fn forget(&self) {
        let mut events = [Event::default(); EVENTS];
        let none = std::ptr::null::<libc::timespec>();
        // SAFETY: the kernel writes at most `EVENTS` events to `events`, and waits for none.
        unsafe { libc::syscall(libc::SYS_io_getevents, self.id, 0, EVENTS, events.as_mut_ptr(), none) };
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // In a child, the number may be that of another queue.
        if self.is_own() {
            // SAFETY: takes a number, ours; all its requests are over.
            unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
        }
    }
}

/// Gives this thread its own queue, so that it does not contend with other threads. Threads without one use
/// the shared queue, which is created here too.
pub(crate) fn prepare() -> Result<(), Errno> {
    prepare_shared()?;
    let _ = OWN.try_with(|own| Queue::new().map(|queue| own.set(queue)));
    Ok(())
}

/// Creates the shared queue if it does not exist.
pub(crate) fn prepare_shared() -> Result<(), Errno> {
    if shared().is_some() {
        return Ok(());
    }
    let new = Box::into_raw(Box::new(Queue::new()?));
    if SHARED.compare_exchange(std::ptr::null_mut(), new, AcqRel, Acquire).is_err() {
        // SAFETY: another thread was first, and nobody else has this one.
        drop(unsafe { Box::from_raw(new) });
    }
    Ok(())
}

/// Runs `work` on this thread's queue, or on the shared one; `None` if there is neither.
fn with<T>(work: impl FnOnce(&Queue) -> T) -> Option<T> {
    let run = |own: &OnceCell<Queue>| own.get().filter(|own| own.is_own()).or_else(|| shared()).map(work);
    OWN.try_with(run).ok().flatten()
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd() as u32
}

/// Signals an eventfd without ever waiting; `None` where that can't be done.
pub(crate) fn signal(fd: BorrowedFd<'_>) -> Option<()> {
    let readable = libc::POLLIN as u64;
    with(|queue| {
        let fd = number(fd);
        let poll = Request { opcode: POLL, buffer: readable, flags: RESFD, resfd: fd, ..Request::default() };
        queue.submit(Request { fd: queue.ready.as_raw_fd() as u32, ..poll }).ok()
    })
    .flatten()
}

/// Whether a descriptor is an eventfd; `None` if that can't be determined. No code of the file is called, and
/// an eventfd is not signalled.
pub(crate) fn is_eventfd(fd: BorrowedFd<'_>) -> Option<bool> {
    prepare_shared().ok()?;
    let result = with(|queue| {
        let read = Request { opcode: READ, flags: RESFD, resfd: number(fd), ..Request::default() };
        queue.submit(Request { fd: queue.unreadable.as_raw_fd() as u32, ..read })
    });
    match result? {
        Err(Errno::BADF) => Some(true),
        Err(Errno::INVAL) => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_child_makes_a_queue_of_its_own() {
        prepare().unwrap();
        let number = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap();
        // SAFETY: the child calls the kernel, allocates, for which the C library prepares it, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let had_queue = signal(number.as_fd()).is_some();
            let is_right = !had_queue && prepare_shared().is_ok() && signal(number.as_fd()).is_some();
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = -1;
        // SAFETY: the call writes the status.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert_eq!(signal(number.as_fd()), Some(()));
    }
}
