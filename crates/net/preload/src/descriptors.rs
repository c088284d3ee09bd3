//! Calls that create, close, duplicate and configure descriptors.

use crate::group::group;
use crate::guard::StateGuard;
use crate::listening;
use crate::moving::{LeaveReason, handle_close, leave, leave_now, restrict_set};
use crate::real::{set_errno, syscall};
use crate::table::{self, CANDIDATE, DIRECT, EPOLL, LIBRARY};
use crate::transfer::unread;
use libc::{c_int, c_void};
use std::sync::atomic::Ordering::SeqCst;

const SOCKET_TIMES: [c_int; 4] = [20, 21, 66, 67];

/// Begins to track a new descriptor. The one that had the number before is closed, by whatever means.
fn track(fd: c_int, state: u32) -> c_int {
    if fd >= 0 {
        let mut guard = StateGuard::lock();
        handle_close(&mut guard, fd);
        table::init(fd, state);
    }
    fd
}

/// After `socket`: a TCP socket may enter direct mode when it is connected.
pub fn after_socket(fd: c_int, family: c_int, kind: c_int) -> c_int {
    let is_tcp = [libc::AF_INET, libc::AF_INET6].contains(&family) && kind & 0xf == libc::SOCK_STREAM;
    if is_tcp { track(fd, CANDIDATE) } else { fd }
}

/// After `accept`. The agent says whether it is a TCP socket.
pub fn after_accept(fd: c_int) -> c_int {
    track(fd, CANDIDATE)
}

/// Before `close`. `Some`: the descriptor is the library's, and is not closed.
pub fn before_close(fd: c_int) -> Option<c_int> {
    let slot = table::known(fd)?;
    if slot.is(LIBRARY) {
        set_errno(libc::EBADF);
        return Some(-1);
    }
    let mut guard = StateGuard::lock_briefly();
    if !is_other_process() {
        listening::before_close(fd, slot);
        handle_close(&mut guard, fd);
    }
    None
}

/// Whether this is the child of a `vfork`, with descriptors of its own in its parent's memory.
pub fn is_other_process() -> bool {
    // SAFETY: the call takes nothing.
    let process = unsafe { syscall(libc::SYS_getpid, [0; 6]) } as i32;
    crate::process::owner() != process
}

/// Before another descriptor or another process gets a descriptor's file.
pub fn before_sharing(fd: c_int) {
    let Some(slot) = table::known(fd) else { return };
    let mut guard = StateGuard::lock();
    match slot.state.load(SeqCst) {
        EPOLL => restrict_set(&mut guard, fd),
        CANDIDATE | DIRECT => leave(&mut guard, fd, LeaveReason::Passed),
        _ => {}
    }
}

/// The flags of a descriptor (`F_GETFD`), or a negative error.
pub fn descriptor_flags(fd: c_int) -> i64 {
    // SAFETY: the call takes numbers.
    unsafe { syscall(libc::SYS_fcntl, [fd as u64, libc::F_GETFD as u64, 0, 0, 0, 0]) }
}

/// Whether a descriptor is open.
fn is_open(fd: c_int) -> bool {
    descriptor_flags(fd) >= 0
}

/// Whether a number may become a descriptor: it is below the limit of the process.
fn is_within_limit(fd: c_int) -> bool {
    let mut limit = [0_u64; 2];
    let at = (&raw mut limit).addr() as u64;
    // SAFETY: the kernel writes two numbers.
    let result = unsafe { syscall(libc::SYS_prlimit64, [0, libc::RLIMIT_NOFILE.into(), 0, at, 0, 0]) };
    result < 0 || u64::try_from(fd).is_ok_and(|fd| fd < limit[0])
}

/// As [`before_dup2`], before `dup3`, which the kernel refuses with other flags.
pub fn before_dup3(from: c_int, to: c_int, flags: c_int) -> Option<c_int> {
    if flags & !libc::O_CLOEXEC != 0 { None } else { before_dup2(from, to) }
}

/// Before `dup2` and `dup3`: `to` becomes another file, unless the kernel refuses. `Some`: the call fails.
pub fn before_dup2(from: c_int, to: c_int) -> Option<c_int> {
    if table::known(from).is_some_and(|slot| slot.is(LIBRARY)) {
        set_errno(libc::EBADF);
        return Some(-1);
    }
    if from == to {
        return None;
    }
    let known = table::known(to);
    if (known.is_some() || table::known(from).is_some()) && !(is_open(from) && is_within_limit(to)) {
        return None;
    }
    before_sharing(from);
    let slot = known?;
    if is_other_process() {
        return None;
    }
    let mut guard = StateGuard::lock();
    if slot.is(LIBRARY)
        && let Some(group) = group()
    {
        slot.state.store(table::NONE, SeqCst);
        group.move_descriptor(to);
    }
    handle_close(&mut guard, to);
    None
}

/// The library's own descriptors of a range; all others of the range are marked as closed.
fn library_descriptors_within(first: u64, last: u64) -> Vec<u64> {
    let mut guard = StateGuard::lock();
    let within: Vec<(i32, u32)> =
        table::all().filter(|(fd, _)| (first..=last).contains(&(*fd as u64))).collect();
    let is_other = is_other_process();
    for (fd, state) in &within {
        if *state != LIBRARY && !is_other {
            handle_close(&mut guard, *fd);
        }
    }
    within.iter().filter(|(_, state)| *state == LIBRARY).map(|(fd, _)| *fd as u64).collect()
}

/// `close_range`, without the library's own descriptors.
pub fn close_range(first: u32, last: u32, flags: c_int, kernel: impl Fn(u32, u32) -> c_int) -> c_int {
    // CLOSE_RANGE_CLOEXEC closes nothing yet, and the kernel refuses any other flag.
    if flags & !(libc::CLOSE_RANGE_UNSHARE as c_int) != 0 || first > last {
        return kernel(first, last);
    }
    let mut from = u64::from(first);
    for own in library_descriptors_within(from, last.into()) {
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
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => before_sharing(fd),
        // Another program may get it.
        libc::F_SETFD if argument & libc::FD_CLOEXEC as u64 == 0 => listening::before_inheritance(fd),
        libc::F_GETFL | libc::F_GETFD | libc::F_SETFD => {}
        libc::F_SETFL if argument & libc::O_ASYNC as u64 == 0 => {}
        _ => leave_now(fd, LeaveReason::Unserved),
    }
    None
}

/// `ioctl`. `Some`: the library has answered.
///
/// # Safety
/// As the call.
pub unsafe fn ioctl(fd: c_int, request: u64, argument: *mut c_void) -> Option<c_int> {
    if request == libc::FIONCLEX {
        listening::before_inheritance(fd);
    }
    let slot = table::known(fd).filter(|slot| slot.is(DIRECT))?;
    match request {
        libc::FIONREAD if !argument.is_null() => {
            let count = unread(fd, slot)?;
            // SAFETY: the caller's.
            unsafe { argument.cast::<c_int>().write_unaligned(count as c_int) };
            return Some(0);
        }
        libc::FIONBIO | libc::FIOCLEX | libc::FIONCLEX => {}
        libc::TIOCOUTQ => leave_now(fd, LeaveReason::Pause),
        _ => leave_now(fd, LeaveReason::Unserved),
    }
    None
}

/// Before `setsockopt`, which the agent answers. What a listening socket accepts inherits its options.
pub fn before_setsockopt(fd: c_int) {
    leave_now(fd, LeaveReason::Pause);
}

/// Before `getsockopt`, which the agent answers.
pub fn before_getsockopt(fd: c_int) {
    if table::known(fd).is_some_and(|slot| !slot.listens()) {
        leave_now(fd, LeaveReason::Pause);
    }
}

/// After `setsockopt`: how long blocking calls may take.
///
/// # Safety
/// As the call.
pub unsafe fn after_setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: u32) {
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
