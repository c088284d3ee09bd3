//! Connections that enter direct mode, and leave it. In doubt they leave.

use crate::abi::requests::{
    DESCRIPTORS, ENTER_UNREAD, ENTRY, LEAVE_PASSED, LEAVE_UNSERVED, LEVEL, OFFER, PAUSE,
};
use crate::gate::Inside;
use crate::group::{Places, group, join};
use crate::real::call;
use crate::sets;
use crate::table::{self, Slot};
use crate::transfer::is_nonblocking;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicI32};

/// The agent has not been asked yet when connections may enter.
const UNKNOWN: i32 = -1;
/// They may not.
const NEVER: i32 = i32::MAX;
/// After how many calls on it a connection may enter.
static AFTER: AtomicI32 = AtomicI32::new(UNKNOWN);
/// This process could not join the stack.
static FAILED: AtomicBool = AtomicBool::new(false);
/// How often a connection enters at most. Attack on its own speed: a program that sets an option again and again.
const ENTRIES: u32 = 64;
/// Calls until a connection that could not enter is tried again, at first.
const RETRY: u32 = 4;

/// Why a connection leaves, as the agent is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Another descriptor, or another process, gets its socket.
    Passed,
    /// A call is not served, or the connection has ended.
    Unserved,
    /// A call is for the agent; it may enter again.
    Pause,
}

/// A connection enters, or comes into a set, just now.
static IS_ENTERING: AtomicBool = AtomicBool::new(false);

/// Whether one does: a thread that would wait for a set by the kernel's call alone tries again then.
pub fn is_entering() -> bool {
    IS_ENTERING.load(SeqCst)
}

/// While it lives, one does; within the gate.
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
fn ask(fd: i32, name: i32, answer: &mut [u64]) -> i64 {
    let mut len = size_of_val(answer) as libc::socklen_t;
    let (at, len_at) = (answer.as_mut_ptr().addr() as u64, (&raw mut len).addr() as u64);
    let arguments = [fd as u64, LEVEL as u64, name as u64, at, len_at, 0];
    // SAFETY: the agent, or the kernel, writes to `answer` and `len`.
    unsafe { call(libc::SYS_getsockopt, arguments) }
}

/// No connection enters from now on, and those that have leave.
pub fn stop(inside: &mut Inside) {
    AFTER.store(NEVER, SeqCst);
    leave_all(inside);
}

/// What serves a call on a socket.
#[derive(Debug)]
pub enum Route {
    /// The kernel, as if there were no library.
    Kernel,
    /// The kernel, while the socket may not enter.
    Candidate(Busy),
    Direct(&'static Slot),
}

/// A thread is within a call of the kernel on a socket, or on a set.
#[derive(Debug)]
pub struct Busy(&'static Slot);

impl Busy {
    /// If the descriptor is in this state still.
    pub fn begin(slot: &'static Slot, state: u32) -> Option<Busy> {
        slot.busy.fetch_add(1, SeqCst);
        let busy = Busy(slot);
        slot.is(state).then_some(busy)
    }
}

impl Drop for Busy {
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
    if slot.is(table::CANDIDATE) {
        let calls = slot.calls.fetch_add(1, SeqCst) + 1;
        if calls >= slot.next.load(SeqCst) {
            enter(fd, slot, calls);
        }
    }
    loop {
        match slot.state.load(SeqCst) {
            table::CANDIDATE => {
                if let Some(busy) = Busy::begin(slot, table::CANDIDATE) {
                    return Route::Candidate(busy);
                }
            }
            // Another thread is inside.
            table::ENTERING => drop(Inside::enter()),
            table::DIRECT => return Route::Direct(slot),
            _ => return Route::Kernel,
        }
    }
}

/// Lets a connection enter if it can.
fn enter(fd: i32, slot: &'static Slot, calls: u32) {
    let mut inside = Inside::enter();
    if !slot.is(table::CANDIDATE) {
        return;
    }
    if AFTER.load(SeqCst) == UNKNOWN {
        let mut answer = [0];
        let result = ask(fd, OFFER, &mut answer);
        AFTER.store(if result < 0 { NEVER } else { answer[0] as i32 }, SeqCst);
    }
    let after = AFTER.load(SeqCst);
    if after == NEVER || FAILED.load(SeqCst) {
        return give_up(&mut inside, fd);
    }
    if calls < after as u32 {
        return slot.next.store(after as u32, SeqCst);
    }
    slot.next.store(calls.saturating_add(calls.max(RETRY)), SeqCst);
    // A program that waits for it by other means would never be told.
    if !slot.is_awaited.load(SeqCst) && is_nonblocking(fd) {
        return;
    }
    slot.state.store(table::ENTERING, SeqCst);
    let _entering = Entering::begin();
    let may = slot.busy.load(SeqCst) == 0 && sets::may_enter(&mut inside, fd);
    let mut entry = [0; ENTRY];
    let result = if may { ask(fd, ENTER_UNREAD, &mut entry) } else { -i64::from(libc::EAGAIN) };
    let retries = [libc::EAGAIN, libc::ENOTCONN, libc::EINTR, libc::ENOBUFS];
    if result < 0 {
        slot.state.store(table::CANDIDATE, SeqCst);
        if !retries.contains(&(-result as i32)) {
            give_up(&mut inside, fd);
        }
        return;
    }
    if group().is_none() && !join_group(fd, &entry) {
        FAILED.store(true, SeqCst);
        ask(fd, LEAVE_UNSERVED, &mut []);
        slot.state.store(table::CANDIDATE, SeqCst);
        return give_up(&mut inside, fd);
    }
    slot.value.store(entry[0], SeqCst);
    slot.has_rest.store(true, SeqCst);
    slot.entries.fetch_add(1, SeqCst);
    slot.state.store(table::DIRECT, SeqCst);
    sets::change(&mut inside, fd, true);
    if let Some(group) = group() {
        // Threads may sleep for sets with it.
        group.stir();
    }
}

fn join_group(fd: i32, entry: &[u64; ENTRY]) -> bool {
    let mut descriptors = [-1; DESCRIPTORS as usize];
    for (name, descriptor) in (0..).zip(&mut descriptors) {
        *descriptor = ask(fd, name, &mut []) as i32;
        // The kernel's own answers are 0, standard input's number.
        if *descriptor <= 0 {
            return false;
        }
    }
    let [_, port, agent, tick, nanoseconds, rate, entry, text, text_len, data] = *entry;
    let clock = [tick, nanoseconds, rate];
    join(&descriptors, Places { lengths: [port, agent], clock, entry, text, text_len, data })
}

/// The kernel serves a socket from now on, of which the agent need not be told.
pub fn give_up(inside: &mut Inside, fd: i32) {
    if let Some(slot) = table::slot(fd) {
        slot.state.store(table::NONE, SeqCst);
    }
    // Its sets are the kernel's as they are.
    for set in sets::sets(inside).values_mut() {
        set.members.retain(|member| member.fd != fd);
    }
}

/// Lets a connection leave, or a socket never enter.
pub fn leave(inside: &mut Inside, fd: i32, why: Why) {
    let Some(slot) = table::known(fd) else { return };
    match slot.state.load(SeqCst) {
        table::DIRECT => {}
        table::CANDIDATE if why != Why::Pause => return give_up(inside, fd),
        _ => return,
    }
    let pauses = why == Why::Pause && slot.entries.load(SeqCst) < ENTRIES;
    let name = match why {
        Why::Pause if pauses => PAUSE,
        Why::Passed => LEAVE_PASSED,
        _ => LEAVE_UNSERVED,
    };
    // If nobody answers, the socket is reset, and the kernel says so.
    while ask(fd, name, &mut []) == -i64::from(libc::EINTR) {}
    slot.state.store(table::CANDIDATE, SeqCst);
    sets::change(inside, fd, false);
    if pauses {
        // Options are often set one after the other.
        let calls = slot.calls.load(SeqCst);
        let entries = slot.entries.load(SeqCst);
        slot.next.store(calls.saturating_add(2 * entries * entries), SeqCst);
    } else {
        give_up(inside, fd);
    }
}

/// As [`leave`], before a call of the kernel.
pub fn leave_now(fd: i32, why: Why) {
    if table::known(fd).is_some() {
        leave(&mut Inside::enter(), fd, why);
    }
}

/// The shared stack does not have a connection with a handle any more, or it has ended. Nothing if the descriptor has
/// another one meanwhile.
pub fn ended(fd: i32, handle: u64) {
    let mut inside = Inside::enter();
    if table::known(fd).is_some_and(|slot| slot.is(table::DIRECT) && slot.handle() == handle) {
        leave(&mut inside, fd, Why::Unserved);
    }
}

/// All leave, before other processes get their sockets.
pub fn leave_all(inside: &mut Inside) {
    for (fd, state) in table::all() {
        if state == table::DIRECT || state == table::CANDIDATE {
            leave(inside, fd, Why::Passed);
        }
    }
}

/// A set is waited for by other means than this process's calls on its descriptor.
pub fn bar(inside: &mut Inside, set: i32) {
    let Some(found) = sets::sets(inside).get_mut(&set) else { return };
    found.is_barred = true;
    for fd in sets::members(inside, set) {
        leave(inside, fd, Why::Unserved);
    }
}

/// A descriptor is closed, or becomes another file.
pub fn closed(inside: &mut Inside, fd: i32) {
    if let Some(slot) = table::known(fd) {
        slot.state.store(table::NONE, SeqCst);
        sets::forget(inside, fd);
    }
}
