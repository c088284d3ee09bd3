//! Which thread may proceed. packetdrill makes calls that its script marks as blocking in a second thread; the first
//! one lets time pass. At each event the first thread waits until the second one has found out whether its call can
//! return now, so that a call returns at the same virtual time in each run.

use crate::machine::Machine;
use ringway_netstack::{MS, SECOND};
use std::cell::Cell;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

/// How far a reading of the clock lets time pass: packetdrill spins until an instant.
const READING: u64 = 1000;
/// How long packetdrill waits for a packet, and its first thread in a call that the script does not mark as blocking.
const TIMEOUT: u64 = 120 * SECOND;

/// Real time for the other thread.
const REAL: Duration = Duration::from_millis(5);

static STATE: Mutex<Option<State>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

thread_local! {
    /// The thread's call has returned, and packetdrill reads the clock next.
    static RETURNED: Cell<bool> = const { Cell::new(false) };
}

#[derive(Debug)]
struct State {
    machine: Machine,
    /// The thread that does not wait for others.
    main: ThreadId,
    /// Calls that wait.
    waiting: usize,
    /// A call has returned, and its thread may not have told packetdrill yet.
    returned: bool,
    /// Those among them, or just returned, that have not looked since the last event.
    behind: usize,
    event: u64,
}

type Guard = MutexGuard<'static, Option<State>>;

fn lock() -> Guard {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Begins.
pub fn start(flags: &str) {
    let machine = Machine::new(flags);
    let main = std::thread::current().id();
    *lock() = Some(State { machine, main, waiting: 0, returned: false, behind: 0, event: 0 });
}

/// Ends.
pub fn stop() {
    *lock() = None;
}

/// Makes a call that does not block. `None` before the beginning and after the end.
pub fn with<R>(call: impl FnOnce(&mut Machine) -> R) -> Option<R> {
    let mut guard = lock();
    let state = guard.as_mut()?;
    state.machine.refresh();
    let result = call(&mut state.machine);
    state.machine.flush();
    drop(settle(guard));
    Some(result)
}

/// Lets the thread whose call waits look again.
fn settle(mut guard: Guard) -> Guard {
    if let Some(state) = guard.as_mut() {
        state.behind = state.waiting;
        state.event += 1;
        CHANGED.notify_all();
    }
    while guard.as_ref().is_some_and(|state| state.behind > 0) {
        guard = CHANGED.wait(guard).unwrap_or_else(PoisonError::into_inner);
    }
    guard
}

/// Makes a call until it does not return `EAGAIN`, or once if `blocks` says so; `limit`: nanoseconds that it waits.
pub fn wait<R>(
    limit: Option<u64>,
    blocks: impl Fn(&mut Machine) -> bool,
    mut call: impl FnMut(&mut Machine) -> Result<R, i32>,
) -> Result<R, i32> {
    let mut guard = lock();
    let state = guard.as_mut().ok_or(libc::EBADF)?;
    state.machine.refresh();
    let end = limit.map(|limit| state.machine.now.saturating_add(limit));
    let main = state.main == std::thread::current().id();
    let timeout = state.machine.now + TIMEOUT;
    if let Some(end) = end {
        state.machine.alarms.push(end);
    }
    let mut waits = false;
    loop {
        let state = guard.as_mut().ok_or(libc::EBADF)?;
        let result = call(&mut state.machine);
        state.machine.flush();
        let now = state.machine.now;
        let over = end.is_some_and(|end| end <= now) || (main && now >= timeout);
        let again = matches!(result, Err(libc::EAGAIN)) && !over && blocks(&mut state.machine);
        if !again {
            if waits {
                state.waiting -= 1;
                RETURNED.set(true);
            } else {
                drop(settle(guard));
            }
            return result;
        }
        if main {
            state.machine.step(end.unwrap_or(timeout));
            guard = settle(guard);
            continue;
        }
        if waits {
            state.behind -= 1;
            CHANGED.notify_all();
        } else {
            (waits, state.waiting) = (true, state.waiting + 1);
        }
        let event = state.event;
        while guard.as_ref().is_some_and(|state| state.event == event) {
            guard = CHANGED.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The time of day in microseconds.
pub fn clock() -> i64 {
    let mut guard = lock();
    let Some(state) = guard.as_mut() else { return 0 };
    if RETURNED.take() {
        state.behind -= 1;
        state.returned = true;
        CHANGED.notify_all();
        return Machine::micros(state.machine.now);
    }
    guard = pass(guard, READING);
    guard.as_ref().map_or(0, |state| Machine::micros(state.machine.now))
}

/// Lets time pass.
pub fn sleep(nanos: u64) {
    let returned = lock().as_mut().is_some_and(|state| std::mem::take(&mut state.returned));
    if returned {
        // packetdrill's lock is free meanwhile: the other thread notes its result.
        std::thread::sleep(REAL);
    }
    drop(pass(lock(), nanos));
}

fn pass(mut guard: Guard, nanos: u64) -> Guard {
    let Some(until) = guard.as_ref().map(|state| state.machine.now + nanos) else { return guard };
    while guard.as_mut().is_some_and(|state| state.machine.step(until)) {
        guard = settle(guard);
    }
    guard
}

/// The next packet that the stack sends, and the time of day in microseconds; `None` if it sends none for long.
pub fn next_packet() -> Option<(i64, Vec<u8>)> {
    let mut guard = lock();
    let timeout = guard.as_ref()?.machine.now + TIMEOUT;
    loop {
        let state = guard.as_mut()?;
        if let Some((at, packet)) = state.machine.next_sent() {
            return Some((Machine::micros(at), packet));
        }
        let more = state.machine.step(timeout);
        guard = settle(guard);
        if !more {
            return None;
        }
    }
}

/// `poll`'s and `epoll_wait`'s limit.
pub fn limit(millis: i32) -> Option<u64> {
    u64::try_from(millis).ok().map(|millis| millis * MS)
}
