//! A port without a switch: a worker of the benchmark serves its queues, and the sender of messages its session.

use crate::Failure;
use crate::harness::guest::Busy;
use crate::harness::{WORKER, monitor::Inline};
use ringway_frame::{Burst, CountersRef, RxQueue, Storage, TxQueue};
use ringway_host::Clock;
use ringway_mem::{Reader, Turn};
use ringway_port::vhost_user::{self, Config};
use ringway_port::{Queue, Silent, source};
use ringway_wire::MacAddress;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;

/// The worker's treatment of the guest's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Sends it frames endlessly.
    In,
    /// Receives its frames.
    Out,
    /// Returns its frames.
    Loop,
    /// Sends it frames endlessly, and receives its frames.
    Through,
}

#[derive(Default)]
struct Shared {
    /// Whether this worker may run.
    on: AtomicBool,
    stop: AtomicBool,
    /// Ticks of turns that moved frames, and of all turns.
    some: AtomicU64,
    all: AtomicU64,
}

/// A worker with one port.
pub struct Bare {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Result<(), Failure>>>,
}

impl Bare {
    /// Starts an idle worker, and returns the interface to its port's session. Its frames have `size` bytes.
    pub fn start(work: Work, size: u32) -> Result<(Bare, Inline), Failure> {
        let (backend, queues) =
            vhost_user::new(Config::default(), vec![Arc::new(Silent)], vec![CountersRef::private()]);
        let wire = Inline::new(backend)?;
        let queue = queues.into_iter().next().ok_or("a port without queues")?;
        let [from, to] = [1, 2].map(|number| MacAddress([2, 0, 0, 0, 0, number]));
        let source = source::queue(&source::Config::new(size, from, to))?;
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let thread = std::thread::Builder::new().name("bare".into());
        let thread = thread.spawn(move || {
            ringway_host::pin(WORKER)?;
            let worker = Worker { work, queue, source: source.tx, storage: Storage::default() };
            worker.run(&theirs)
        })?;
        Ok((Bare { shared, thread: Some(thread) }, wire))
    }

    /// Starts or stops it.
    pub fn run(&self, on: bool) {
        self.shared.on.store(on, Relaxed);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// Busy time.
    pub fn busy(&self) -> Busy {
        Busy { some: self.shared.some.load(Relaxed), all: self.shared.all.load(Relaxed) }
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.shared.stop.store(true, Relaxed);
        self.run(false);
        // Errors of the thread show as missing frames.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

struct Worker {
    work: Work,
    queue: Queue,
    source: Box<dyn TxQueue>,
    storage: Storage,
}

impl Worker {
    fn run(mut self, shared: &Shared) -> Result<(), Failure> {
        let mut reader = Reader::register().ok_or("too many readers")?;
        let clock = Clock::new();
        while !shared.stop.load(Relaxed) {
            if !shared.on.load(Relaxed) {
                reader.rest();
                std::thread::park();
                continue;
            }
            let begin = ringway_host::ticks();
            let turn = reader.turn(clock.now());
            let moved = self.turn(&turn);
            let ticks = ringway_host::ticks().wrapping_sub(begin);
            ringway_frame::add(&shared.all, ticks);
            ringway_frame::add(&shared.some, if moved > 0 { ticks } else { 0 });
        }
        Ok(())
    }

    fn turn(&mut self, turn: &Turn<'_>) -> usize {
        let Worker { work, queue, source, storage } = self;
        let Queue { rx, tx } = queue;
        match work {
            Work::In => pass(turn, &mut **source, &mut **rx, storage),
            Work::Out => swallow(turn, &mut **tx, storage),
            Work::Loop => pass(turn, &mut **tx, &mut **rx, storage),
            Work::Through => {
                pass(turn, &mut **source, &mut **rx, storage) + swallow(turn, &mut **tx, storage)
            }
        }
    }
}

fn pass(turn: &Turn<'_>, from: &mut dyn TxQueue, to: &mut dyn RxQueue, storage: &mut Storage) -> usize {
    let mut burst = Burst::begin(storage);
    from.take(turn, &mut burst);
    let which: [u16; 64] = std::array::from_fn(|frame| frame as u16);
    let which = &which[..burst.len().min(64)];
    if which.is_empty() || to.caps(turn).is_none() {
        return 0;
    }
    let fits = to.reserve(turn, &burst, which);
    to.put(turn, &burst, &which[..fits]);
    from.release(turn, fits);
    to.publish(turn);
    fits
}

fn swallow(turn: &Turn<'_>, from: &mut dyn TxQueue, storage: &mut Storage) -> usize {
    let mut burst = Burst::begin(storage);
    from.take(turn, &mut burst);
    from.release(turn, burst.len());
    burst.len()
}
