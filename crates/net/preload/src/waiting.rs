//! `poll`, `select`, and the like, for lists with direct connections.

use crate::group::{Group, WaitRequest, WakeReason, group, timespec};
use crate::guard::{SignalsHeld, StateGuard};
use crate::listening;
use crate::moving::{KernelCall, leave_ended, restrict_set};
use crate::real::{set_errno, syscall};
use crate::table::{self, CANDIDATE, DIRECT, EPOLL, Slot};
use crate::transfer::{Ready, ready};
use libc::{c_int, c_short, fd_set, pollfd};
use std::cell::Cell;
use std::sync::atomic::Ordering::SeqCst;

const READ: c_short = libc::POLLIN | libc::POLLRDNORM;
const WRITE: c_short = libc::POLLOUT | libc::POLLWRNORM;
/// Entries of a list that needs no memory of its own.
const INLINE_ENTRIES: usize = 64;

/// The `revents` of a connection.
fn events(ready: Ready, wanted: c_short) -> c_short {
    let read = if ready.read { READ } else { 0 };
    let write = if ready.write { WRITE } else { 0 };
    let finished = if ready.finished { libc::POLLRDHUP } else { 0 };
    (read | write | finished) & wanted
}

/// What a list has.
enum List {
    /// No descriptor that concerns the library.
    Kernel,
    /// Sockets that may not enter until the kernel's call is over.
    Candidates,
    Direct,
}

/// Says what a list has. Its epoll sets are the kernel's alone from now on.
fn classify(list: &[pollfd]) -> List {
    let (mut kind, mut has_direct) = (List::Kernel, false);
    for entry in list {
        match table::known(entry.fd).map(|slot| (slot, slot.state.load(SeqCst))) {
            Some((_, DIRECT)) => has_direct = true,
            Some((slot, CANDIDATE)) if slot.listens() => {
                listening::share(&mut StateGuard::lock(), entry.fd, slot);
                has_direct |= slot.is(DIRECT);
                kind = List::Candidates;
            }
            Some((slot, CANDIDATE | table::ENTERING)) => {
                slot.is_awaited.store(true, SeqCst);
                kind = List::Candidates;
            }
            Some((_, EPOLL)) => restrict_set(&mut StateGuard::lock(), entry.fd),
            _ => {}
        }
    }
    if has_direct { List::Direct } else { kind }
}

/// Waits as `ppoll`. `None`: nothing concerns the library. `most` in nanoseconds; `mask` is for the time of the wait.
///
/// # Safety
/// The list is a program's.
pub unsafe fn poll(
    list: *mut pollfd,
    count: usize,
    most: Option<u64>,
    mask: Option<u64>,
    kernel: impl Fn() -> c_int,
) -> Option<c_int> {
    if list.is_null() || count == 0 || count > table::MAX_DESCRIPTORS {
        return None;
    }
    // SAFETY: the caller's.
    let list = unsafe { std::slice::from_raw_parts_mut(list, count) };
    loop {
        match classify(list) {
            List::Kernel => return None,
            List::Direct => {
                if let Some(result) = wait(list, most, mask) {
                    return Some(match result {
                        Ok(count) => count,
                        Err(error) => {
                            set_errno(error);
                            -1
                        }
                    });
                }
            }
            List::Candidates => {
                if let Some(_busy) = hold_candidates(list) {
                    return Some(kernel());
                }
            }
        }
    }
}

/// Keeps the candidates of a list from entering; `None`: one has entered.
fn hold_candidates(list: &[pollfd]) -> Option<Vec<KernelCall>> {
    let known = list.iter().filter_map(|entry| table::known(entry.fd));
    let may_enter = |slot: &&Slot| slot.is(CANDIDATE) || slot.is(table::ENTERING) || slot.is(DIRECT);
    let busy: Option<Vec<KernelCall>> =
        known.filter(may_enter).map(|slot| KernelCall::begin(slot, CANDIDATE)).collect();
    if busy.is_none() {
        // The thread whose connection is entering has the lock.
        drop(StateGuard::lock());
    }
    busy
}

/// The direct connections of a list, and the kernel's descriptors as a list.
struct SplitList {
    direct: Vec<(usize, i32, &'static Slot)>,
    others: Vec<pollfd>,
    bits: u64,
    has_others: bool,
}

impl SplitList {
    fn of(list: &[pollfd]) -> SplitList {
        let (mut direct, mut others) = (Vec::with_capacity(INLINE_ENTRIES), list.to_vec());
        let (mut bits, mut has_others) = (0, false);
        for (index, other) in others.iter_mut().enumerate() {
            other.revents = 0;
            match table::known(other.fd).filter(|slot| slot.is(DIRECT)) {
                Some(slot) => {
                    bits |= 1 << (slot.handle() as u32 % 64);
                    direct.push((index, other.fd, slot));
                    other.fd = -1;
                }
                None => has_others |= other.fd >= 0,
            }
        }
        SplitList { direct, others, bits, has_others }
    }
}

/// Waits for a list with direct connections. `None`: the list is to be classified again.
fn wait(list: &mut [pollfd], most: Option<u64>, mask: Option<u64>) -> Option<Result<c_int, i32>> {
    listening::ensure_process();
    let group = group()?;
    let mut parts = SplitList::of(list);
    let _busy = hold_candidates(&parts.others)?;
    let until = most.map_or(u64::MAX, |most| group.now().saturating_add(most));
    let signals = SignalsHeld::hold_for(mask);
    let mask = mask.or(signals.mask);
    let mut has_slept = false;
    let result = loop {
        if parts.has_others {
            poll_now(&mut parts.others);
        }
        let Ok(mut locked) = group.begin() else { break leave_lost(signals, &parts) };
        locked.run();
        locked.publish_ready();
        let seen = locked.seen();
        let mut count = 0;
        let mut is_over = None;
        for (index, entry) in list.iter_mut().enumerate() {
            entry.revents = parts.others[index].revents;
        }
        for (index, fd, slot) in &parts.direct {
            let found = ready(&mut locked, *fd, slot);
            if found.is_ended {
                is_over = Some((*fd, slot.handle()));
            }
            list[*index].revents = events(found, list[*index].events);
        }
        if let Some((fd, handle)) = is_over {
            drop(locked);
            drop(signals);
            leave_ended(fd, handle);
            break None;
        }
        count += list.iter().filter(|entry| entry.revents != 0).count();
        if count > 0 || group.now() >= until {
            drop(locked);
            break Some(Ok(count as c_int));
        }
        has_slept = true;
        let others = if parts.has_others { &parts.others[..] } else { &[] };
        let wanted = WaitRequest { bits: parts.bits, seen, until, mask, others };
        if locked.sleep(&wanted) == WakeReason::Interrupted {
            break Some(Err(libc::EINTR));
        }
    };
    finish(group, has_slept);
    result
}

fn finish(group: &Group, has_slept: bool) {
    if has_slept {
        group.end_wait();
    }
}

/// Makes all connections of a list leave, since the stack is lost.
fn leave_lost<T>(signals: SignalsHeld, parts: &SplitList) -> Option<T> {
    drop(signals);
    parts.direct.iter().for_each(|(_, fd, slot)| leave_ended(*fd, slot.handle()));
    None
}

/// Polls the kernel's descriptors without waiting.
fn poll_now(others: &mut [pollfd]) {
    let time = timespec(0);
    let (at, count) = (others.as_mut_ptr().addr() as u64, others.len() as u64);
    let arguments = [at, count, (&raw const time).addr() as u64, 0, 8, 0];
    // SAFETY: the kernel reads and writes the list.
    unsafe { syscall(libc::SYS_ppoll, arguments) };
}

/// Whether a set of `select` has a descriptor.
///
/// # Safety
/// The set is null, or has as many bits.
unsafe fn fd_is_set(set: *const fd_set, fd: c_int) -> bool {
    let words = set.cast::<u64>();
    // SAFETY: the caller's.
    !set.is_null() && unsafe { *words.add(fd as usize / 64) } >> (fd as usize % 64) & 1 != 0
}

/// # Safety
/// As [`fd_is_set`].
unsafe fn fd_assign(set: *mut fd_set, fd: c_int, is_in: bool) {
    if set.is_null() {
        return;
    }
    let word = set.cast::<u64>().wrapping_add(fd as usize / 64);
    let bit = 1 << (fd as usize % 64);
    // SAFETY: the caller's.
    unsafe { *word = if is_in { *word | bit } else { *word & !bit } };
}

/// Waits as `pselect`. `None`: nothing concerns the library.
///
/// # Safety
/// The sets are a program's, and have `count` bits.
pub unsafe fn select(
    count: c_int,
    sets: [*mut fd_set; 3],
    most: Option<u64>,
    mask: Option<u64>,
    kernel: impl Fn() -> c_int,
) -> Option<c_int> {
    const EXCEPT: c_short = libc::POLLPRI;
    let [reads, writes, excepts] = sets;
    if count <= 0 || count as usize > table::MAX_DESCRIPTORS {
        return None;
    }
    let mut list = Vec::new();
    for fd in 0..count {
        // SAFETY: the caller's.
        let [read, write, except] =
            unsafe { [fd_is_set(reads, fd), fd_is_set(writes, fd), fd_is_set(excepts, fd)] };
        let events = [(read, READ), (write, WRITE), (except, EXCEPT)];
        let events = events.iter().filter(|(wanted, _)| *wanted).fold(0, |all, (_, events)| all | events);
        if events != 0 {
            list.push(pollfd { fd, events, revents: 0 });
        }
    }
    let is_kernels = Cell::new(false);
    let by_kernel = || {
        is_kernels.set(true);
        kernel()
    };
    // SAFETY: a list of this call.
    let result = unsafe { poll(list.as_mut_ptr(), list.len(), most, mask, by_kernel) }?;
    if is_kernels.get() || result < 0 {
        return Some(result);
    }
    if list.iter().any(|entry| entry.revents & libc::POLLNVAL != 0) {
        set_errno(libc::EBADF);
        return Some(-1);
    }
    let mut found = 0;
    for entry in &list {
        // A hang-up can be read, an error too, and both can be written.
        let over = libc::POLLHUP | libc::POLLERR;
        let told =
            [(reads, READ, READ | over), (writes, WRITE, WRITE | libc::POLLERR), (excepts, EXCEPT, EXCEPT)];
        for (set, wanted, ready) in told {
            let is_in = entry.events & wanted != 0 && entry.revents & ready != 0;
            // SAFETY: the caller's.
            unsafe { fd_assign(set, entry.fd, is_in) };
            found += c_int::from(is_in);
        }
    }
    Some(found)
}
