//! Tasks: futures that are polled when something has woken them.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;
use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};

/// A task that returns nothing.
pub(crate) type Job = Pin<Box<dyn Future<Output = ()>>>;

/// Whether a task, and any task, is to be polled. There is one thread: atomics only because wakers are shared.
struct Flag {
    ready: AtomicBool,
    any: Arc<AtomicBool>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ready.store(true, Ordering::Relaxed);
        self.any.store(true, Ordering::Relaxed);
    }
}

/// Whether a task was woken, and what wakes it.
pub(crate) struct Alarm {
    flag: Arc<Flag>,
    waker: Waker,
}

impl Alarm {
    /// An alarm that is set.
    pub fn new(any: &Arc<AtomicBool>) -> Alarm {
        let flag = Arc::new(Flag { ready: AtomicBool::new(false), any: any.clone() });
        flag.wake_by_ref();
        Alarm { waker: flag.clone().into(), flag }
    }

    /// Wakes the task.
    pub fn wake(&self) {
        self.flag.wake_by_ref();
    }

    /// Polls the task's future if it was woken; its result, once.
    pub fn poll<F: Future + ?Sized>(&self, future: Pin<&mut F>) -> Option<F::Output> {
        if !self.flag.ready.swap(false, Ordering::Relaxed) {
            return None;
        }
        match future.poll(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }
}

/// A future that is polled when it was woken.
struct Task {
    job: Job,
    alarm: Alarm,
}

/// All tasks but the main one.
pub(crate) struct Tasks {
    all: Vec<Task>,
    any: Arc<AtomicBool>,
}

impl Tasks {
    /// No tasks yet; `any` is set when a task was woken.
    pub fn new(any: Arc<AtomicBool>) -> Tasks {
        Tasks { all: Vec::new(), any }
    }

    /// Adds a task.
    pub fn add(&mut self, job: Job) {
        self.all.push(Task { job, alarm: Alarm::new(&self.any) });
    }

    /// Polls those that were woken; returns how many have ended.
    pub fn round(&mut self) -> usize {
        let before = self.all.len();
        let mut at = 0;
        while at < self.all.len() {
            let Task { job, alarm } = &mut self.all[at];
            match alarm.poll(job.as_mut()) {
                // The last one takes its place, and is polled there.
                Some(()) => drop(self.all.swap_remove(at)),
                None => at += 1,
            }
        }
        before - self.all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::cell::Cell;
    use core::future::poll_fn;
    use std::rc::Rc;

    #[test]
    fn a_task_is_polled_when_it_was_woken() {
        let any = Arc::new(AtomicBool::new(false));
        let mut tasks = Tasks::new(any.clone());
        let polls = Rc::new(Cell::new(0));
        let waker = Rc::new(Cell::new(None));
        for end in [2, 3] {
            let (polls, waker, mut own) = (polls.clone(), waker.clone(), 0);
            tasks.add(Box::pin(poll_fn(move |cx| {
                polls.set(polls.get() + 1);
                own += 1;
                waker.set(Some(cx.waker().clone()));
                if own == end { Poll::Ready(()) } else { Poll::Pending }
            })));
        }
        assert!(any.swap(false, Ordering::Relaxed));
        assert_eq!((tasks.round(), polls.get()), (0, 2));
        assert_eq!((tasks.round(), polls.get()), (0, 2), "nobody was woken");
        for (ended, polled) in [(0, 3), (1, 4)] {
            waker.take().unwrap().wake();
            assert!(any.swap(false, Ordering::Relaxed));
            assert_eq!((tasks.round(), polls.get()), (ended, polled), "the second one");
        }
    }
}
