//! The functions in place of the C library's. Each serves handles, and otherwise is the C library's.
// A function with more arguments in registers than were given ignores them, so a fixed number serves variadic callers.
#![allow(unknown_lints, invalid_runtime_symbol_definitions, reason = "`open` is variadic in the C library")]

use crate::handles::{self, Handle};
use crate::real::{Real, hooks, set_errno, syscall};
use crate::waiting::{self, Sets};
use crate::{Result, names, request, sets};
use libc::{
    c_char, c_int, c_uint, c_ulong, c_void, epoll_event, fd_set, mode_t, nfds_t, off_t, pollfd, sigset_t,
    size_t, timespec, timeval,
};
use std::ffi::CStr;
use std::time::Duration;

const DEVICE: &CStr = c"/dev/netmap";
const SIOCGIFMTU: c_ulong = 0x8921;

/// A result as C expects it.
fn told<T: TryInto<c_int>>(result: Result<T>) -> c_int {
    match result {
        Ok(value) => value.try_into().unwrap_or(c_int::MAX),
        Err(error) => {
            set_errno(error);
            -1
        }
    }
}

/// `open` of the device.
///
/// # Safety
/// `path` is null or a text.
unsafe fn opened(path: *const c_char, flags: c_int, real: impl Fn() -> c_int) -> c_int {
    // SAFETY: the caller's.
    if path.is_null() || unsafe { CStr::from_ptr(path) } != DEVICE || names::is_privileged() {
        return real();
    }
    let Ok(fd) = ringway_host::descriptor_store(flags & libc::O_CLOEXEC != 0) else {
        return told::<c_int>(Err(libc::EMFILE));
    };
    let fd = std::os::fd::IntoRawFd::into_raw_fd(fd);
    // The number was a handle before, if its end was not seen.
    handles::replaced(fd);
    let begun = handles::begin(fd);
    if begun.is_err() {
        // SAFETY: the descriptor is this function's own.
        unsafe { syscall(libc::SYS_close, [fd as u64, 0, 0, 0, 0, 0]) };
    }
    told(begun.map(|()| fd))
}

/// `ioctl` of a handle. `None`: it is none of netmap's.
///
/// # Safety
/// As the call.
unsafe fn asked(fd: c_int, handle: &Handle, code: c_ulong, at: *mut c_void) -> Option<Result<c_int>> {
    let result = match code as u32 {
        request::TXSYNC => handle.sync(fd, 0),
        request::RXSYNC => handle.sync(fd, 1),
        // SAFETY: the caller's.
        request::CONTROL => unsafe { request::control(fd, handle, at) },
        // SAFETY: the caller's.
        request::REGISTER => unsafe { request::old(fd, handle, at, false) },
        // SAFETY: the caller's.
        request::INFO => unsafe { request::old(fd, handle, at, true) },
        _ => return None,
    };
    Some(result.map(|()| 0))
}

/// `ioctl` of any other descriptor: the interface of its name may be a ring port.
///
/// # Safety
/// As the call.
unsafe fn asked_other(code: c_ulong, at: *mut c_void, real: impl Fn() -> c_int) -> c_int {
    let result = real();
    if result == 0 || code != SIOCGIFMTU || names::is_privileged() {
        return result;
    }
    // SAFETY: the C library's pointer to this thread's errno.
    let error = unsafe { *libc::__errno_location() };
    // SAFETY: the caller's.
    let served = error == libc::ENODEV && unsafe { request::largest_packet(at) }.is_ok();
    set_errno(error);
    if served { 0 } else { result }
}

/// The descriptor to map in place of a handle, if the part lies within its memory.
fn mapped(handle: &Handle, fd: c_int, len: size_t, offset: off_t) -> Result<c_int> {
    let bound = handle.bound(fd);
    let port = bound.as_ref().ok_or(libc::EINVAL)?.port();
    let region = &port.rings.region;
    let end = u64::try_from(offset).ok().and_then(|offset| offset.checked_add(len as u64));
    match end.filter(|end| *end <= region.states_at()) {
        Some(_) => Ok(region.raw_fd()),
        None => Err(libc::EINVAL),
    }
}

/// `mmap` of a handle.
fn map(
    handle: &Handle,
    at: *mut c_void,
    len: size_t,
    [access, flags, fd]: [c_int; 3],
    offset: off_t,
) -> *mut c_void {
    let arguments =
        |fd: c_int| [at.addr() as u64, len as u64, access as u64, flags as u64, fd as u64, offset as u64];
    // SAFETY: the program's own call, with another descriptor.
    let result = mapped(handle, fd, len, offset).map(|fd| unsafe { syscall(libc::SYS_mmap, arguments(fd)) });
    match result {
        Ok(at) if !(-4095..0).contains(&at) => at as usize as *mut c_void,
        Ok(error) => {
            set_errno(-error as c_int);
            libc::MAP_FAILED
        }
        Err(error) => {
            set_errno(error);
            libc::MAP_FAILED
        }
    }
}

/// The descriptors of a poll.
///
/// # Safety
/// As the call.
unsafe fn polled<'a>(at: *mut pollfd, count: nfds_t) -> Option<&'a mut [pollfd]> {
    if at.is_null() || count == 0 {
        return None;
    }
    // SAFETY: the caller's.
    let fds = unsafe { std::slice::from_raw_parts_mut(at, count as usize) };
    waiting::has_handle(fds).then_some(fds)
}

fn milliseconds(time: c_int) -> Option<Duration> {
    u64::try_from(time).ok().map(Duration::from_millis)
}

/// # Safety
/// It is null or a time.
unsafe fn duration(time: *const timespec) -> Option<Duration> {
    // SAFETY: the caller's.
    let time = unsafe { time.as_ref() }?;
    Some(Duration::new(time.tv_sec.max(0) as u64, time.tv_nsec.clamp(0, 999_999_999) as u32))
}

/// `select`. `None`: no descriptor is a handle.
///
/// # Safety
/// As the call.
unsafe fn selected(
    count: c_int,
    sets: [*mut fd_set; 3],
    time: Option<Duration>,
    mask: *const sigset_t,
) -> Option<c_int> {
    let sets = Sets(sets);
    // SAFETY: the caller's.
    let mut fds = unsafe { sets.list(count) };
    // SAFETY: the caller's.
    waiting::has_handle(&fds).then(|| told(unsafe { waiting::select(&sets, &mut fds, time, mask) }))
}

/// `epoll_wait`. `None`: the set has no handle.
///
/// # Safety
/// As the call.
unsafe fn waited(
    set: c_int,
    at: *mut epoll_event,
    most: c_int,
    time: Option<Duration>,
    mask: *const sigset_t,
) -> Option<c_int> {
    if at.is_null() || most <= 0 || !sets::has_handle(set) {
        return None;
    }
    // SAFETY: the caller's.
    let out = unsafe { std::slice::from_raw_parts_mut(at, most as usize) };
    Some(told(sets::wait(set, out, time, mask)))
}

/// After a call that gave another number to a descriptor.
fn copied(old: c_int, new: c_int) -> c_int {
    handles::duplicated(old, new);
    new
}

/// `fcntl`, which may duplicate.
fn commanded(fd: c_int, command: c_int, result: c_int) -> c_int {
    if matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) { copied(fd, result) } else { result }
}

/// Before the descriptors of a range are closed.
fn range_closed(first: c_uint, last: c_uint, flags: c_int) {
    /// They are closed by the next program.
    const CLOEXEC: c_int = 4;
    if flags & CLOEXEC == 0 {
        (first..=last.min(1 << 16)).for_each(|fd| drop(handles::closed(fd as c_int)));
    }
}

hooks! {
    /// Opens a file.
    open c"open"(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        real => opened(path, flags, real)
    }
    /// Opens a file.
    open64 c"open64"(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        real => opened(path, flags, real)
    }
    /// Opens a file, without a mode.
    __open_2 c"__open_2"(path: *const c_char, flags: c_int) -> c_int { real => opened(path, flags, real) }
    /// Opens a file, without a mode.
    __open64_2 c"__open64_2"(path: *const c_char, flags: c_int) -> c_int { real => opened(path, flags, real) }
    /// Opens a file of a folder.
    openat c"openat"(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        real => opened(path, flags, real)
    }
    /// Opens a file of a folder.
    openat64 c"openat64"(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        real => opened(path, flags, real)
    }
    /// Asks a device.
    ioctl c"ioctl"(fd: c_int, code: c_ulong, at: *mut c_void) -> c_int {
        real => match if request::is_one(code) { handles::find(fd) } else { handles::get(fd) } {
            Some(handle) => asked(fd, handle, code, at).map_or_else(real, told),
            None => asked_other(code, at, real),
        }
    }
    /// Maps memory.
    mmap c"mmap"(
        at: *mut c_void, len: size_t, access: c_int, flags: c_int, fd: c_int, offset: off_t
    ) -> *mut c_void {
        real => if fd < 0 || flags & libc::MAP_ANONYMOUS != 0 {
            real()
        } else {
            handles::find(fd).map_or_else(real, |handle| map(handle, at, len, [access, flags, fd], offset))
        }
    }
    /// Maps memory.
    mmap64 c"mmap64"(
        at: *mut c_void, len: size_t, access: c_int, flags: c_int, fd: c_int, offset: off_t
    ) -> *mut c_void {
        real => if fd < 0 || flags & libc::MAP_ANONYMOUS != 0 {
            real()
        } else {
            handles::find(fd).map_or_else(real, |handle| map(handle, at, len, [access, flags, fd], offset))
        }
    }
    /// Closes a descriptor.
    close c"close"(fd: c_int) -> c_int {
        real => {
            let bound = handles::closed(fd);
            let result = real();
            drop(bound);
            result
        }
    }
    /// Closes descriptors.
    close_range c"close_range"(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        real => {
            range_closed(first, last, flags);
            real()
        }
    }
    /// Closes descriptors.
    closefrom c"closefrom"(first: c_int) -> () {
        real => {
            range_closed(first.max(0) as c_uint, c_uint::MAX, 0);
            real()
        }
    }
    /// Duplicates a descriptor.
    dup c"dup"(fd: c_int) -> c_int { real => copied(fd, real()) }
    /// Duplicates a descriptor to a number.
    dup2 c"dup2"(fd: c_int, to: c_int) -> c_int { real => copied(fd, real()) }
    /// Duplicates a descriptor to a number.
    dup3 c"dup3"(fd: c_int, to: c_int, flags: c_int) -> c_int { real => copied(fd, real()) }
    /// Commands a descriptor.
    fcntl c"fcntl"(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
        real => commanded(fd, command, real())
    }
    /// Commands a descriptor.
    fcntl64 c"fcntl64"(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
        real => commanded(fd, command, real())
    }
    /// Waits.
    poll c"poll"(at: *mut pollfd, count: nfds_t, time: c_int) -> c_int {
        real => match polled(at, count) {
            Some(fds) => told(waiting::poll(fds, milliseconds(time), std::ptr::null())),
            None => real(),
        }
    }
    /// Waits, and checks the room.
    __poll_chk c"__poll_chk"(at: *mut pollfd, count: nfds_t, time: c_int, room: size_t) -> c_int {
        real => match polled(at, count.min((room / 8) as nfds_t)) {
            Some(fds) if fds.len() == count as usize =>
                told(waiting::poll(fds, milliseconds(time), std::ptr::null())),
            _ => real(),
        }
    }
    /// Waits with signals.
    ppoll c"ppoll"(at: *mut pollfd, count: nfds_t, time: *const timespec, mask: *const sigset_t) -> c_int {
        real => match polled(at, count) {
            Some(fds) => told(waiting::poll(fds, duration(time), mask)),
            None => real(),
        }
    }
    /// Waits with signals, and checks the room.
    __ppoll_chk c"__ppoll_chk"(
        at: *mut pollfd, count: nfds_t, time: *const timespec, mask: *const sigset_t, room: size_t
    ) -> c_int {
        real => match polled(at, count.min((room / 8) as nfds_t)) {
            Some(fds) if fds.len() == count as usize => told(waiting::poll(fds, duration(time), mask)),
            _ => real(),
        }
    }
    /// Waits.
    select c"select"(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, time: *mut timeval
    ) -> c_int {
        real => {
            let most = time.as_ref().map(|time| Duration::new(
                time.tv_sec.max(0) as u64, time.tv_usec.clamp(0, 999_999) as u32 * 1000));
            selected(count, [read, write, except], most, std::ptr::null()).unwrap_or_else(real)
        }
    }
    /// Waits with signals.
    pselect c"pselect"(
        count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, time: *const timespec,
        mask: *const sigset_t
    ) -> c_int {
        real => selected(count, [read, write, except], duration(time), mask).unwrap_or_else(real)
    }
    /// Changes an epoll set.
    epoll_ctl c"epoll_ctl"(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        real => match handles::get(fd) {
            Some(_) => {
                let event = (!event.is_null()).then(|| event.read_unaligned());
                told(sets::control(set, operation, fd, event).map(|()| 0))
            }
            None => real(),
        }
    }
    /// Waits for an epoll set.
    epoll_wait c"epoll_wait"(set: c_int, at: *mut epoll_event, most: c_int, time: c_int) -> c_int {
        real => waited(set, at, most, milliseconds(time), std::ptr::null()).unwrap_or_else(real)
    }
    /// Waits for an epoll set, with signals.
    epoll_pwait c"epoll_pwait"(
        set: c_int, at: *mut epoll_event, most: c_int, time: c_int, mask: *const sigset_t
    ) -> c_int {
        real => waited(set, at, most, milliseconds(time), mask).unwrap_or_else(real)
    }
    /// Waits for an epoll set, with signals and a time in nanoseconds.
    epoll_pwait2 c"epoll_pwait2"(
        set: c_int, at: *mut epoll_event, most: c_int, time: *const timespec, mask: *const sigset_t
    ) -> c_int {
        real => waited(set, at, most, duration(time), mask).unwrap_or_else(real)
    }
}
