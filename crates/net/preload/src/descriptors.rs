//! Calls by which descriptors come, go, and become others.

use crate::gate::Inside;
use crate::group::group;
use crate::moving::{Why, bar, closed, leave, leave_now};
use crate::real::{call, set_errno};
use crate::table::{self, CANDIDATE, DIRECT, OWN, SET};
use crate::transfer::unread;
use libc::{c_int, c_void};
use std::sync::atomic::Ordering::SeqCst;

const SOCKET_TIMES: [c_int; 4] = [20, 21, 66, 67];

/// A new descriptor. One that had the number before is closed, even if nobody said so.
fn began(fd: c_int, state: u32) -> c_int {
    if fd >= 0 {
        let mut inside = Inside::enter();
        closed(&mut inside, fd);
        table::begin(fd, state);
    }
    fd
}

/// `socket`: a TCP socket may enter direct mode when it is connected.
pub fn made(fd: c_int, family: c_int, kind: c_int) -> c_int {
    let is_tcp = [libc::AF_INET, libc::AF_INET6].contains(&family) && kind & 0xf == libc::SOCK_STREAM;
    if is_tcp { began(fd, CANDIDATE) } else { fd }
}

/// `accept`. Whether it is a TCP socket, the agent says.
pub fn accepted(fd: c_int) -> c_int {
    began(fd, CANDIDATE)
}

/// Before `close`. `Some`: it is not the program's to close.
pub fn close(fd: c_int) -> Option<c_int> {
    let slot = table::known(fd)?;
    if slot.is(OWN) {
        set_errno(libc::EBADF);
        return Some(-1);
    }
    let mut inside = Inside::enter();
    if !is_other_process() {
        closed(&mut inside, fd);
    }
    None
}

/// Whether this is the child of a `vfork`, with descriptors of its own in its parent's memory.
fn is_other_process() -> bool {
    // SAFETY: the call takes nothing.
    let process = unsafe { call(libc::SYS_getpid, [0; 6]) } as i32;
    crate::process::own() != process
}

/// Others than this descriptor of this process get its file.
pub fn passed(fd: c_int) {
    let Some(slot) = table::known(fd) else { return };
    let mut inside = Inside::enter();
    match slot.state.load(SeqCst) {
        SET => bar(&mut inside, fd),
        CANDIDATE | DIRECT => leave(&mut inside, fd, Why::Passed),
        _ => {}
    }
}

/// Before `dup2` and `dup3`: `to` becomes another file. `Some`: the call fails.
pub fn replaced(from: c_int, to: c_int) -> Option<c_int> {
    if table::known(from).is_some_and(|slot| slot.is(OWN)) {
        set_errno(libc::EBADF);
        return Some(-1);
    }
    if from == to {
        return None;
    }
    passed(from);
    let slot = table::known(to)?;
    if is_other_process() {
        return None;
    }
    let mut inside = Inside::enter();
    if slot.is(OWN)
        && let Some(group) = group()
    {
        slot.state.store(table::NONE, SeqCst);
        group.give_up(to);
    }
    closed(&mut inside, to);
    None
}

/// Whether a range of descriptors has one of the library's own; and all others of it are closed, for the library.
fn own_within(first: u64, last: u64) -> Vec<u64> {
    let mut inside = Inside::enter();
    let within: Vec<(i32, u32)> =
        table::all().filter(|(fd, _)| (first..=last).contains(&(*fd as u64))).collect();
    let is_other = is_other_process();
    for (fd, state) in &within {
        if *state != OWN && !is_other {
            closed(&mut inside, *fd);
        }
    }
    within.iter().filter(|(_, state)| *state == OWN).map(|(fd, _)| *fd as u64).collect()
}

/// `close_range`, without the library's own descriptors.
pub fn close_range(first: u32, last: u32, flags: c_int, kernel: impl Fn(u32, u32) -> c_int) -> c_int {
    /// Closes nothing: the descriptors are closed by the next program.
    const CLOEXEC: c_int = 4;
    if flags & CLOEXEC != 0 || first > last {
        return kernel(first, last);
    }
    let mut from = u64::from(first);
    for own in own_within(from, last.into()) {
        if own > from && kernel(from as u32, own as u32 - 1) != 0 {
            return -1;
        }
        from = own + 1;
    }
    if from > u64::from(last) { 0 } else { kernel(from as u32, last) }
}

/// `fcntl`. `Some`: the library has answered.
pub fn fcntl(fd: c_int, command: c_int, argument: u64) -> Option<c_int> {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => passed(fd),
        libc::F_GETFL | libc::F_GETFD | libc::F_SETFD => {}
        libc::F_SETFL if argument & libc::O_ASYNC as u64 == 0 => {}
        _ => leave_now(fd, Why::Unserved),
    }
    None
}

/// `ioctl`. `Some`: the library has answered.
///
/// # Safety
/// As the call.
pub unsafe fn ioctl(fd: c_int, request: u64, argument: *mut c_void) -> Option<c_int> {
    let slot = table::known(fd).filter(|slot| slot.is(DIRECT))?;
    match request {
        libc::FIONREAD if !argument.is_null() => {
            let count = unread(fd, slot)?;
            // SAFETY: the caller's.
            unsafe { argument.cast::<c_int>().write_unaligned(count as c_int) };
            return Some(0);
        }
        libc::FIONBIO | libc::FIOCLEX | libc::FIONCLEX => {}
        libc::TIOCOUTQ => leave_now(fd, Why::Pause),
        _ => leave_now(fd, Why::Unserved),
    }
    None
}

/// Before `setsockopt` and `getsockopt`, which the agent answers.
pub fn asked(fd: c_int) {
    leave_now(fd, Why::Pause);
}

/// After `setsockopt`: how long blocking calls may take.
///
/// # Safety
/// As the call.
pub unsafe fn set(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: u32) {
    let is_time = level == libc::SOL_SOCKET && SOCKET_TIMES.contains(&name);
    let Some(slot) = table::known(fd).filter(|_| is_time && len as usize >= 16 && !value.is_null()) else {
        return;
    };
    // SAFETY: the kernel has read the value.
    let [seconds, micros] = unsafe { value.cast::<[i64; 2]>().read_unaligned() };
    let time =
        (seconds.max(0) as u64).saturating_mul(1_000_000_000).saturating_add(micros.max(0) as u64 * 1000);
    let place = if [20, 66].contains(&name) { &slot.receive_time } else { &slot.send_time };
    place.store(time, SeqCst);
}
