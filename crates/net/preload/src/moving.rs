//! Connections that enter direct mode, and leave it. In doubt they leave.

use crate::abi::requests::{
    ADOPT, ADOPT_PAUSED, ADOPTION, DESCRIPTORS, ENTER_UNREAD, ENTRY, LEAVE_PASSED, LEAVE_UNSERVED, LEVEL,
    OFFER, PAUSE,
};
use crate::deferral;
use crate::group::{StackLayout, group, join};
use crate::guard::StateGuard;
use crate::listening;
use crate::real::syscall;
use crate::sets;
use crate::table::{self, Slot};
use crate::transfer::is_nonblocking;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI32};

/// The agent has not been asked yet after how many calls connections may enter.
const UNKNOWN: i32 = -1;
/// Connections may not enter.
const NEVER: i32 = i32::MAX;
/// After how many calls on it a connection may enter.
static CALLS_BEFORE_ENTRY: AtomicI32 = AtomicI32::new(UNKNOWN);
/// Whether this process could not join the stack.
static JOIN_FAILED: AtomicBool = AtomicBool::new(false);
/// How often a connection enters at most. Attack on its own speed: a program that sets an option again and again.
const MAX_ENTRIES: u32 = 64;
/// Calls until a connection that could not enter is tried again, at first.
const FIRST_RETRY: u32 = 4;

/// Why a connection leaves, as the agent is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaveReason {
    /// Another descriptor, or another process, gets its socket.
    Passed,
    /// A call is not served, or the connection has ended.
    Unserved,
    /// A call is for the agent; it may enter again.
    Pause,
}

/// Whether a connection is entering, or is being added to an epoll set.
static IS_ENTERING: AtomicBool = AtomicBool::new(false);

/// Whether a connection is entering: a thread that would wait for a set by the kernel's call alone tries again then.
pub fn is_entering() -> bool {
    IS_ENTERING.load(SeqCst)
}

/// Marks that a connection is entering, until this is dropped. The thread has the lock.
#[derive(Debug)]
pub struct Entering;

impl Entering {
    pub fn begin() -> Entering {
        IS_ENTERING.store(true, SeqCst);
        Entering
    }
}

impl Drop for Entering {
    fn drop(&mut self) {
        IS_ENTERING.store(false, SeqCst);
    }
}

/// Asks the agent about a socket; its answer, or a negative error.
fn ask_agent(fd: i32, name: i32, answer: &mut [u64]) -> i64 {
    let mut len = size_of_val(answer) as libc::socklen_t;
    let (at, len_at) = (answer.as_mut_ptr().addr() as u64, (&raw mut len).addr() as u64);
    let arguments = [fd as u64, LEVEL as u64, name as u64, at, len_at, 0];
    // SAFETY: the agent, or the kernel, writes to `answer` and `len`.
    unsafe { syscall(libc::SYS_getsockopt, arguments) }
}

/// As [`ask_agent`], again after each signal that comes before the answer.
pub fn ask_agent_until_answered(fd: i32, name: i32, answer: &mut [u64]) -> i64 {
    loop {
        let result = ask_agent(fd, name, answer);
        if result != -i64::from(libc::EINTR) {
            return result;
        }
    }
}

/// Ends direct mode: no connection enters from now on, and those that have entered leave.
pub fn disable(guard: &mut StateGuard) {
    CALLS_BEFORE_ENTRY.store(NEVER, SeqCst);
    leave_all(guard, Keeps::Nothing);
}

/// What serves a call on a socket.
#[derive(Debug)]
pub enum Route {
    /// The kernel, as if there were no library.
    Kernel,
    /// The kernel, while the socket may not enter.
    Candidate(KernelCall),
    Direct(&'static Slot),
}

/// Marks that a thread is within a call of the kernel on a socket, or on a set.
#[derive(Debug)]
pub struct KernelCall(&'static Slot);

impl KernelCall {
    /// Marks a call; `None` if the descriptor is not in this state any more.
    pub fn begin(slot: &'static Slot, state: u32) -> Option<KernelCall> {
        slot.busy.fetch_add(1, SeqCst);
        let busy = KernelCall(slot);
        slot.is(state).then_some(busy)
    }
}

impl Drop for KernelCall {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, SeqCst);
    }
}

/// Says what serves a call that reads or writes.
#[inline]
pub fn route(fd: i32) -> Route {
    match table::known(fd) {
        None => Route::Kernel,
        Some(slot) if slot.is(table::DIRECT) => Route::Direct(slot),
        Some(slot) => route_slowly(fd, slot),
    }
}

fn route_slowly(fd: i32, slot: &'static Slot) -> Route {
    if slot.is(table::CANDIDATE) && !slot.listens() {
        let calls = slot.calls.fetch_add(1, SeqCst) + 1;
        if calls >= slot.next_try.load(SeqCst) {
            enter(fd, slot, calls);
        }
    }
    loop {
        match slot.state.load(SeqCst) {
            table::CANDIDATE => {
                if let Some(busy) = KernelCall::begin(slot, table::CANDIDATE) {
                    return Route::Candidate(busy);
                }
            }
            // Another thread has the lock.
            table::ENTERING => drop(StateGuard::lock()),
            table::DIRECT => return Route::Direct(slot),
            _ => return Route::Kernel,
        }
    }
}

/// Lets a connection enter if it can.
fn enter(fd: i32, slot: &'static Slot, calls: u32) {
    let mut guard = StateGuard::lock();
    if !slot.is(table::CANDIDATE) {
        return;
    }
    let Some(after) = calls_before_entry(fd) else { return forget_socket(&mut guard, fd) };
    if calls < after as u32 {
        return slot.next_try.store(after as u32, SeqCst);
    }
    slot.next_try.store(calls.saturating_add(calls.max(FIRST_RETRY)), SeqCst);
    // A program that waits for it by other means would never be told.
    if !slot.is_awaited.load(SeqCst) && is_nonblocking(fd) {
        return;
    }
    slot.state.store(table::ENTERING, SeqCst);
    let _entering = Entering::begin();
    let may = slot.busy.load(SeqCst) == 0 && sets::may_enter(&mut guard, fd);
    let mut entry = [0; ENTRY];
    let result = if may { ask_agent(fd, ENTER_UNREAD, &mut entry) } else { -i64::from(libc::EAGAIN) };
    let retries = [libc::EAGAIN, libc::ENOTCONN, libc::EINTR, libc::ENOBUFS];
    if result < 0 {
        slot.state.store(table::CANDIDATE, SeqCst);
        if !retries.contains(&(-result as i32)) {
            forget_socket(&mut guard, fd);
        }
        return;
    }
    if !join_if_first(&mut guard, fd, &entry) {
        slot.state.store(table::CANDIDATE, SeqCst);
        return forget_socket(&mut guard, fd);
    }
    slot.value.store(entry[0], SeqCst);
    slot.may_have_unread.store(true, SeqCst);
    slot.entries.fetch_add(1, SeqCst);
    slot.state.store(table::DIRECT, SeqCst);
    sets::set_direct(&mut guard, fd, true);
    if let Some(group) = group() {
        // Threads may sleep for sets with it.
        group.wake_waiters();
    }
}

/// After how many calls a connection may enter; `None`: never.
pub fn calls_before_entry(fd: i32) -> Option<i32> {
    if CALLS_BEFORE_ENTRY.load(SeqCst) == UNKNOWN {
        let mut answer = [0];
        let result = ask_agent(fd, OFFER, &mut answer);
        CALLS_BEFORE_ENTRY.store(if result < 0 { NEVER } else { answer[0] as i32 }, SeqCst);
    }
    let after = CALLS_BEFORE_ENTRY.load(SeqCst);
    (after != NEVER && !JOIN_FAILED.load(SeqCst)).then_some(after)
}

/// Joins the shared stack with the first socket that enters. `false`: this process can't, and the socket has left.
pub fn join_if_first(guard: &mut StateGuard, fd: i32, entry: &[u64; ENTRY]) -> bool {
    if group().is_none() {
        if !join_group(fd, entry) {
            JOIN_FAILED.store(true, SeqCst);
            ask_agent(fd, LEAVE_UNSERVED, &mut []);
            return false;
        }
        deferral::begin(guard);
    }
    true
}

fn join_group(fd: i32, entry: &[u64; ENTRY]) -> bool {
    let mut descriptors = [-1; DESCRIPTORS as usize];
    for (name, descriptor) in (0..).zip(&mut descriptors) {
        *descriptor = ask_agent(fd, name, &mut []) as i32;
        // The kernel's own answers are 0, standard input's number.
        if *descriptor <= 0 {
            return false;
        }
    }
    let [_, port, agent, tick, nanoseconds, rate, entry, text, text_len, data, _] = *entry;
    let clock = [tick, nanoseconds, rate];
    join(&descriptors, StackLayout { lengths: [port, agent], clock, entry, text, text_len, data })
}

/// Forgets a socket, which the kernel serves from now on. The agent need not be told.
pub fn forget_socket(guard: &mut StateGuard, fd: i32) {
    if let Some(slot) = table::slot(fd) {
        slot.state.store(table::NONE, SeqCst);
    }
    // Its sets are the kernel's as they are.
    sets::forget(guard, fd);
}

/// Lets a connection leave, or a socket never enter.
pub fn leave(guard: &mut StateGuard, fd: i32, why: LeaveReason) {
    let Some(slot) = table::known(fd) else { return };
    if slot.listens() {
        return listening::leave(guard, fd, slot, why);
    }
    match slot.state.load(SeqCst) {
        table::DIRECT => {}
        table::CANDIDATE if why != LeaveReason::Pause => return forget_socket(guard, fd),
        _ => return,
    }
    let pauses = why == LeaveReason::Pause && slot.entries.load(SeqCst) < MAX_ENTRIES;
    let name = match why {
        LeaveReason::Pause if pauses => PAUSE,
        LeaveReason::Passed => LEAVE_PASSED,
        _ => LEAVE_UNSERVED,
    };
    if slot.is_unknown() {
        adopt(fd, slot, pauses);
    } else {
        // If nobody answers, the socket is reset, and the kernel says so.
        ask_agent_until_answered(fd, name, &mut []);
    }
    slot.state.store(table::CANDIDATE, SeqCst);
    sets::set_direct(guard, fd, false);
    slot.is_unknown.store(false, SeqCst);
    if pauses {
        // Options are often set one after the other.
        let calls = slot.calls.load(SeqCst);
        let entries = slot.entries.load(SeqCst);
        slot.next_try.store(calls.saturating_add(2 * entries * entries), SeqCst);
    } else {
        forget_socket(guard, fd);
    }
}

/// Lets the agent have a connection that was accepted in the shared stack.
fn adopt(fd: i32, slot: &Slot, pauses: bool) {
    let name = if pauses { ADOPT_PAUSED } else { ADOPT };
    let mut request = [0; ADOPTION];
    request[0] = slot.handle();
    for (to, word) in request[1..].iter_mut().zip(&slot.addresses) {
        *to = word.load(SeqCst);
    }
    if ask_agent_until_answered(fd, name, &mut request) < 0 {
        // There is no agent, or it can't: as everywhere then, the connection is reset.
        listening::close_handle(slot.handle());
        listening::reset(fd);
    }
}

/// As [`leave`], before a call of the kernel.
pub fn leave_now(fd: i32, why: LeaveReason) {
    if table::known(fd).is_some() {
        leave(&mut StateGuard::lock(), fd, why);
    }
}

/// Makes a connection leave that has ended, or that the shared stack does not have any more. Does nothing if the
/// descriptor has another connection meanwhile.
pub fn leave_ended(fd: i32, handle: u64) {
    let mut guard = StateGuard::lock();
    let Some(slot) = table::known(fd).filter(|slot| slot.is(table::DIRECT) && slot.handle() == handle) else {
        return;
    };
    match slot.listens() {
        true => listening::return_ended(&mut guard, fd, slot),
        false => leave(&mut guard, fd, LeaveReason::Unserved),
    }
}

/// The listening sockets that stay as they are while connections leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    Nothing,
    /// Those that another program does not get.
    CloseOnExec,
    /// All: the child of a fork has this library too.
    Listening,
}

/// Makes all connections leave, before other processes get their sockets.
pub fn leave_all(guard: &mut StateGuard, keeps: Keeps) {
    for (fd, state) in table::all() {
        if state != table::DIRECT && state != table::CANDIDATE {
            continue;
        }
        let listens = table::slot(fd).is_some_and(Slot::listens);
        let stays = match keeps {
            Keeps::Nothing => false,
            Keeps::CloseOnExec => listens && listening::closes_on_exec(fd),
            Keeps::Listening => listens,
        };
        if !stays {
            leave(guard, fd, LeaveReason::Passed);
        }
    }
}

/// Makes the members of a set leave, which is waited for by other means than this process's calls on its descriptor.
pub fn restrict_set(guard: &mut StateGuard, set: i32) {
    let Some(found) = sets::sets(guard).get_mut(&set) else { return };
    found.is_kernel_only = true;
    found.flush_removed(set);
    for fd in sets::members(guard, set) {
        leave(guard, fd, LeaveReason::Unserved);
    }
}

/// Forgets a descriptor that is closed, or becomes another file.
pub fn handle_close(guard: &mut StateGuard, fd: i32) {
    if let Some(slot) = table::known(fd) {
        if slot.is_unknown() {
            listening::close_handle(slot.handle());
        }
        slot.state.store(table::NONE, SeqCst);
        sets::remove(guard, fd);
    }
}
