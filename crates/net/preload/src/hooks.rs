//! The functions in place of the C library's. Each asks the module that knows whether the library serves the call, and
//! otherwise is the C library's.

use crate::descriptors as d;
use crate::real::{Real, hooks, set_errno};
use crate::{deferral, epoll, listening as l, process as p, signals, transfer as t, waiting as w};
use libc::{
    c_char, c_int, c_long, c_uint, c_ulong, c_void, epoll_event, fd_set, iovec, mmsghdr, msghdr, nfds_t,
    off_t, pid_t, pollfd, pthread_t, sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval,
};
use std::arch::naked_asm;

/// Whether a call names no address.
fn is_plain(address: *const sockaddr) -> bool {
    address.is_null()
}

fn milliseconds(time: c_int) -> Option<u64> {
    u64::try_from(time).ok().map(|time| time * 1_000_000)
}

/// # Safety
/// The pointer is null, or points to a time.
unsafe fn nanoseconds(time: *const timespec) -> Option<u64> {
    // SAFETY: the caller's.
    let time = unsafe { time.as_ref() }?;
    Some((time.tv_sec.max(0) as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.max(0) as u64))
}

/// # Safety
/// The pointer is null, or points to a set of signals.
unsafe fn mask_of(mask: *const sigset_t) -> Option<u64> {
    // SAFETY: the caller's; the kernel's set is the first eight bytes.
    (!mask.is_null()).then(|| unsafe { mask.cast::<u64>().read_unaligned() })
}

/// `select`, which tells how much time was left.
///
/// # Safety
/// As the call.
unsafe fn select_of(
    count: c_int,
    sets: [*mut fd_set; 3],
    time: *mut timeval,
    real: impl Fn() -> c_int,
) -> Option<c_int> {
    // SAFETY: the caller's; null is valid.
    let given = unsafe { time.as_mut() };
    let most = given.as_ref().map(|time| {
        (time.tv_sec.max(0) as u64)
            .saturating_mul(1_000_000_000)
            .saturating_add((time.tv_usec.max(0) as u64).saturating_mul(1000))
    });
    let begin = most.map(|_| crate::group::monotonic());
    let by_kernel = std::cell::Cell::new(false);
    let kernel = || {
        by_kernel.set(true);
        real()
    };
    // SAFETY: the caller's.
    let result = unsafe { w::select(count, sets, most, None, kernel) }?;
    if let (Some(time), Some(most), Some(begin), false) = (given, most, begin, by_kernel.get()) {
        let left = most.saturating_sub(crate::group::monotonic() - begin);
        time.tv_sec = (left / 1_000_000_000) as libc::time_t;
        time.tv_usec = (left % 1_000_000_000 / 1000) as libc::suseconds_t;
    }
    Some(result)
}

hooks! {
    /// Reads.
    read c"read"(fd: c_int, at: *mut c_void, len: size_t) -> ssize_t {
        real => t::read(fd, at, len, 0, real).unwrap_or_else(real)
    }
    /// Reads.
    __read c"__read"(fd: c_int, at: *mut c_void, len: size_t) -> ssize_t {
        real => t::read(fd, at, len, 0, real).unwrap_or_else(real)
    }
    /// Reads, and checks the room.
    __read_chk c"__read_chk"(fd: c_int, at: *mut c_void, len: size_t, room: size_t) -> ssize_t {
        real => if len > room { real() } else { t::read(fd, at, len, 0, real).unwrap_or_else(real) }
    }
    /// Writes.
    write c"write"(fd: c_int, at: *const c_void, len: size_t) -> ssize_t {
        real => t::write(fd, at, len, 0, real).unwrap_or_else(real)
    }
    /// Writes.
    __write c"__write"(fd: c_int, at: *const c_void, len: size_t) -> ssize_t {
        real => t::write(fd, at, len, 0, real).unwrap_or_else(real)
    }
    /// Reads to several places.
    readv c"readv"(fd: c_int, at: *const iovec, count: c_int) -> ssize_t {
        real => t::readv(fd, at, count, real).unwrap_or_else(real)
    }
    /// Writes from several places.
    writev c"writev"(fd: c_int, at: *const iovec, count: c_int) -> ssize_t {
        real => t::writev(fd, at, count, real).unwrap_or_else(real)
    }
    /// Receives.
    recv c"recv"(fd: c_int, at: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
        real => t::read(fd, at, len, flags, real).unwrap_or_else(real)
    }
    /// Receives.
    __recv c"__recv"(fd: c_int, at: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
        real => t::read(fd, at, len, flags, real).unwrap_or_else(real)
    }
    /// Receives, and checks the room.
    __recv_chk c"__recv_chk"(fd: c_int, at: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t {
        real => if len > room { real() } else { t::read(fd, at, len, flags, real).unwrap_or_else(real) }
    }
    /// Sends.
    send c"send"(fd: c_int, at: *const c_void, len: size_t, flags: c_int) -> ssize_t {
        real => t::write(fd, at, len, flags, real).unwrap_or_else(real)
    }
    /// Sends.
    __send c"__send"(fd: c_int, at: *const c_void, len: size_t, flags: c_int) -> ssize_t {
        real => t::write(fd, at, len, flags, real).unwrap_or_else(real)
    }
    /// Receives, with the sender.
    recvfrom c"recvfrom"(
        fd: c_int, at: *mut c_void, len: size_t, flags: c_int, from: *mut sockaddr, from_len: *mut socklen_t
    ) -> ssize_t {
        real => if is_plain(from) {
            t::read(fd, at, len, flags, real).unwrap_or_else(real)
        } else {
            epoll::exclude(fd);
            real()
        }
    }
    /// Receives, with the sender, and checks the room.
    __recvfrom_chk c"__recvfrom_chk"(
        fd: c_int, at: *mut c_void, len: size_t, room: size_t, flags: c_int, from: *mut sockaddr,
        from_len: *mut socklen_t
    ) -> ssize_t {
        real => if is_plain(from) && len <= room {
            t::read(fd, at, len, flags, real).unwrap_or_else(real)
        } else {
            epoll::exclude(fd);
            real()
        }
    }
    /// Sends, to an address.
    sendto c"sendto"(
        fd: c_int, at: *const c_void, len: size_t, flags: c_int, to: *const sockaddr, to_len: socklen_t
    ) -> ssize_t {
        real => if is_plain(to) {
            t::write(fd, at, len, flags, real).unwrap_or_else(real)
        } else {
            epoll::exclude(fd);
            real()
        }
    }
    /// Receives a message.
    recvmsg c"recvmsg"(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        real => t::recvmsg(fd, message, flags, real).unwrap_or_else(real)
    }
    /// Sends a message.
    sendmsg c"sendmsg"(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        real => t::sendmsg(fd, message, flags, real).unwrap_or_else(real)
    }
    /// Receives several messages.
    recvmmsg c"recvmmsg"(
        fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, time: *mut timespec
    ) -> c_int {
        real => { epoll::exclude(fd); real() }
    }
    /// Sends several messages.
    sendmmsg c"sendmmsg"(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        real => { t::handle_all_rights(messages, count); epoll::exclude(fd); real() }
    }
    /// Sends several messages.
    __sendmmsg c"__sendmmsg"(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        real => { t::handle_all_rights(messages, count); epoll::exclude(fd); real() }
    }
    /// Sends a part of a file.
    sendfile c"sendfile"(fd: c_int, file: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
        real => t::sendfile(fd, file, offset, count, real).unwrap_or_else(real)
    }
    /// Sends a part of a file.
    sendfile64 c"sendfile64"(fd: c_int, file: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
        real => t::sendfile(fd, file, offset, count, real).unwrap_or_else(real)
    }
    /// Moves bytes to or from a pipe.
    splice c"splice"(
        from: c_int, from_at: *mut off_t, to: c_int, to_at: *mut off_t, len: size_t, flags: c_uint
    ) -> ssize_t {
        real => { epoll::exclude(from); epoll::exclude(to); real() }
    }
    /// Reads to several places, with flags.
    preadv2 c"preadv2"(fd: c_int, at: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        real => { epoll::exclude(fd); real() }
    }
    /// Reads to several places, with flags.
    preadv64v2 c"preadv64v2"(
        fd: c_int, at: *const iovec, count: c_int, offset: off_t, flags: c_int
    ) -> ssize_t {
        real => { epoll::exclude(fd); real() }
    }
    /// Writes from several places, with flags.
    pwritev2 c"pwritev2"(fd: c_int, at: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        real => { epoll::exclude(fd); real() }
    }
    /// Writes from several places, with flags.
    pwritev64v2 c"pwritev64v2"(
        fd: c_int, at: *const iovec, count: c_int, offset: off_t, flags: c_int
    ) -> ssize_t {
        real => { epoll::exclude(fd); real() }
    }
    /// Makes a socket.
    socket c"socket"(family: c_int, kind: c_int, protocol: c_int) -> c_int {
        real => d::after_socket(real(), family, kind)
    }
    /// Makes a socket.
    __socket c"__socket"(family: c_int, kind: c_int, protocol: c_int) -> c_int {
        real => d::after_socket(real(), family, kind)
    }
    /// Accepts a connection.
    accept c"accept"(fd: c_int, from: *mut sockaddr, from_len: *mut socklen_t) -> c_int {
        real => l::accept(fd, from, from_len, 0, real)
    }
    /// Accepts a connection, with flags.
    accept4 c"accept4"(fd: c_int, from: *mut sockaddr, from_len: *mut socklen_t, flags: c_int) -> c_int {
        real => l::accept(fd, from, from_len, flags, real)
    }
    /// Listens.
    listen c"listen"(fd: c_int, backlog: c_int) -> c_int { real => l::after_listen(fd, real()) }
    /// Tells the local address.
    getsockname c"getsockname"(fd: c_int, at: *mut sockaddr, len: *mut socklen_t) -> c_int {
        real => l::name(fd, false, at, len).unwrap_or_else(real)
    }
    /// Tells the remote address.
    getpeername c"getpeername"(fd: c_int, at: *mut sockaddr, len: *mut socklen_t) -> c_int {
        real => l::name(fd, true, at, len).unwrap_or_else(real)
    }
    /// Closes a descriptor.
    close c"close"(fd: c_int) -> c_int { real => d::before_close(fd).unwrap_or_else(real) }
    /// Closes a descriptor.
    __close c"__close"(fd: c_int) -> c_int { real => d::before_close(fd).unwrap_or_else(real) }
    /// Makes another descriptor of a file.
    dup c"dup"(fd: c_int) -> c_int { real => { d::before_sharing(fd); real() } }
    /// Makes a descriptor one of another file.
    dup2 c"dup2"(from: c_int, to: c_int) -> c_int {
        real => d::before_dup2(from, to).unwrap_or_else(real)
    }
    /// Makes a descriptor one of another file.
    __dup2 c"__dup2"(from: c_int, to: c_int) -> c_int {
        real => d::before_dup2(from, to).unwrap_or_else(real)
    }
    /// Makes a descriptor one of another file, with flags.
    dup3 c"dup3"(from: c_int, to: c_int, flags: c_int) -> c_int {
        real => d::before_dup3(from, to, flags).unwrap_or_else(real)
    }
    /// Ends directions of a connection.
    shutdown c"shutdown"(fd: c_int, how: c_int) -> c_int { real => { epoll::exclude(fd); real() } }
    /// Tells an option.
    getsockopt c"getsockopt"(
        fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t
    ) -> c_int {
        real => { d::before_getsockopt(fd); real() }
    }
    /// Sets an option.
    setsockopt c"setsockopt"(
        fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t
    ) -> c_int {
        real => {
            d::before_setsockopt(fd);
            let result = real();
            if result == 0 {
                d::after_setsockopt(fd, level, name, value, len);
            }
            result
        }
    }
    /// Does something with a descriptor.
    fcntl c"fcntl"(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
        real => { d::fcntl(fd, command, argument); real() }
    }
    /// Does something with a descriptor.
    fcntl64 c"fcntl64"(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
        real => { d::fcntl(fd, command, argument); real() }
    }
    /// Does something with a descriptor.
    __fcntl c"__fcntl"(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
        real => { d::fcntl(fd, command, argument); real() }
    }
    /// Does something with a descriptor.
    ioctl c"ioctl"(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
        real => d::ioctl(fd, request, argument).unwrap_or_else(real)
    }
    /// Makes a stream of a descriptor, which reads by other means.
    fdopen c"fdopen"(fd: c_int, mode: *const c_char) -> *mut c_void {
        real => { epoll::exclude(fd); real() }
    }
    /// Waits for descriptors.
    poll c"poll"(list: *mut pollfd, count: nfds_t, time: c_int) -> c_int {
        real => w::poll(list, count as usize, milliseconds(time), None, real).unwrap_or_else(real)
    }
    /// Waits for descriptors.
    __poll c"__poll"(list: *mut pollfd, count: nfds_t, time: c_int) -> c_int {
        real => w::poll(list, count as usize, milliseconds(time), None, real).unwrap_or_else(real)
    }
    /// Waits for descriptors, and checks the list.
    __poll_chk c"__poll_chk"(list: *mut pollfd, count: nfds_t, time: c_int, room: size_t) -> c_int {
        real => if room / size_of::<pollfd>() < count as usize {
            real()
        } else {
            w::poll(list, count as usize, milliseconds(time), None, real).unwrap_or_else(real)
        }
    }
    /// Waits for descriptors and signals.
    ppoll c"ppoll"(list: *mut pollfd, count: nfds_t, time: *const timespec, mask: *const sigset_t) -> c_int {
        real => w::poll(list, count as usize, nanoseconds(time), mask_of(mask), real).unwrap_or_else(real)
    }
    /// Waits for descriptors and signals, and checks the list.
    __ppoll_chk c"__ppoll_chk"(
        list: *mut pollfd, count: nfds_t, time: *const timespec, mask: *const sigset_t, room: size_t
    ) -> c_int {
        real => if room / size_of::<pollfd>() < count as usize {
            real()
        } else {
            w::poll(list, count as usize, nanoseconds(time), mask_of(mask), real).unwrap_or_else(real)
        }
    }
    /// Waits for sets of descriptors.
    select c"select"(
        count: c_int, reads: *mut fd_set, writes: *mut fd_set, excepts: *mut fd_set, time: *mut timeval
    ) -> c_int {
        real => select_of(count, [reads, writes, excepts], time, real).unwrap_or_else(real)
    }
    /// Waits for sets of descriptors.
    __select c"__select"(
        count: c_int, reads: *mut fd_set, writes: *mut fd_set, excepts: *mut fd_set, time: *mut timeval
    ) -> c_int {
        real => select_of(count, [reads, writes, excepts], time, real).unwrap_or_else(real)
    }
    /// Waits for sets of descriptors and signals.
    pselect c"pselect"(
        count: c_int, reads: *mut fd_set, writes: *mut fd_set, excepts: *mut fd_set, time: *const timespec,
        mask: *const sigset_t
    ) -> c_int {
        real => w::select(count, [reads, writes, excepts], nanoseconds(time), mask_of(mask), real)
            .unwrap_or_else(real)
    }
    /// Makes a set of descriptors.
    epoll_create c"epoll_create"(size: c_int) -> c_int { real => epoll::after_create(real()) }
    /// Makes a set of descriptors.
    epoll_create1 c"epoll_create1"(flags: c_int) -> c_int { real => epoll::after_create(real()) }
    /// Changes a set of descriptors.
    epoll_ctl c"epoll_ctl"(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        real => epoll::control(set, operation, fd, event, real).unwrap_or_else(real)
    }
    /// Waits for a set of descriptors.
    epoll_wait c"epoll_wait"(set: c_int, out: *mut epoll_event, most: c_int, time: c_int) -> c_int {
        real => epoll::wait(set, out, most, milliseconds(time), None, real).unwrap_or_else(real)
    }
    /// Waits for a set of descriptors and signals.
    epoll_pwait c"epoll_pwait"(
        set: c_int, out: *mut epoll_event, most: c_int, time: c_int, mask: *const sigset_t
    ) -> c_int {
        real => epoll::wait(set, out, most, milliseconds(time), mask_of(mask), real).unwrap_or_else(real)
    }
    /// Waits for a set of descriptors and signals.
    epoll_pwait2 c"epoll_pwait2"(
        set: c_int, out: *mut epoll_event, most: c_int, time: *const timespec, mask: *const sigset_t
    ) -> c_int {
        real => epoll::wait(set, out, most, nanoseconds(time), mask_of(mask), real).unwrap_or_else(real)
    }
    /// Makes a process, without what was registered for `fork`.
    _Fork c"_Fork"() -> pid_t { real => { p::leave_for_child(); p::after_plain_fork(real()) } }
    /// Runs a command.
    system c"system"(command: *const c_char) -> c_int { real => { p::leave_for_others(); real() } }
    /// Runs a command, with a pipe.
    popen c"popen"(command: *const c_char, kind: *const c_char) -> *mut c_void {
        real => { p::leave_for_others(); real() }
    }
    /// Starts a program.
    posix_spawn c"posix_spawn"(
        pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const *mut c_char, environment: *const *mut c_char
    ) -> c_int {
        real => { p::leave_for_any(); real() }
    }
    /// Starts a program.
    posix_spawnp c"posix_spawnp"(
        pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: *const *mut c_char, environment: *const *mut c_char
    ) -> c_int {
        real => { p::leave_for_any(); real() }
    }
    /// Becomes a program.
    execv c"execv"(path: *const c_char, arguments: *const *const c_char) -> c_int {
        real => { p::leave_for_exec(); real() }
    }
    /// Becomes a program.
    execvp c"execvp"(path: *const c_char, arguments: *const *const c_char) -> c_int {
        real => { p::leave_for_exec(); real() }
    }
    /// Becomes a program.
    execve c"execve"(
        path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char
    ) -> c_int {
        real => { p::leave_for_exec(); real() }
    }
    /// Becomes a program.
    execvpe c"execvpe"(
        path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char
    ) -> c_int {
        real => { p::leave_for_exec(); real() }
    }
    /// Becomes a program.
    fexecve c"fexecve"(
        fd: c_int, arguments: *const *const c_char, environment: *const *const c_char
    ) -> c_int {
        real => { p::leave_for_exec(); real() }
    }
    /// Becomes a program.
    execveat c"execveat"(
        folder: c_int, path: *const c_char, arguments: *const *const c_char,
        environment: *const *const c_char, flags: c_int
    ) -> c_int {
        real => { p::leave_for_exec(); real() }
    }
    /// Changes this process or thread.
    prctl c"prctl"(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
        real => { p::before_prctl(option); real() }
    }
    /// Ends a thread at its next call that waits.
    pthread_cancel c"pthread_cancel"(thread: pthread_t) -> c_int {
        real => { p::before_pthread_cancel(); real() }
    }
    /// Changes what a signal does.
    sigaction c"sigaction"(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
        _real => deferral::sigaction(signal, new, old)
    }
    /// Changes what a signal does.
    __sigaction c"__sigaction"(
        signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction
    ) -> c_int {
        _real => deferral::sigaction(signal, new, old)
    }
    /// Changes what a signal does.
    signal c"signal"(number: c_int, handler: *mut c_void) -> *mut c_void {
        _real => deferral::signal(number, handler)
    }
    /// Changes what a signal does.
    bsd_signal c"bsd_signal"(number: c_int, handler: *mut c_void) -> *mut c_void {
        _real => deferral::signal(number, handler)
    }
    /// Changes what a signal does.
    ssignal c"ssignal"(number: c_int, handler: *mut c_void) -> *mut c_void {
        _real => deferral::signal(number, handler)
    }
    /// Changes what a signal does.
    sysv_signal c"sysv_signal"(number: c_int, handler: *mut c_void) -> *mut c_void {
        real => { deferral::never(); let result = real(); signals::invalidate(); result }
    }
    /// Changes what a signal does.
    __sysv_signal c"__sysv_signal"(number: c_int, handler: *mut c_void) -> *mut c_void {
        real => { deferral::never(); let result = real(); signals::invalidate(); result }
    }
    /// Changes what a signal does.
    sigset c"sigset"(number: c_int, handler: *mut c_void) -> *mut c_void {
        real => { deferral::never(); let result = real(); signals::invalidate(); result }
    }
    /// Changes whether calls go on after a signal.
    siginterrupt c"siginterrupt"(number: c_int, flag: c_int) -> c_int {
        _real => deferral::siginterrupt(number, flag != 0)
    }
}

/// The kernel's or the C library's `close_range` for a part.
fn close_part(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let arguments = [first.into(), last.into(), flags as u64, 0, 0, 0];
    // SAFETY: a part of what the program closes.
    let result = unsafe { crate::real::syscall(libc::SYS_close_range, arguments) };
    if result < 0 {
        set_errno(-result as i32);
        return -1;
    }
    0
}

/// Closes descriptors.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    d::close_range(first, last, flags, |first, last| close_part(first, last, flags))
}

/// Closes descriptors.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn closefrom(first: c_int) {
    d::close_range(first.max(0) as c_uint, c_uint::MAX, 0, |first, last| close_part(first, last, 0));
}

/// Makes a function with any number of arguments that excludes its first one, a descriptor, and goes on as the C
/// library's.
macro_rules! writers {
    ($($(#[$about:meta])* $name:ident: $before:path;)*) => {$(
        $(#[$about])*
        ///
        /// # Safety
        /// As the C library's.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() -> c_int {
            naked_asm!(
                "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                "sub rsp, 128",
                "movups [rsp], xmm0", "movups [rsp + 16], xmm1", "movups [rsp + 32], xmm2",
                "movups [rsp + 48], xmm3", "movups [rsp + 64], xmm4", "movups [rsp + 80], xmm5",
                "movups [rsp + 96], xmm6", "movups [rsp + 112], xmm7",
                "call {before}",
                "mov r11, rax",
                "movups xmm0, [rsp]", "movups xmm1, [rsp + 16]", "movups xmm2, [rsp + 32]",
                "movups xmm3, [rsp + 48]", "movups xmm4, [rsp + 64]", "movups xmm5, [rsp + 80]",
                "movups xmm6, [rsp + 96]", "movups xmm7, [rsp + 112]",
                "add rsp, 128", "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                "jmp r11",
                before = sym $before,
            )
        }
    )*};
}

writers! {
    /// Writes text.
    dprintf: p::before_dprintf;
    /// Writes text.
    vdprintf: p::before_vdprintf;
    /// Writes text, and checks the format.
    __dprintf_chk: p::before_dprintf_chk;
    /// Writes text, and checks the format.
    __vdprintf_chk: p::before_vdprintf_chk;
}

/// Makes a function that calls another one, and goes on as the C library's, with all arguments in place.
macro_rules! trampolines {
    ($($(#[$about:meta])* $name:ident: $before:path;)*) => {$(
        $(#[$about])*
        ///
        /// # Safety
        /// As the C library's.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() -> c_long {
            naked_asm!(
                "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "sub rsp, 8",
                "call {before}",
                "add rsp, 8", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                "mov r11, rax", "xor eax, eax", "jmp r11",
                before = sym $before,
            )
        }
    )*};
}

trampolines! {
    /// Makes a system call.
    syscall: p::before_syscall;
    /// Makes a process that shares this one's memory until it becomes a program.
    vfork: p::before_vfork;
    /// Makes a process that shares this one's memory until it becomes a program.
    __vfork: p::before_vfork;
    /// Makes a process or a thread.
    clone: p::before_clone;
    /// Makes a process or a thread.
    __clone: p::before_clone;
    /// Becomes a program.
    execl: p::before_execl;
    /// Becomes a program.
    execle: p::before_execle;
    /// Becomes a program.
    execlp: p::before_execlp;
}
