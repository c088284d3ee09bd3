//! System calls of other processes that wait for an answer (seccomp user notification), and access to the processes
//! that made them.

use crate::error::{HostError, Named};
use crate::tap::last_error;
use rustix::io::{Errno, pread};
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::collections::HashMap;
use std::ffi::c_void;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// `SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP`: the answer wakes the caller on the processor of the one who answers.
const SYNC_WAKE_UP: u64 = 1;
/// `PIDFD_THREAD`.
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL.cast_unsigned());
/// Threads whose descriptors are kept.
const THREADS: usize = 256;
/// Bytes of a thread's `stat` up to its state: its number, its name of at most 15 bytes, the state (proc(5)).
const UP_TO_STATE: usize = 32;

/// A system call that waits for an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// The kernel's name of this call.
    pub id: u64,
    /// The thread that made it.
    pub thread: i32,
    /// Its number (`SYS_*`).
    pub number: i64,
    /// Its arguments.
    pub arguments: [u64; 6],
}

/// The trapped system calls of a group of processes.
#[derive(Debug)]
pub struct Trap(OwnedFd);

impl From<OwnedFd> for Trap {
    fn from(listener: OwnedFd) -> Trap {
        let trap = Trap(listener);
        // Only faster; a kernel before 6.6 has no such flag.
        let _ = trap.ioctl_value(libc::SECCOMP_IOCTL_NOTIF_SET_FLAGS, SYNC_WAKE_UP);
        trap
    }
}

/// Readable when a call waits; hung up when the last process of the group has ended.
impl AsFd for Trap {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Trap {
    fn ioctl_value(&self, number: libc::Ioctl, value: u64) -> Result<i32, Errno> {
        // SAFETY: the descriptor is open, and this ioctl takes a number.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), number, value) };
        if result < 0 { Err(last_error()) } else { Ok(result) }
    }

    fn ioctl<T>(&self, number: libc::Ioctl, argument: &mut T) -> Result<i32, Errno> {
        // SAFETY: the descriptor is open, and every caller gives the type that the number stands for.
        let result = unsafe { libc::ioctl(self.0.as_raw_fd(), number, std::ptr::from_mut(argument)) };
        if result < 0 { Err(last_error()) } else { Ok(result) }
    }

    /// The next call; `None` if the one that was announced is gone. Call it only when the descriptor is readable.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn next(&self) -> Result<Option<Call>, HostError> {
        // SAFETY: all zeros is a valid `seccomp_notif`, which the kernel demands.
        let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        match self.ioctl(libc::SECCOMP_IOCTL_NOTIF_RECV, &mut call) {
            Ok(_) => Ok(Some(Call {
                id: call.id,
                thread: call.pid.cast_signed(),
                number: call.data.nr.into(),
                arguments: call.data.args,
            })),
            Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => Ok(None),
            Err(error) => Err(error).named("receiving a trapped system call"),
        }
    }

    /// Whether a call still waits. What was read of its thread's memory before is that thread's only if it does.
    pub fn is_waiting(&self, id: u64) -> bool {
        let mut id = id;
        self.ioctl(libc::SECCOMP_IOCTL_NOTIF_ID_VALID, &mut id).is_ok()
    }

    /// Fails if a call waits no longer: then its thread's memory, read before or to be written, may be another one's.
    ///
    /// # Errors
    /// `EINTR`, which nobody sees.
    pub fn check_waiting(&self, id: u64) -> Result<(), Errno> {
        if self.is_waiting(id) { Ok(()) } else { Err(Errno::INTR) }
    }

    /// Gives a call its result. Whether it still waited for one. If a signal wakes its thread at this moment, the
    /// kernel may take the result, and make the call again all the same: see [`Threads::is_awake`].
    pub fn answer(&self, id: u64, result: Result<i64, Errno>) -> bool {
        let (val, error) = match result {
            Ok(value) => (value, 0),
            Err(error) => (0, -error.raw_os_error()),
        };
        let mut response = libc::seccomp_notif_resp { id, val, error, flags: 0 };
        self.ioctl(libc::SECCOMP_IOCTL_NOTIF_SEND, &mut response).is_ok()
    }

    /// Lets the kernel do a call.
    pub fn resume(&self, id: u64) {
        let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
        let mut response = libc::seccomp_notif_resp { id, val: 0, error: 0, flags };
        // A call that is gone needs no answer.
        let _ = self.ioctl(libc::SECCOMP_IOCTL_NOTIF_SEND, &mut response);
    }

    /// Gives the process a descriptor, whose number is the call's result, in one step: a signal can't come between.
    ///
    /// # Errors
    /// The call is gone, or its process may have no more descriptors.
    pub fn give(&self, id: u64, descriptor: BorrowedFd<'_>, close_on_exec: bool) -> Result<i32, Errno> {
        let mut request = libc::seccomp_notif_addfd {
            id,
            flags: libc::SECCOMP_ADDFD_FLAG_SEND as u32,
            srcfd: descriptor.as_raw_fd().cast_unsigned(),
            newfd: 0,
            newfd_flags: if close_on_exec { libc::O_CLOEXEC.cast_unsigned() } else { 0 },
        };
        self.ioctl(libc::SECCOMP_IOCTL_NOTIF_ADDFD, &mut request)
    }
}

/// A part of a thread's memory: its address and its length.
pub type Piece = (u64, usize);
/// Pieces that one call reads or writes at most (`UIO_MAXIOV`).
pub const MEMORY_PIECES: usize = 1024;

/// The pieces in the kernel's form, of `most` bytes in all.
fn remote(pieces: &[Piece], mut most: usize) -> Vec<libc::iovec> {
    let vector = |(address, len): &Piece| {
        let len = (*len).min(most);
        most -= len;
        libc::iovec { iov_base: *address as *mut c_void, iov_len: len }
    };
    pieces.iter().take(MEMORY_PIECES).map(vector).collect()
}

/// Reads a thread's memory; as many bytes as are there.
///
/// # Errors
/// Nothing is there, or the thread is gone.
pub fn read_memory(thread: i32, address: u64, out: &mut [u8]) -> Result<usize, Errno> {
    read_pieces(thread, &[(address, out.len())], out)
}

/// Reads pieces of a thread's memory in one call, [`MEMORY_PIECES`] at most; as many bytes as are there and have room.
///
/// # Errors
/// Nothing is there, or the thread is gone.
pub fn read_pieces(thread: i32, pieces: &[Piece], out: &mut [u8]) -> Result<usize, Errno> {
    let local = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    let remote = remote(pieces, out.len());
    if out.is_empty() || remote.is_empty() {
        return Ok(0);
    }
    let (at, count) = (remote.as_ptr(), remote.len() as libc::c_ulong);
    // SAFETY: the kernel writes at most `out.len()` bytes to `out`; the other addresses are not in this process.
    let count = unsafe { libc::process_vm_readv(thread, &raw const local, 1, at, count, 0) };
    usize::try_from(count).map_err(|_| last_error())
}

/// Writes to a thread's memory.
///
/// # Errors
/// Not all of it can be written.
pub fn write_memory(thread: i32, address: u64, bytes: &[u8]) -> Result<(), Errno> {
    write_pieces(thread, &[(address, bytes.len())], bytes)
}

/// Writes bytes to pieces of a thread's memory in one call, [`MEMORY_PIECES`] at most.
///
/// # Errors
/// Not all of them can be written, or have room.
pub fn write_pieces(thread: i32, pieces: &[Piece], bytes: &[u8]) -> Result<(), Errno> {
    if bytes.is_empty() {
        return Ok(());
    }
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = remote(pieces, bytes.len());
    let (at, count) = (remote.as_ptr(), remote.len() as libc::c_ulong);
    // SAFETY: the kernel only reads `bytes`; the other addresses are not in this process.
    let count = unsafe { libc::process_vm_writev(thread, &raw const local, 1, at, count, 0) };
    match usize::try_from(count) {
        Ok(count) if count == bytes.len() => Ok(()),
        Ok(_) => Err(Errno::FAULT),
        Err(_) => Err(last_error()),
    }
}

/// Access to the descriptors and the state of threads.
#[derive(Debug, Default)]
pub struct Threads(HashMap<i32, Thread>);

#[derive(Debug)]
struct Thread {
    pidfd: OwnedFd,
    /// `/proc/THREAD/task/THREAD/stat`, if it can be read.
    stat: Option<OwnedFd>,
}

impl Threads {
    /// A duplicate of a thread's descriptor. It is that of the caller's own only if its call still waits afterwards.
    ///
    /// # Errors
    /// The process has no such descriptor, or is gone.
    pub fn descriptor(&mut self, thread: i32, number: u64) -> Result<OwnedFd, Errno> {
        let number = RawFd::try_from(number as u32).map_err(|_| Errno::BADF)?;
        if let Some(known) = self.0.get(&thread) {
            match duplicate(&known.pidfd, number) {
                // Another thread may have the number now.
                Err(Errno::SRCH) => _ = self.0.remove(&thread),
                result => return result,
            }
        }
        let (pidfd, is_thread) = open(thread)?;
        let descriptor = duplicate(&pidfd, number)?;
        if self.0.len() >= THREADS {
            self.0.clear();
        }
        // A process's descriptor stays valid after one of its threads, whose number another thread may get.
        if is_thread {
            let stat = File::open(format!("/proc/{thread}/task/{thread}/stat"));
            self.0.insert(thread, Thread { pidfd, stat: stat.ok().map(OwnedFd::from) });
        }
        Ok(descriptor)
    }

    /// Whether a thread whose call waits has been woken, as by a signal: it does not sleep interruptibly. A thread of
    /// which no descriptor was asked for, or whose file in /proc can't be read, counts as asleep.
    #[must_use]
    pub fn is_awake(&self, thread: i32) -> bool {
        let mut bytes = [0; UP_TO_STATE];
        let stat = self.0.get(&thread).and_then(|known| known.stat.as_ref());
        let len = stat.and_then(|stat| pread(stat, &mut bytes, 0).ok()).unwrap_or(0);
        // The name may have brackets too; what follows the state has none.
        let name_end = bytes[..len].iter().rposition(|byte| *byte == b')');
        name_end.is_some_and(|end| bytes.get(end + 2) != Some(&b'S'))
    }
}

/// A pidfd for a thread; for its process on kernels before 6.9. And whether it is the thread's.
fn open(thread: i32) -> Result<(OwnedFd, bool), Errno> {
    match pidfd(thread, PIDFD_THREAD) {
        Err(Errno::INVAL) => {
            let status = std::fs::read_to_string(format!("/proc/{thread}/status"));
            let status = status.map_err(|_| Errno::SRCH)?;
            let group = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
            Ok((pidfd(group.ok_or(Errno::SRCH)?, PidfdFlags::empty())?, false))
        }
        result => Ok((result?, true)),
    }
}

fn pidfd(process: i32, flags: PidfdFlags) -> Result<OwnedFd, Errno> {
    pidfd_open(Pid::from_raw(process).ok_or(Errno::SRCH)?, flags)
}

/// A duplicate of a descriptor of the process of a pidfd.
pub(crate) fn duplicate(pidfd: &OwnedFd, number: RawFd) -> Result<OwnedFd, Errno> {
    pidfd_getfd(pidfd, number, PidfdGetfdFlags::empty())
}
