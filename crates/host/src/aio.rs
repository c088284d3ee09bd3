//! Eventfds whose description a peer shares with us.
//!
//! A write to a full eventfd waits unless its description says O_NONBLOCK, and whoever shares the description can take
//! that back at any time. The kernel's own signal never waits: asynchronous I/O that is over at once sends it to the
//! eventfd named in `aio_resfd` (io_submit(2)). The same call tells an eventfd from any other descriptor without asking
//! the file behind it.

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use std::cell::OnceCell;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// Requests whose results may wait to be read.
const EVENTS: usize = 256;
// linux/aio_abi.h
const READ: u16 = 0;
const POLL: u16 = 5;
const TELL: u32 = 1;

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
    told: u32,
}

/// `struct io_event` of linux/aio_abi.h.
#[derive(Clone, Copy, Default)]
#[repr(C)]
struct Event([u64; 4]);

/// A thread's own queue of requests.
struct Queue {
    id: libc::c_ulong,
    /// Always readable: to poll it is over at once.
    ready: OwnedFd,
    /// Can't be read: a request to do so fails once its eventfd was looked at.
    unreadable: OwnedFd,
}

thread_local! {
    /// `None`: this kernel has no asynchronous I/O, or no more of it to give.
    static QUEUE: OnceCell<Option<Queue>> = const { OnceCell::new() };
}

impl Queue {
    fn new() -> Option<Queue> {
        let ready = eventfd(1, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()?;
        let (_, unreadable) = pipe_with(PipeFlags::CLOEXEC).ok()?;
        let mut id: libc::c_ulong = 0;
        // SAFETY: the kernel writes one number to `id`.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, EVENTS, &raw mut id) } == 0;
        made.then_some(Queue { id, ready, unreadable })
    }

    fn submit(&self, mut request: Request) -> Result<(), Errno> {
        let mut list = [&raw mut request];
        for _ in 0..2 {
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
        // SAFETY: takes a number, ours; all its requests are over.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
    }
}

/// Runs `work` on this thread's queue, if it can have one.
fn with<T>(work: impl FnOnce(&Queue) -> T) -> Option<T> {
    QUEUE.try_with(|queue| queue.get_or_init(Queue::new).as_ref().map(work)).ok().flatten()
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd() as u32
}

/// Signals an eventfd without ever waiting; `None` where that can't be done.
pub(crate) fn signal(fd: BorrowedFd<'_>) -> Option<()> {
    let readable = libc::POLLIN as u64;
    with(|queue| {
        let fd = number(fd);
        let poll = Request { opcode: POLL, buffer: readable, flags: TELL, told: fd, ..Request::default() };
        queue.submit(Request { fd: queue.ready.as_raw_fd() as u32, ..poll }).ok()
    })
    .flatten()
}

/// Whether a descriptor is an eventfd; `None` where that can't be told. The file behind it is not asked, and an
/// eventfd is not signalled.
pub(crate) fn is_eventfd(fd: BorrowedFd<'_>) -> Option<bool> {
    let result = with(|queue| {
        let read = Request { opcode: READ, flags: TELL, told: number(fd), ..Request::default() };
        queue.submit(Request { fd: queue.unreadable.as_raw_fd() as u32, ..read })
    });
    match result? {
        Err(Errno::BADF) => Some(true),
        Err(Errno::INVAL) => Some(false),
        _ => None,
    }
}
