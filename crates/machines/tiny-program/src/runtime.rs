//! The turn: what came, the tasks that can go on, what they send, and sleep.

use crate::executor::{Alarm, Tasks};
use crate::network::Budget;
use crate::state::{Shared, State};
use crate::{Error, Program};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::future::Future;
use core::pin::Pin;
use core::sync::atomic::{AtomicBool, Ordering};
use ringway_ring::Broken;
use ringway_tiny::channel::ToMonitor;
use ringway_tiny::stock::Net;
use ringway_tiny::{FunctionStart, GuestTime, Machine, Monitor};

/// Shortest sleep in nanoseconds: the exit takes as long. For so long it looks for more before it sleeps.
const SHORTEST: u64 = 20_000;
/// Longest sleep in microseconds.
const SLEEP: u64 = 1_000_000;
/// How often the channel is looked at while tasks are busy, in nanoseconds.
const BUSY: u64 = 20_000;
/// Sleeps until the last messages were taken, before a program ends anyway.
const LAST_SLEEPS: u32 = 100;

/// What a program has of its machine.
pub(crate) struct Host<M> {
    pub machine: M,
    /// Notifies the monitor of messages.
    pub notify: Box<dyn FnMut()>,
    /// Reads the counter of ticks.
    pub ticks: fn() -> u64,
    /// How memory that the monitor names is reached.
    pub map: crate::state::Map,
    /// Bytes of the machine's memory.
    pub memory: u64,
    /// Devices of the ports, in their order, if the machine has them.
    pub nets: Vec<Net<'static>>,
}

/// Why a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The main function returned.
    Returned,
    /// Its main function returned an error, which the monitor knows.
    Failed,
    /// The monitor broke the channel's rules.
    Monitor,
}

/// What takes turns.
pub(crate) struct Runtime<M> {
    machine: M,
    notify: Box<dyn FnMut()>,
    shared: Rc<Shared>,
    /// Wakes what [`Runtime::block_on`] waits for. Its alarm never changes, so that a task that waits again is known.
    main: Alarm,
    tasks: Tasks,
    /// Whether the monitor knows that the program runs.
    told: bool,
    /// Time of the last look at the channel, and of the last turn with something to do.
    looked: u64,
    busy: u64,
}

/// Runs a program until its main function returns.
pub(crate) fn run<M, F>(
    host: Host<M>,
    monitor: Monitor,
    start: FunctionStart,
    main: impl FnOnce(Program) -> F,
) -> End
where
    M: Machine,
    F: Future<Output = Result<(), Error>> + 'static,
{
    let mut runtime = Runtime::new(host, monitor, start);
    // The program's state may be large, and the stack is not.
    let mut main = Box::pin(main(runtime.program()));
    match runtime.block_on(main.as_mut()) {
        Ok(result) => runtime.end(result),
        Err(Broken::Index | Broken::Buffer) => End::Monitor,
    }
}

impl<M: Machine> Runtime<M> {
    pub fn new(host: Host<M>, monitor: Monitor, start: FunctionStart) -> Runtime<M> {
        let Host { machine, notify, ticks, map, memory, nets } = host;
        let time = GuestTime::new(ticks, start.hz, ticks(), start.wall);
        let state = RefCell::new(State::new(monitor, map, start.ports.len(), nets));
        let woken = Arc::new(AtomicBool::new(false));
        let budget = Rc::new(Budget::new(memory));
        let shared = Rc::new(Shared { state, start, time, memory, budget, woken: woken.clone() });
        let (main, tasks) = (Alarm::new(&woken), Tasks::new(woken));
        Runtime { machine, notify, shared, main, tasks, told: false, looked: 0, busy: 0 }
    }

    /// The program that it runs.
    pub fn program(&self) -> Program {
        Program { shared: self.shared.clone() }
    }

    /// Takes turns until a future is ready.
    pub fn block_on<T>(&mut self, mut future: Pin<&mut impl Future<Output = T>>) -> Result<T, Broken> {
        self.main.wake();
        loop {
            let now = self.shared.time.now();
            let mut busy = false;
            if now.saturating_sub(self.looked) >= BUSY || !self.told {
                self.looked = now;
                busy |= self.exchange()?;
            }
            {
                let mut state = self.shared.state.borrow_mut();
                state.now = now;
                busy |= state.take();
            }
            busy |= self.shared.woken.swap(false, Ordering::Relaxed);
            let result = self.main.poll(future.as_mut());
            self.poll();
            if let Some(result) = result {
                return Ok(result);
            }
            if !self.told {
                self.told = true;
                self.shared.state.borrow_mut().send(&ToMonitor::Up([0; 3]));
            }
            self.put();
            if busy || self.shared.woken.load(Ordering::Relaxed) {
                self.busy = now;
            } else if now.saturating_sub(self.busy) >= SHORTEST {
                self.rest()?;
            }
        }
    }

    /// Ends the program: sends what was written, and tells the monitor an error.
    pub fn end(&mut self, result: Result<(), Error>) -> End {
        if let Err(error) = &result {
            self.shared.state.borrow_mut().wrong(&error.to_string());
        }
        self.put();
        self.wait_for_monitor();
        if result.is_ok() { End::Returned } else { End::Failed }
    }

    /// Sends what tasks have written.
    pub fn put(&mut self) {
        let mut state = self.shared.state.borrow_mut();
        state.now = self.shared.time.now();
        state.put();
    }

    /// Polls tasks.
    fn poll(&mut self) {
        let ended = self.tasks.round();
        let mut state = self.shared.state.borrow_mut();
        state.tasks -= ended;
        let spawned = core::mem::take(&mut state.spawned);
        drop(state);
        spawned.into_iter().for_each(|job| self.tasks.add(job));
    }

    /// Exchanges messages with the monitor; whether any came.
    fn exchange(&mut self) -> Result<bool, Broken> {
        let mut state = self.shared.state.borrow_mut();
        let came = state.receive()?;
        if state.monitor.flush()? {
            (self.notify)();
        }
        Ok(came)
    }

    /// Sleeps until something comes, or a deadline is near.
    fn rest(&mut self) -> Result<(), Broken> {
        if self.exchange()? {
            return Ok(());
        }
        let now = self.shared.time.now();
        let mut state = self.shared.state.borrow_mut();
        let left = state.deadline().map_or(u64::MAX, |due| due.saturating_sub(now));
        if left < SHORTEST {
            return Ok(());
        }
        if state.monitor.arm()? && state.arm() {
            self.machine.park((left / 1000).min(SLEEP) as u32);
        }
        state.monitor.disarm();
        state.disarm();
        // What ended the sleep is looked at in the next turn.
        (self.looked, self.busy) = (0, self.shared.time.now());
        Ok(())
    }

    /// Waits until the monitor has taken the last messages. Connections are cut: what has no room in the ports and
    /// windows is lost, and the streams that tasks still have get no FIN.
    fn wait_for_monitor(&mut self) {
        for _ in 0..LAST_SLEEPS {
            if self.exchange().is_err() {
                return;
            }
            let mut state = self.shared.state.borrow_mut();
            if state.monitor.waiting() == 0 {
                return;
            }
            match state.monitor.arm() {
                Ok(true) => self.machine.park((SLEEP / u64::from(LAST_SLEEPS)) as u32),
                Ok(false) => {}
                Err(Broken::Index | Broken::Buffer) => return,
            }
            state.monitor.disarm();
        }
    }
}
