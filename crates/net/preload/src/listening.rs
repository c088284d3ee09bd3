//! Listening sockets whose connections come to the shared stack, and what is accepted there.
//!
//! Such a connection has a descriptor of the kernel's, as each has: a UNIX socket that is connected to nothing. The
//! agent does not know it until the connection leaves direct mode (`moving::leave`): it connects the socket then.

use crate::abi::requests::{ENTRY, LEAVE_PASSED, LEAVE_UNSERVED, SHARE, UNSHARE};
use crate::abi::{ADDRESS, ADDRESSES, BAD_SOCKET, Flags, address_of};
use crate::descriptors::{after_accept, descriptor_flags};
use crate::group::{self, group};
use crate::guard::{SignalsHeld, StateGuard};
use crate::moving::{
    LeaveReason, ask_agent_until_answered, calls_before_entry, forget_socket, handle_close, join_if_first,
    leave_ended, leave_now,
};
use crate::real::{set_errno, syscall};
use crate::sets;
use crate::table::{self, ADDRESS_WORDS, CANDIDATE, DIRECT, Slot};
use crate::transfer::{BlockingCall, StopReason};
use libc::{c_int, sockaddr, socklen_t};
use std::net::SocketAddr;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// The number of this process among those that share the stack; 0: the agent does not know that it accepts.
static PROCESS: AtomicU64 = AtomicU64::new(0);

/// Whether this is the child of a process that has joined the stack.
static IS_CHILD: AtomicBool = AtomicBool::new(false);

/// In the child of a fork, and before this process becomes another program.
pub fn forget_process() {
    PROCESS.store(0, SeqCst);
    IS_CHILD.store(group().is_some(), SeqCst);
}

/// Before the child of a fork accepts or waits: the agent is to know that it does, so that it learns of its end.
#[inline]
pub fn ensure_process() {
    if IS_CHILD.load(SeqCst) {
        register_child();
    }
}

#[cold]
fn register_child() {
    let mut guard = StateGuard::lock();
    // Another thread may have done it meanwhile. Until it is done, others wait here.
    if !IS_CHILD.load(SeqCst) {
        return;
    }
    for (fd, slot) in table::all().filter_map(|(fd, _)| Some((fd, table::slot(fd)?))) {
        if slot.is(DIRECT) && slot.listens() && !matches!(ask_to_share(fd), Some(Some(_))) {
            leave(&mut guard, fd, slot, LeaveReason::Unserved);
        }
    }
    IS_CHILD.store(false, SeqCst);
}

/// Lets a listening socket be the kernel's, whose listener in the shared stack has ended: it may be shared again.
pub fn return_ended(guard: &mut StateGuard, fd: c_int, slot: &Slot) {
    let is_there = group().is_some_and(|group| {
        let _signals = SignalsHeld::hold();
        group.begin().is_ok_and(|mut locked| locked.ready(slot.handle()).0 >= 0)
    });
    if is_there {
        return leave(guard, fd, slot, LeaveReason::Unserved);
    }
    slot.state.store(CANDIDATE, SeqCst);
    sets::set_direct(guard, fd, false);
}

/// After `listen`.
pub fn after_listen(fd: c_int, result: c_int) -> c_int {
    if result == 0
        && let Some(slot) = table::known(fd).filter(|slot| slot.is(CANDIDATE))
    {
        slot.is_listening.store(true, SeqCst);
    }
    result
}

/// Lets the connections of a listening socket come to the shared stack, if they can. If not, either all processes wait
/// for the socket itself, or connections wait there, and it is tried again when they were accepted.
pub fn share(guard: &mut StateGuard, fd: c_int, slot: &'static Slot) {
    if !slot.is(CANDIDATE) {
        return;
    }
    if calls_before_entry(fd).is_none() {
        return forget_socket(guard, fd);
    }
    if slot.busy.load(SeqCst) > 0 || !sets::may_enter(guard, fd) {
        return leave(guard, fd, slot, LeaveReason::Unserved);
    }
    let Some(entry) = ask_to_share(fd) else {
        return forget_socket(guard, fd);
    };
    let Some(entry) = entry else { return };
    if !join_if_first(guard, fd, &entry) {
        return forget_socket(guard, fd);
    }
    slot.value.store(entry[0], SeqCst);
    slot.state.store(DIRECT, SeqCst);
    sets::set_direct(guard, fd, true);
    if let Some(group) = group() {
        // Threads may sleep for sets with it.
        group.wake_waiters();
    }
}

/// Asks the agent; `None`: never; `Some(None)`: not now.
fn ask_to_share(fd: c_int) -> Option<Option<[u64; ENTRY]>> {
    let mut entry = [0; ENTRY];
    match ask_agent_until_answered(fd, SHARE, &mut entry) {
        result if result == -i64::from(libc::EAGAIN) => Some(None),
        result if result < 0 => None,
        _ => {
            PROCESS.store(entry[ENTRY - 1], SeqCst);
            Some(Some(entry))
        }
    }
}

/// Lets a listening socket leave, for good. Its options can be read meanwhile.
pub fn leave(guard: &mut StateGuard, fd: c_int, slot: &Slot, why: LeaveReason) {
    let name = if why == LeaveReason::Passed { LEAVE_PASSED } else { LEAVE_UNSERVED };
    match slot.state.load(SeqCst) {
        DIRECT | CANDIDATE => _ = ask_agent_until_answered(fd, name, &mut []),
        _ => return,
    }
    if slot.is(DIRECT) {
        slot.state.store(CANDIDATE, SeqCst);
        sets::set_direct(guard, fd, false);
    }
    forget_socket(guard, fd);
}

/// Before a listening socket can become one of another program.
pub fn before_inheritance(fd: c_int) {
    if table::known(fd).is_some_and(Slot::listens) {
        crate::descriptors::before_sharing(fd);
    }
}

/// Whether another program does not get a descriptor.
pub fn closes_on_exec(fd: c_int) -> bool {
    descriptor_flags(fd) & i64::from(libc::FD_CLOEXEC) != 0
}

/// Before a descriptor is closed: this process does not accept any more.
pub fn before_close(fd: c_int, slot: &Slot) {
    if slot.is(DIRECT) && slot.listens() && PROCESS.load(SeqCst) != 0 {
        ask_agent_until_answered(fd, UNSHARE, &mut []);
    }
}

/// Before this process becomes another program.
pub fn unshare_all() {
    for (fd, _) in table::all() {
        if let Some(slot) = table::slot(fd) {
            before_close(fd, slot);
        }
    }
    forget_process();
}

/// Closes a connection in the shared stack.
pub fn close_handle(handle: u64) {
    let _signals = SignalsHeld::hold();
    if let Some(Ok(mut locked)) = group().map(|group| group.begin()) {
        locked.close(handle);
    }
}

/// Makes a socket one that was reset.
pub fn reset(fd: c_int) {
    let mut pair = [-1_i32; 2];
    let kind = (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as u64;
    let at = pair.as_mut_ptr().addr() as u64;
    // SAFETY: the kernel writes two numbers.
    if unsafe { syscall(libc::SYS_socketpair, [libc::AF_UNIX as u64, kind, 0, at, 0, 0]) } < 0 {
        return;
    }
    let flags = if closes_on_exec(fd) { libc::O_CLOEXEC } else { 0 };
    // A UNIX socket is reset whose peer is closed with bytes unread.
    // SAFETY: the kernel reads a byte; the others take numbers.
    unsafe {
        syscall(libc::SYS_write, [pair[0] as u64, (&raw const flags).addr() as u64, 1, 0, 0, 0]);
        syscall(libc::SYS_dup3, [pair[0] as u64, fd as u64, flags as u64, 0, 0, 0]);
    }
    pair.iter().for_each(|fd| group::close(*fd));
}

/// `accept` and `accept4`.
///
/// # Safety
/// As the call.
pub unsafe fn accept(
    fd: c_int,
    from: *mut sockaddr,
    from_len: *mut socklen_t,
    flags: c_int,
    kernel: impl Fn() -> c_int,
) -> c_int {
    let slot = table::known(fd).filter(|slot| slot.listens());
    let share_it = || {
        if let Some(slot) = slot.filter(|slot| slot.is(CANDIDATE)) {
            share(&mut StateGuard::lock(), fd, slot);
        }
    };
    share_it();
    if let Some(slot) = slot.filter(|slot| slot.is(DIRECT))
        && let Some(accepted) = accept_direct(fd, slot, flags)
    {
        return match accepted {
            Ok(new) => {
                // SAFETY: the caller's.
                unsafe { tell_peer(new, from, from_len) };
                new
            }
            Err(error) => {
                set_errno(error);
                -1
            }
        };
    }
    let accepted = after_accept(kernel());
    if accepted >= 0 {
        // Maybe no other connection waits for the socket itself.
        share_it();
    }
    accepted
}

/// Tells who has connected.
///
/// # Safety
/// As `accept`.
unsafe fn tell_peer(fd: c_int, from: *mut sockaddr, from_len: *mut socklen_t) {
    if let (Some(address), false, false) =
        (table::slot(fd).and_then(|slot| address(slot, true)), from.is_null(), from_len.is_null())
    {
        // SAFETY: the caller's.
        unsafe { write_address(address, from, from_len) };
    }
}

/// Accepts in the shared stack; `None`: the kernel is to do it.
fn accept_direct(fd: c_int, slot: &'static Slot, flags: c_int) -> Option<Result<c_int, i32>> {
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return Some(Err(libc::EINVAL));
    }
    ensure_process();
    let (group, handle) = (group().filter(|_| slot.is(DIRECT))?, slot.handle());
    let signals = SignalsHeld::hold();
    let mut waiting = BlockingCall::new(fd, handle, 0, slot.receive_time.load(SeqCst));
    let stopped = loop {
        let Ok(mut locked) = group.begin() else { break StopReason::Kernel };
        locked.run();
        locked.publish_ready();
        let seen = locked.seen();
        let (result, ready) = locked.ready(handle);
        if result < 0 {
            break StopReason::Kernel;
        }
        if !ready.has(Flags::READABLE) {
            match waiting.sleep(locked, seen, group, &signals) {
                Ok(()) => continue,
                Err(stopped) => break stopped,
            }
        }
        let kind = (libc::SOCK_STREAM | flags) as u64;
        // SAFETY: the call takes numbers.
        let new = unsafe { syscall(libc::SYS_socket, [libc::AF_UNIX as u64, kind, 0, 0, 0, 0]) } as c_int;
        if new < 0 {
            break StopReason::Error(-new);
        }
        if table::slot(new).is_none() {
            // Connections with such numbers are the agent's.
            group::close(new);
            break StopReason::Mixed;
        }
        let mut addresses = [0; ADDRESS_WORDS];
        let accepted = locked.accept(handle, PROCESS.load(SeqCst), &mut addresses);
        drop(locked);
        if let Ok(accepted) = u64::try_from(accepted) {
            waiting.end(group);
            init(&signals, new, accepted, addresses);
            return Some(Ok(new));
        }
        group::close(new);
        if accepted == BAD_SOCKET {
            break StopReason::Kernel;
        }
    };
    waiting.end(group);
    drop(signals);
    match stopped {
        StopReason::Error(error) => Some(Err(error)),
        StopReason::Kernel => {
            leave_ended(fd, handle);
            None
        }
        StopReason::Mixed => {
            leave_now(fd, LeaveReason::Unserved);
            None
        }
    }
}

/// Begins to track an accepted connection.
fn init(signals: &SignalsHeld, fd: c_int, handle: u64, addresses: [u64; ADDRESS_WORDS]) {
    let mut guard = StateGuard::lock_with(signals);
    // The one that had the number before is closed, by whatever means.
    handle_close(&mut guard, fd);
    table::init(fd, table::NONE);
    // The caller has looked.
    let Some(slot) = table::slot(fd) else { return };
    for (to, word) in slot.addresses.iter().zip(addresses) {
        to.store(word, SeqCst);
    }
    slot.value.store(handle, SeqCst);
    slot.is_awaited.store(true, SeqCst);
    slot.is_unknown.store(true, SeqCst);
    slot.state.store(DIRECT, SeqCst);
}

/// An address of a connection that was accepted in the shared stack.
fn address(slot: &Slot, is_peer: bool) -> Option<SocketAddr> {
    let mut bytes = [0; 8 * ADDRESS_WORDS];
    for (to, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(&slot.addresses) {
        *to = word.load(SeqCst).to_ne_bytes();
    }
    let (local, peer) = bytes[..ADDRESSES].split_at(ADDRESS);
    (if is_peer { peer } else { local }).first_chunk().and_then(address_of)
}

/// `getsockname` and `getpeername`; `None`: the agent answers.
///
/// # Safety
/// As the calls.
pub unsafe fn name(fd: c_int, is_peer: bool, at: *mut sockaddr, len: *mut socklen_t) -> Option<c_int> {
    let slot = table::known(fd).filter(|slot| slot.is_unknown())?;
    let address = address(slot, is_peer)?;
    if at.is_null() || len.is_null() {
        set_errno(libc::EFAULT);
        return Some(-1);
    }
    // SAFETY: the caller's.
    unsafe { write_address(address, at, len) };
    Some(0)
}

/// Writes an address as the kernel does: as much as there is room for, and its whole length.
///
/// # Safety
/// There is room for so many bytes as `len` says.
unsafe fn write_address(address: SocketAddr, at: *mut sockaddr, len: *mut socklen_t) {
    let mut bytes = [0_u8; 28];
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
    bytes[2..4].copy_from_slice(&address.port().to_be_bytes());
    let whole = match address {
        SocketAddr::V4(v4) => {
            bytes[4..8].copy_from_slice(&v4.ip().octets());
            16
        }
        SocketAddr::V6(v6) => {
            bytes[8..24].copy_from_slice(&v6.ip().octets());
            28
        }
    };
    // SAFETY: the caller's.
    unsafe {
        let room = (len.read_unaligned() as usize).min(whole);
        at.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), room);
        len.write_unaligned(whole as socklen_t);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::address_bytes;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixListener;

    #[test]
    fn addresses_are_those_of_the_kernel() {
        for text in ["10.0.0.1:80", "[fd00::2]:4000"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(address_of(&address_bytes(address)), Some(address));
            let (mut at, mut len) = ([0xff_u8; 28], 28);
            // SAFETY: there is room for 28 bytes.
            unsafe { write_address(address, at.as_mut_ptr().cast(), &raw mut len) };
            let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
            assert_eq!(at[..2], (family as u16).to_ne_bytes());
            assert_eq!(at[2..4], address.port().to_be_bytes());
            assert_eq!(len, if address.is_ipv4() { 16 } else { 28 });
            // Only as much as there is room for.
            let (mut at, mut len) = ([0xff_u8; 28], 4);
            // SAFETY: there is room for 28 bytes.
            unsafe { write_address(address, at.as_mut_ptr().cast(), &raw mut len) };
            assert!(at[4..].iter().all(|byte| *byte == 0xff) && len > 4);
        }
        assert_eq!(address_of(&[0; ADDRESS]), None);
    }

    #[test]
    fn a_reset_socket_is_one_whose_peer_has_gone() {
        let listener = UnixListener::bind("").unwrap();
        reset(listener.as_raw_fd());
        let mut byte = 0_u8;
        let at = (&raw mut byte).addr() as u64;
        // SAFETY: the kernel writes a byte.
        let result = unsafe { syscall(libc::SYS_read, [listener.as_raw_fd() as u64, at, 1, 0, 0, 0]) };
        assert_eq!(result, -i64::from(libc::ECONNRESET));
    }
}
