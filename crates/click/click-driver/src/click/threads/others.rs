//! The other threads, from the first thread's point of view.
use super::console::Echo;
use super::mailbox::Mailbox;
use super::worker::{Message, Order, ThreadStart};
use crate::click::Machine;
use crate::click::pace::Pace;
use crate::click::signals::Signals;
use ringway_click::{Console, Division, Job, Registry, Router, Threads, Turn};
use ringway_click_lang::Graph;
use ringway_host::{HostError, allowed_cores, spawn};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;

/// Initial data shared by all threads of a configuration.
pub(in crate::click) struct Plan<'a> {
    /// Maximum number of threads.
    pub(in crate::click) threads: usize,
    pub(in crate::click) graph: &'a Graph,
    pub(in crate::click) registry: &'a Registry,
    pub(in crate::click) burst: usize,
    pub(in crate::click) machine: Machine,
    pub(in crate::click) seed: u64,
    /// The core of the first thread, if threads are pinned; the others use the following cores.
    pub(in crate::click) core: Option<usize>,
    /// Makes a thread's console.
    pub(in crate::click) console: &'a dyn Fn() -> Box<dyn Console + Send>,
}

/// The other threads. They end when it is dropped.
pub(in crate::click) struct OtherThreads {
    posts: Vec<Post>,
    messages: Arc<Mailbox<Message>>,
    /// Whether an element listens to chatter.
    has_listeners: Arc<AtomicBool>,
}

struct Post {
    thread: usize,
    orders: Arc<Mailbox<Order>>,
    handle: Option<JoinHandle<()>>,
}

impl OtherThreads {
    /// Starts the threads that run elements. They wait for orders.
    pub(in crate::click) fn new(plan: &Plan<'_>, division: &Division) -> Result<Rc<Self>, HostError> {
        let (messages, has_listeners) = (Arc::new(Mailbox::new()?), Arc::default());
        let mut others = Self { posts: Vec::new(), messages, has_listeners };
        for thread in division.others() {
            let post = others.post(plan, division, thread)?;
            others.posts.push(post);
        }
        Ok(Rc::new(others))
    }

    fn post(&self, plan: &Plan<'_>, division: &Division, thread: usize) -> Result<Post, HostError> {
        let orders = Arc::new(Mailbox::new()?);
        let (messages, has_listeners) = (self.messages.clone(), self.has_listeners.clone());
        let start = ThreadStart {
            thread,
            threads: plan.threads,
            division: division.clone(),
            graph: plan.graph.clone(),
            registry: plan.registry.clone(),
            burst: plan.burst,
            machine: plan.machine.clone(),
            seed: plan.seed.wrapping_add(thread as u64),
            echo: Echo { console: (plan.console)(), messages: messages.clone(), has_listeners },
            orders: orders.clone(),
            messages,
        };
        // If the core does not exist, the thread is not pinned, as in Click.
        let known = allowed_cores()?;
        let core = plan.core.map(|first| first.saturating_add(thread)).filter(|core| known.contains(core));
        let handle = spawn(&format!("click-{thread}"), core, move || start.live())?;
        Ok(Post { thread, orders, handle: Some(handle) })
    }

    fn order(&self, thread: usize, order: Order) {
        if let Some(post) = self.posts.iter().find(|post| post.thread == thread) {
            post.orders.put(order);
        }
    }

    /// Runs the first thread's router, and lets the others run, until it has stopped. Afterwards they still
    /// answer.
    pub(in crate::click) fn drive(&self, router: &mut Router) {
        let mut signals = Signals::default();
        let mut pace = Pace::default();
        // A driver's script may have to run first.
        let mut held: Vec<usize> = self.posts.iter().map(|post| post.thread).collect();
        self.has_listeners.store(router.has_chatter_listeners(), Ordering::Relaxed);
        loop {
            signals.look(router);
            self.handle_messages(router, &mut held);
            if router.runcount() > 0 {
                held.drain(..).for_each(|thread| self.order(thread, Order::Run));
            }
            match router.turn() {
                Turn::Stopped => break,
                turn => pace.rest(router, turn, Some(self.messages.descriptor())),
            }
            if let Some(replacement) = router.replacement() {
                let (rebuild, built) = replacement.build(Box::new(|| true));
                router.replaced(rebuild, built);
            }
        }
        self.posts.iter().for_each(|post| post.orders.put(Order::Halt));
    }

    fn handle_messages(&self, router: &mut Router, held: &mut Vec<usize>) {
        while let Some(message) = self.messages.take() {
            match message {
                Message::Stopped { thread, times } => {
                    router.adjust_runcount(-times);
                    held.push(thread);
                }
                Message::Chatter(line) => router.forward_chatter(&line),
                Message::Lost(thread) => {
                    router.chatter(format_args!("thread {thread} broke off"));
                    router.set_runcount(-i64::from(i32::MAX));
                }
            }
        }
    }
}

/// A router's handle to the other threads.
pub(in crate::click) struct Reach(pub(in crate::click) Rc<OtherThreads>);

impl Threads for Reach {
    fn run(&self, thread: usize, job: Job) -> Option<Box<dyn Any + Send>> {
        let (answer, answered) = channel();
        self.0.order(thread, Order::Do(job, answer));
        answered.recv().ok()
    }
}

impl Drop for OtherThreads {
    fn drop(&mut self) {
        while let Some(mut post) = self.posts.pop() {
            post.orders.put(Order::End);
            let ended = post.handle.take().map(JoinHandle::join);
            if let Some(Err(panic)) = ended
                && !std::thread::panicking()
            {
                std::panic::resume_unwind(panic);
            }
        }
    }
}
