//! Requests that come while another one is decided. Whoever holds the engine decides for those who wait as well, so
//! each of them sleeps once and is woken with its answer; a lock alone would wake them to find it taken.

use super::{Decision, EngineError};
use crate::decide::{Ask, OVERBOOKING_THRESHOLD};
use crate::store::Revision;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

/// What a request comes to.
pub(super) type Answer = Result<(Decision, Revision), EngineError>;

/// How many others one request decides for at most before somebody else does. They are woken together: to wake one is
/// dear where a core has to be woken for it.
pub(super) const BATCH: usize = 8;

/// A request that waits.
pub(super) struct Ticket {
    /// What it asks; taken by whoever decides it.
    asks: Mutex<Option<Ask>>,
    /// The newest decision when it was let through beside others, if it was.
    through: Mutex<Option<u64>>,
    answer: Mutex<Option<Answer>>,
    thread: Thread,
}

/// Requests that wait, in their order.
#[derive(Default)]
pub(super) struct Queue {
    tickets: Mutex<VecDeque<Arc<Ticket>>>,
    waiting: AtomicU32,
    /// Whether whoever holds the engine looks here before it lets go.
    served: AtomicBool,
}

/// Says, until it ends, that waiting requests are decided; dropped, it wakes the first one that is left, which goes
/// on. A request that comes between the last look and the end sleeps, but is in line already, and so is woken.
pub(super) struct Serving<'q> {
    queue: &'q Queue,
    over: Cell<bool>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while one of them is held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ticket {
    /// The answer, once it is there.
    pub(super) fn take(&self) -> Option<Answer> {
        lock(&self.answer).take()
    }

    /// What it asks, for whoever decides it, and the newest decision when it was let through, if it was.
    pub(super) fn asks(&self) -> Option<(Ask, Option<u64>)> {
        lock(&self.asks).take().map(|ask| (ask, *lock(&self.through)))
    }

    /// Hands the answer over.
    pub(super) fn answer(&self, answer: Answer) {
        *lock(&self.answer) = Some(answer);
    }

    /// Wakes who waits for it.
    pub(super) fn wake(&self) {
        self.thread.unpark();
    }
}

impl Queue {
    /// Puts a request of this thread in line. One that finds a long line lets itself and the first of it through, as
    /// whom oVirt's `checkAllowOverbooking` gives permits to; it counts where their policy allows overbooking.
    /// `newest` is the newest decision.
    pub(super) fn push(&self, ask: Ask, newest: u64) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket {
            asks: Mutex::new(Some(ask)),
            through: Mutex::default(),
            answer: Mutex::default(),
            thread: std::thread::current(),
        });
        let mut tickets = lock(&self.tickets);
        if tickets.len() >= OVERBOOKING_THRESHOLD as usize {
            for one in tickets.iter().take(OVERBOOKING_THRESHOLD as usize).chain([&ticket]) {
                lock(&one.through).get_or_insert(newest);
            }
        }
        tickets.push_back(ticket.clone());
        self.waiting.fetch_add(1, Ordering::Relaxed);
        ticket
    }

    /// The first in line, who leaves it.
    pub(super) fn pop(&self) -> Option<Arc<Ticket>> {
        let mut tickets = lock(&self.tickets);
        let first = tickets.pop_front()?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(first)
    }

    /// How many are in line.
    pub(super) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether whoever holds the engine decides for those in line.
    pub(super) fn is_served(&self) -> bool {
        self.served.load(Ordering::SeqCst)
    }

    /// Decides for those in line from now on. Only for whoever holds the engine.
    pub(super) fn serve(&self) -> Serving<'_> {
        self.served.store(true, Ordering::SeqCst);
        Serving { queue: self, over: Cell::new(false) }
    }
}

impl Serving<'_> {
    /// Ends it. The engine is let go after this, and before it is dropped.
    pub(super) fn end(&self) {
        self.over.set(true);
        self.queue.served.store(false, Ordering::SeqCst);
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        // By now somebody else may serve.
        if !self.over.get() {
            self.end();
        }
        if let Some(first) = lock(&self.queue.tickets).front() {
            first.thread.unpark();
        }
    }
}
