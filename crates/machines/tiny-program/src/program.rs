//! What the main function gets: settings, tasks, time.

use crate::Error;
use crate::executor::Job;
use crate::port::Use;
use crate::state::Shared;
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::ToString;
use core::fmt;
use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;
use core::time::Duration;
use ringway_tiny::channel::ToMonitor;

/// The program's machine. Copies are the same one.
#[derive(Clone)]
pub struct Program {
    pub(crate) shared: Rc<Shared>,
}

impl Program {
    /// The values of a setting of the fabric file, such as `address`.
    pub fn settings<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let all = self.shared.start.settings.iter();
        all.filter(move |(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// The words of `arguments` in the fabric file.
    pub fn arguments(&self) -> impl Iterator<Item = &str> {
        self.settings("argument")
    }

    /// A value of `parameters` in the fabric file.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let mut all = self.shared.start.parameters.iter();
        all.find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    /// Names of the ports, in the file's order.
    pub fn ports(&self) -> impl Iterator<Item = &str> {
        self.shared.start.ports.iter().map(|name| name.as_str())
    }

    /// Writes a line to the fabric's log; [`crate::log!`] is shorter. If the monitor does not keep up, lines are left
    /// out, and counted.
    pub fn log(&self, arguments: fmt::Arguments<'_>) {
        let text = arguments.to_string();
        self.shared.state.borrow_mut().print(&text);
    }

    /// Time since the machine started.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.shared.time.now())
    }

    /// Time since 1970, by the host's clock at the start and the CPU's time stamp counter since then.
    pub fn since_1970(&self) -> Duration {
        Duration::from_nanos(self.shared.time.since_1970())
    }

    /// Bytes of the machine's memory, the program included.
    pub fn memory(&self) -> u64 {
        self.shared.memory
    }

    /// Starts a task. Its errors are its own: it returns nothing.
    ///
    /// # Errors
    /// There are as many as the memory permits: one for 64 KB.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) -> Result<(), Error> {
        let mut state = self.shared.state.borrow_mut();
        // Attack: a peer for each of whose requests a task is started.
        if state.tasks >= self.shared.task_limit() {
            return Err(Error::TooManyTasks(state.tasks));
        }
        let job: Job = Box::pin(task);
        state.tasks += 1;
        state.spawned.push(job);
        Ok(())
    }

    /// Sleeps.
    pub async fn sleep(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let due = self.shared.time.now().saturating_add(time);
        let mut timer = Timer { shared: &self.shared, key: None };
        poll_fn(|cx| {
            timer.cancel();
            let mut state = self.shared.state.borrow_mut();
            if state.now >= due {
                return Poll::Ready(());
            }
            timer.key = Some(state.set_timer(due, cx.waker()));
            Poll::Pending
        })
        .await;
    }

    /// Waits for a future at most so long; `None`: it was not ready.
    pub async fn timeout<F: Future>(&self, time: Duration, future: F) -> Option<F::Output> {
        let (mut future, mut sleep) = (pin!(future), pin!(self.sleep(time)));
        poll_fn(|cx| {
            if let Poll::Ready(result) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(result));
            }
            sleep.as_mut().poll(cx).map(|()| None)
        })
        .await
    }

    /// Lets ports and other tasks have a turn. What computes for long calls it now and then.
    pub async fn pause(&self) {
        let mut paused = false;
        poll_fn(|cx| {
            if core::mem::replace(&mut paused, true) {
                return Poll::Ready(());
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Takes the port of this name for a use; asks the monitor for its ring. Returns its number.
    pub(crate) fn claim(&self, name: &str, by: Use) -> Result<usize, Error> {
        let number = self.ports().position(|own| own == name).ok_or_else(|| Error::NoPort(name.into()))?;
        let mut state = self.shared.state.borrow_mut();
        let port = &mut state.ports[number];
        if port.used != Use::None {
            return Err(Error::PortInUse(name.into()));
        }
        // Another use may have had a ring with other offloads.
        if port.claim(by) {
            state.send(&ToMonitor::Released(number as u16, b""));
        }
        state.send(&ToMonitor::Wanted(number as u16, by == Use::Network));
        Ok(number)
    }
}

/// A deadline of a task that may be dropped before.
struct Timer<'a> {
    shared: &'a Rc<Shared>,
    key: Option<(u64, u64)>,
}

impl Timer<'_> {
    fn cancel(&mut self) {
        if let Some(key) = self.key.take() {
            self.shared.state.borrow_mut().timers.remove(&key);
        }
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        self.cancel();
    }
}
