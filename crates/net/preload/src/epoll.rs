//! `epoll_wait` and `epoll_ctl` for sets with direct members.

use crate::abi::words::BITS;
use crate::group::{Locked, WaitRequest, WakeReason, group};
use crate::guard::{SignalsHeld, StateGuard};
use crate::listening;
use crate::moving::{
    Entering, KernelCall, LeaveReason, forget_socket, handle_close, is_entering, leave, leave_ended,
    restrict_set,
};
use crate::real::{set_errno, syscall};
use crate::sets::{self, EpollSet};
use crate::table::{self, CANDIDATE, DIRECT, ENTERING, EPOLL, Slot};
use crate::transfer::{Ready, ready};
use libc::{c_int, epoll_event, pollfd};
use std::sync::atomic::Ordering::SeqCst;

const READ: u32 = (libc::EPOLLIN | libc::EPOLLRDNORM) as u32;
const WRITE: u32 = (libc::EPOLLOUT | libc::EPOLLWRNORM) as u32;
const EDGE: u32 = libc::EPOLLET as u32;
const ONCE: u32 = libc::EPOLLONESHOT as u32;
/// Calls in a row in which the kernel's descriptors are not polled, since direct ones are ready.
const MAX_SKIPPED: u32 = 4;

fn events(ready: Ready, wanted: u32) -> u32 {
    let read = if ready.read { READ } else { 0 };
    let write = if ready.write { WRITE } else { 0 };
    let finished = if ready.finished { libc::EPOLLRDHUP as u32 } else { 0 };
    (read | write | finished) & wanted
}

/// What [`collect_ready`] found in a set.
struct Found {
    count: usize,
    /// A member that the kernel is to serve, with its handle.
    ended: Option<(c_int, u64)>,
    /// The bits of all direct members.
    bits: u64,
}

/// Writes the events of the direct members of a set that are ready.
///
/// # Safety
/// `out` has room for `most` events.
unsafe fn collect_ready(
    set: &mut EpollSet,
    locked: &mut Locked,
    out: *mut epoll_event,
    most: usize,
) -> Found {
    let group = group();
    let (mut edges, mut ready_bits) = (0_u64, 0);
    for bit in 0..BITS {
        let changes = group.map_or(0, |group| group.changes(bit));
        if changes != set.counts[bit] {
            edges |= 1 << bit;
            set.counts[bit] = changes;
        }
    }
    let flagged = edges | set.ready_bits;
    let mut found = Found { count: 0, ended: None, bits: 0 };
    let total = set.members.len();
    let first = if total == 0 { 0 } else { set.first % total };
    for step in 0..total {
        let index = (first + step) % total;
        let member = &mut set.members[index];
        let Some(slot) = table::known(member.fd).filter(|slot| member.is_direct && slot.is(DIRECT)) else {
            continue;
        };
        let bit = 1 << (slot.handle() as u32 % 64);
        found.bits |= bit;
        let may_have_unread = slot.may_have_unread.load(SeqCst);
        if member.is_disabled || flagged & bit == 0 && !member.is_pending && !may_have_unread {
            continue;
        }
        let state = ready(locked, member.fd, slot);
        if state.is_ended {
            found.ended = Some((member.fd, slot.handle()));
            member.is_pending = true;
            continue;
        }
        let told = events(state, member.events);
        let is_edge = member.events & EDGE != 0;
        if told == 0 || is_edge && edges & bit == 0 && !member.is_pending {
            member.is_pending = false;
            continue;
        }
        if !is_edge {
            ready_bits |= bit;
        }
        if found.count == most {
            member.is_pending = true;
            continue;
        }
        member.is_pending = false;
        member.is_disabled = member.events & ONCE != 0;
        // SAFETY: there is room.
        unsafe { out.add(found.count).write_unaligned(epoll_event { events: told, u64: member.data }) };
        found.count += 1;
        if found.count == most {
            set.first = index + 1;
        }
    }
    set.ready_bits = ready_bits;
    found
}

/// Polls the kernel's set without waiting; how many events it has written.
///
/// # Safety
/// `out` has room for `most` events.
unsafe fn poll_kernel(
    found: &mut EpollSet,
    set: c_int,
    out: *mut epoll_event,
    most: usize,
) -> Result<usize, i32> {
    let arguments = [set as u64, out.addr() as u64, most as u64, 0, 0, 8];
    // SAFETY: the caller's.
    let result = unsafe { syscall(libc::SYS_epoll_pwait, arguments) };
    let count = usize::try_from(result).map_err(|_| -result as i32)?;
    // SAFETY: the kernel has written so many.
    Ok(found.drop_removed(set, unsafe { std::slice::from_raw_parts_mut(out, count) }))
}

/// Waits as `epoll_pwait2`. `None`: nothing concerns the library.
///
/// # Safety
/// `out` is a program's, with room for `most` events.
pub unsafe fn wait(
    set: c_int,
    out: *mut epoll_event,
    most: c_int,
    time: Option<u64>,
    mask: Option<u64>,
    kernel: impl Fn() -> c_int,
) -> Option<c_int> {
    let slot = table::known(set).filter(|slot| slot.is(EPOLL))?;
    let room = usize::try_from(most).ok().filter(|most| *most > 0 && !out.is_null())?;
    let mut until = None;
    loop {
        if slot.value.load(SeqCst) == 0 {
            let busy = KernelCall::begin(slot, EPOLL);
            if is_entering() {
                drop(busy);
                drop(StateGuard::lock());
                continue;
            }
            // Now none can enter.
            if slot.value.load(SeqCst) == 0 {
                return Some(kernel());
            }
        }
        let now = group()?.now();
        let until = *until.get_or_insert(time.map_or(u64::MAX, |time| now.saturating_add(time)));
        listening::ensure_process();
        // SAFETY: the caller's.
        match unsafe { wait_direct((set, slot), out, room, until, mask) } {
            Some(Ok(count)) => return Some(count as c_int),
            Some(Err(error)) => {
                set_errno(error);
                return Some(-1);
            }
            None => {}
        }
    }
}

/// Whether to poll the kernel's part of a set: now and then while direct members are ready, and after a sleep which the
/// kernel's part may have ended.
fn polls_kernel(set: &EpollSet, slept: Option<WakeReason>) -> bool {
    slept.map_or(set.skipped.is_multiple_of(MAX_SKIPPED), |slept| slept == WakeReason::Any)
}

/// Lets the direct members of a set leave.
fn leave_all(guard: &mut StateGuard, set: c_int) {
    for fd in sets::members(guard, set) {
        leave(guard, fd, LeaveReason::Unserved);
    }
}

/// Waits for a set with direct members; `None`: its members may have changed.
///
/// # Safety
/// As [`wait`].
unsafe fn wait_direct(
    (set, slot): (c_int, &Slot),
    out: *mut epoll_event,
    room: usize,
    until: u64,
    mask: Option<u64>,
) -> Option<Result<usize, i32>> {
    let group = group()?;
    let (mut slept, mut has_slept) = (None, false);
    // A signal that comes between two looks interrupts the next sleep.
    let signals = SignalsHeld::hold_for(mask);
    let mask = mask.or(signals.mask);
    let result = loop {
        let mut guard = StateGuard::lock_with(&signals);
        let Some(found_set) = sets::sets(&mut guard).get_mut(&set) else { break Some(Err(libc::EBADF)) };
        let polls = polls_kernel(found_set, slept);
        // SAFETY: the caller's.
        let polled = if polls { unsafe { poll_kernel(found_set, set, out, room) } } else { Ok(0) };
        let mut count = match polled {
            Ok(count) => count,
            Err(error) => break Some(Err(error)),
        };
        let Ok(mut locked) = group.begin() else {
            leave_all(&mut guard, set);
            break if count > 0 { Some(Ok(count)) } else { None };
        };
        locked.run();
        locked.publish_ready();
        let seen = locked.seen();
        // SAFETY: there is room for the rest.
        let found = unsafe { collect_ready(found_set, &mut locked, out.add(count), room - count) };
        found_set.skipped = if found.count > 0 { found_set.skipped.wrapping_add(1) } else { 0 };
        count += found.count;
        if count > 0 {
            break Some(Ok(count));
        }
        if let Some((fd, handle)) = found.ended {
            // In the reverse order of their locks.
            drop((locked, guard, signals));
            leave_ended(fd, handle);
            break None;
        }
        if group.now() >= until && polls {
            break Some(Ok(0));
        } else if group.now() >= until {
            // The kernel's members may be ready.
            slept = Some(WakeReason::Any);
            continue;
        }
        if found.bits == 0 {
            // The kernel's call does the rest.
            found_set.flush_removed(set);
            break None;
        }
        // Who changes the set has the lock.
        slot.sleepers.fetch_add(1, SeqCst);
        drop(guard);
        let others = [pollfd { fd: set, events: libc::POLLIN, revents: 0 }];
        let reason = locked.sleep(&WaitRequest { bits: found.bits, seen, until, mask, others: &others });
        (slept, has_slept) = (Some(reason), true);
        slot.sleepers.fetch_sub(1, SeqCst);
        if reason == WakeReason::Interrupted {
            break Some(Err(libc::EINTR));
        }
    };
    if has_slept {
        group.end_wait();
    }
    result
}

/// After `epoll_create` and the like: adds the set.
pub fn after_create(fd: c_int) -> c_int {
    if fd >= 0 {
        let mut guard = StateGuard::lock();
        handle_close(&mut guard, fd);
        sets::add(&mut guard, fd);
    }
    fd
}

/// `epoll_ctl`. `None`: nothing concerns the library.
///
/// # Safety
/// As the call.
pub unsafe fn control(
    set: c_int,
    operation: c_int,
    fd: c_int,
    event: *const epoll_event,
    kernel: impl Fn() -> c_int,
) -> Option<c_int> {
    let slot = table::known(fd)?;
    let adds = operation != libc::EPOLL_CTL_DEL && !event.is_null();
    // SAFETY: the caller's.
    if slot.listens() && adds && unsafe { (*event).events } & libc::EPOLLEXCLUSIVE as u32 == 0 {
        // A set with it that only the kernel waits for makes it leave again.
        listening::share(&mut StateGuard::lock(), fd, slot);
    }
    let mut guard = StateGuard::lock_briefly();
    match slot.state.load(SeqCst) {
        EPOLL => {
            // Whoever waits for the outer one waits for this one too.
            restrict_set(&mut guard, fd);
            return None;
        }
        CANDIDATE | DIRECT => {}
        _ => return None,
    }
    let gives = operation != libc::EPOLL_CTL_DEL;
    if gives && event.is_null() {
        return None;
    }
    // SAFETY: the caller's.
    let (events, data) = if gives { unsafe { ((*event).events, (*event).u64) } } else { (0, 0) };
    let is_kernel_only = sets::sets(&mut guard).get(&set).is_none_or(|set| set.is_kernel_only);
    if is_kernel_only || events & libc::EPOLLEXCLUSIVE as u32 != 0 {
        leave(&mut guard, fd, LeaveReason::Unserved);
        return None;
    }
    if !slot.is(DIRECT) {
        let result = kernel();
        if result == 0 {
            sets::handle_control(&mut guard, set, operation, fd, (events, data));
        }
        return Some(result);
    }
    let _entering = Entering::begin();
    if gives && table::known(set).is_some_and(|set| set.busy.load(SeqCst) > 0) {
        // A thread waits for the set by the kernel's call alone.
        leave(&mut guard, fd, LeaveReason::Unserved);
        return None;
    }
    let result = sets::control_direct(&mut guard, set, operation, fd, (events, data));
    if result < 0 {
        set_errno(-result as i32);
        return Some(-1);
    }
    if gives
        && table::known(set).is_some_and(|set| set.sleepers.load(SeqCst) > 0)
        && let Some(group) = group()
    {
        // A thread sleeps for the set as it was.
        group.wake_waiters();
    }
    Some(0)
}

/// Whether a descriptor is a TCP socket that may be in direct mode.
pub fn is_known(fd: c_int) -> bool {
    matches!(table::state(fd), CANDIDATE | ENTERING | DIRECT)
}

/// Leaves a socket to the kernel, for good.
pub fn exclude(fd: c_int) {
    if is_known(fd) {
        let mut guard = StateGuard::lock();
        leave(&mut guard, fd, LeaveReason::Unserved);
        forget_socket(&mut guard, fd);
    }
}
