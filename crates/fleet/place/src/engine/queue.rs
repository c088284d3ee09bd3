//! Requests that arrive while another one is being decided. The thread that holds the engine's lock also
//! decides the queued requests, so that each waiting thread sleeps once and is woken with its answer; with a
//! lock alone, threads would wake only to find it taken again.

use super::{Decision, EngineError};
use crate::decide::{OVERBOOKING_THRESHOLD, PlacementRequest};
use crate::store::Revision;
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Thread;

/// The answer to a request.
pub(super) type Answer = Result<(Decision, Revision), EngineError>;

/// Largest number of queued requests that one thread decides before another takes over. They are woken
/// together, since waking a thread is expensive if its core sleeps.
pub(super) const BATCH: usize = 8;

/// A waiting request.
pub(super) struct Ticket {
    /// The request; taken by the thread that decides it.
    asks: Mutex<Option<PlacementRequest>>,
    /// The newest decision when the request was released early, if it was.
    through: Mutex<Option<u64>>,
    answer: Mutex<Option<Answer>>,
    thread: Thread,
}

/// Waiting requests, in order of arrival.
#[derive(Default)]
pub(super) struct Queue {
    tickets: Mutex<VecDeque<Arc<Ticket>>>,
    waiting: AtomicU32,
    /// Whether the lock's holder checks the queue before releasing the lock.
    served: AtomicBool,
}

/// While this exists, queued requests are decided; dropping it wakes the first remaining one, which takes
/// over. A request that arrives between the last check and the drop sleeps, but is already queued, and so is
/// woken.
pub(super) struct Serving<'q> {
    queue: &'q Queue,
    over: Cell<bool>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds the lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Ticket {
    /// The answer, if it exists.
    pub(super) fn take(&self) -> Option<Answer> {
        lock(&self.answer).take()
    }

    /// The request, for the thread that decides it, and the newest decision when it was released early, if it
    /// was.
    pub(super) fn asks(&self) -> Option<(PlacementRequest, Option<u64>)> {
        lock(&self.asks).take().map(|ask| (ask, *lock(&self.through)))
    }

    /// Stores the answer.
    pub(super) fn answer(&self, answer: Answer) {
        *lock(&self.answer) = Some(answer);
    }

    /// Wakes the waiting thread.
    pub(super) fn wake(&self) {
        self.thread.unpark();
    }
}

impl Queue {
    /// Queues a request of this thread. If the queue is long, it releases itself and the first requests, as
    /// oVirt's `checkAllowOverbooking` gives them permits; this matters only for policies that allow
    /// overbooking. `newest` is the newest decision.
    pub(super) fn push(&self, ask: PlacementRequest, newest: u64) -> Arc<Ticket> {
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

    /// Removes the first request.
    pub(super) fn pop(&self) -> Option<Arc<Ticket>> {
        let mut tickets = lock(&self.tickets);
        let first = tickets.pop_front()?;
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Some(first)
    }

    /// Number of queued requests.
    pub(super) fn waiting(&self) -> u32 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Whether the lock's holder decides queued requests.
    pub(super) fn is_served(&self) -> bool {
        self.served.load(Ordering::SeqCst)
    }

    /// Starts deciding queued requests. Only the lock's holder may call it.
    pub(super) fn serve(&self) -> Serving<'_> {
        self.served.store(true, Ordering::SeqCst);
        Serving { queue: self, over: Cell::new(false) }
    }
}

impl Serving<'_> {
    /// Ends it. The lock is released after this, and before it is dropped.
    pub(super) fn end(&self) {
        self.over.set(true);
        self.queue.served.store(false, Ordering::SeqCst);
    }
}

impl Drop for Serving<'_> {
    fn drop(&mut self) {
        // Another thread may serve by now.
        if !self.over.get() {
            self.end();
        }
        if let Some(first) = lock(&self.queue.tickets).front() {
            first.thread.unpark();
        }
    }
}
