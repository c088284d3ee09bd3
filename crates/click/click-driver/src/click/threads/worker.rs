//! A thread other than the first.
use super::console::{Echo, Mute};
use super::mailbox::Mailbox;
use crate::click::Machine;
use crate::click::pace::Pace;
use ringway_click::{Clock, Console, Division, Job, Options, Registry, Router};
use ringway_click_lang::Graph;
use ringway_host::{PollFd, poll};
use std::any::Any;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

/// Orders of the first thread.
pub(super) enum Order {
    /// Run this job, and send the result.
    Do(Job, Sender<Box<dyn Any + Send>>),
    /// Take turns.
    Run,
    /// Stop handling packets, only process orders.
    Halt,
    /// End.
    End,
}

/// Messages to the first thread.
pub(super) enum Message {
    /// Elements requested a stop this many times, and the thread waits.
    Stopped { thread: usize, times: i64 },
    /// An element printed this.
    Chatter(String),
    /// The thread ended unexpectedly.
    Lost(usize),
}

/// Initial data of a thread.
pub(super) struct ThreadStart {
    pub(super) thread: usize,
    /// Maximum number of threads.
    pub(super) threads: usize,
    pub(super) division: Division,
    pub(super) graph: Graph,
    pub(super) registry: Registry,
    pub(super) burst: usize,
    pub(super) machine: Machine,
    pub(super) seed: u64,
    pub(super) echo: Echo,
    pub(super) orders: Arc<Mailbox<Order>>,
    pub(super) messages: Arc<Mailbox<Message>>,
}

/// Reports the end of the thread, whatever the reason.
struct Leaving {
    thread: usize,
    orders: Arc<Mailbox<Order>>,
    messages: Arc<Mailbox<Message>>,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.orders.close();
        if std::thread::panicking() {
            self.messages.put(Message::Lost(self.thread));
        }
    }
}

impl ThreadStart {
    /// Builds the thread's router, and runs until the first thread ends it.
    pub(super) fn live(self) {
        let Self { thread, threads, division, graph, registry, .. } = self;
        let Self { burst, machine, seed, echo, orders, messages, .. } = self;
        let _leaving = Leaving { thread, orders: orders.clone(), messages: messages.clone() };
        let options = Options {
            burst,
            clock: Clock::Real(Box::new(machine)),
            console: Box::new(Mute { devices: echo.devices() }),
            seed,
            source: String::new(),
        };
        // The first thread did the same without an error. If it fails here, callers find the thread gone.
        let Ok(mut router) = Router::configured(graph, &registry, options, threads) else { return };
        router.live_on(&division, thread);
        router.print_to(Box::new(echo));
        work(&mut router, thread, &orders, &messages);
    }
}

fn work(router: &mut Router, thread: usize, orders: &Mailbox<Order>, messages: &Mailbox<Message>) {
    let mut pace = Pace::default();
    let mut running = false;
    loop {
        while let Some(order) = orders.take() {
            match order {
                // The caller waits for the answer.
                Order::Do(job, answer) => drop(answer.send(job(router))),
                Order::Run => running = true,
                Order::Halt => running = false,
                Order::End => return,
            }
        }
        if running && router.runcount() <= 0 {
            // The first thread decides whether to continue.
            messages.put(Message::Stopped { thread, times: 1 - router.runcount() });
            router.set_runcount(1);
            running = false;
        }
        if !running {
            let mut poll_fds = [PollFd { descriptor: orders.descriptor(), readable: true, writable: false }];
            poll(&mut poll_fds, Duration::MAX);
            continue;
        }
        let turn = router.turn();
        if router.runcount() > 0 {
            pace.rest(router, turn, Some(orders.descriptor()));
        }
    }
}
