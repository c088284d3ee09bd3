//! A worker: takes turns over its active queues, and sleeps when none is active.

use crate::forward::{Forwarder, Served, SharedSource, free};
use crate::function::{self, Functions, Order, Ran};
use crate::page::{SERVED, serving};
use crate::trace;
use crate::wakeup::Wakeup;

use crate::memory_access::{Access, Meter};
use crate::profile::{ProfileGauges, Stage};
use crate::topology::{RxSlot, Topology, is_closed};
use ringway_click_driver::click::resident::Build;
use ringway_frame::{CountersRef, add};
use ringway_host::{Clock, EventFd, HostError, ThreadFiles, losses};
use ringway_mem::{Published, Reader, Turn};
use ringway_spec::Poll;
use ringway_switch::FlowHash;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Commands that a worker carries out between turns.
pub enum Command {
    /// Serve this source as queue `bit`.
    Add {
        /// The queue's number on the worker's wakeup.
        bit: usize,
        /// The worker's number.
        worker: usize,
        /// The source.
        source: SharedSource,
    },
    /// Return queue `bit`.
    Remove {
        /// The queue's number on the worker's wakeup.
        bit: usize,
        /// Where the source is sent.
        to: SyncSender<Option<SharedSource>>,
    },
    /// Take over from a thread that a peer blocks, or blocked.
    Inherit {
        /// RX queues whose delayed notifications must be sent.
        due: Vec<Arc<RxSlot>>,
        /// Until when accesses are timed.
        closely_until: u64,
    },
    /// Run this function.
    AddFunction(Box<Order>),
    /// End the function of this number.
    RemoveFunction(u64),
    /// Suspend the function of this number, or let it go on.
    SuspendFunction(u64, bool),
    /// Read the thread's times from these files.
    Watch(ThreadFiles),
    /// Find out what would become of a frame.
    Trace(Box<trace::TraceRequest>),
    /// End.
    Stop,
}

/// How a worker polls.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// When the worker sleeps.
    pub poll: Poll,
    /// How long a queue stays polled after its last frame, in nanoseconds.
    pub spin: u64,
}

/// Statistics and state of a worker that other threads may read.
#[derive(Debug, Default)]
pub struct Gauges {
    /// Turns since its start.
    pub turns: AtomicU64,
    /// Times it went to sleep.
    pub sleeps: AtomicU64,
    /// Nanoseconds of turns in which frames moved.
    pub busy: AtomicU64,
    /// Number of queues that it polls now.
    pub active: AtomicU64,
    /// Number of its queues.
    pub queues: AtomicU64,
    /// Its thread ID; 0 until the thread runs.
    pub thread: AtomicI32,
    /// Whose memory the worker accesses.
    pub access: AtomicU64,
    /// Access in which the watchdog last saw the worker blocked.
    pub stuck_access: AtomicU64,
    /// The turn of that access.
    pub stuck_turn: AtomicU64,
    /// When that access began to block.
    pub held_since: AtomicU64,
    /// Set by the watchdog when a peer's memory blocks the worker.
    pub is_blocked: AtomicBool,
    /// Whether another thread took over the worker's queues: this one must not touch them any more.
    pub is_superseded: AtomicBool,
    /// Whether the thread ended.
    pub has_ended: AtomicBool,
    /// Until when its successor times accesses.
    pub closely_until: AtomicU64,
    /// Whether it runs functions, which stay on its thread.
    pub has_functions: AtomicBool,
    /// Whether helper threads signal descriptors shared with peers, since the system refuses `io_setup`.
    pub helped: AtomicBool,
    /// Where its time goes.
    pub profile: ProfileGauges,
}

/// The parts of a worker that its owner keeps.
pub struct Handle {
    /// Wakes the worker.
    pub wakeup: Arc<Wakeup>,
    /// The worker's statistics and state.
    pub gauges: Arc<Gauges>,
    commands: Commands,
    next: Next,
}

/// Commands that a worker has not carried out yet; `None` once the worker is gone.
type Commands = Arc<Mutex<Option<Vec<Command>>>>;

/// The worker as which a superseded thread goes on.
type Next = Arc<Mutex<Option<Box<Worker>>>>;

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // The lock is held only for a store or a push.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Handle {
    /// Sends a command; it is carried out before the worker's next turn. If the worker is gone, the command is dropped.
    pub fn send(&self, command: Command) {
        if let Some(commands) = locked(&self.commands).as_mut() {
            commands.push(command);
        }
        self.wakeup.wake();
    }

    /// Makes the thread end as soon as it can, since another one takes over its queues; or go on as `next`, with its
    /// functions. Returns the commands that it did not carry out.
    pub fn supersede(&self, next: Option<Worker>) -> Vec<Command> {
        *locked(&self.next) = next.map(Box::new);
        self.gauges.is_superseded.store(true, SeqCst);
        locked(&self.commands).take().unwrap_or_default()
    }

    /// Requests the thread to end after its turn.
    pub fn stop(&self) {
        self.send(Command::Stop);
    }

    /// Whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.gauges.has_ended.load(SeqCst)
    }

    /// Whether the worker's thread ended without a request to stop.
    pub fn is_gone(&self) -> bool {
        locked(&self.commands).is_none()
    }

    /// Requests queue `bit` back; it is returned after the current turn.
    pub fn take_back(&self, bit: usize) -> Receiver<Option<SharedSource>> {
        let (to, from) = std::sync::mpsc::sync_channel(1);
        self.send(Command::Remove { bit, to });
        from
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Nanoseconds between two checks for kicks of armed queues while frames move: 2% of the worker's time.
const LOOK_BUSY: u64 = 20_000;
/// Nanoseconds between two checks for kicks of armed queues while no frames move and the worker has nothing else to do.
const LOOK_IDLE: u64 = 1_000;
/// Value of `last` for which a queue is polled once, and armed again if it has no frames.
const LONG_AGO: u64 = 1;

struct PolledQueue {
    source: SharedSource,
    /// The number of its worker.
    worker: usize,
    counters: CountersRef,
    /// When the queue last had frames; 0: the queue was woken since it was last polled.
    last: u64,
    active: bool,
    /// Whether kicks are enabled.
    armed: bool,
}

/// Result of a turn.
struct Turned {
    now: u64,
    /// Whether any frame moved.
    moved: bool,
    /// What the functions did.
    functions: Ran,
    /// When the next timed work is due, for which no queue wakes the worker.
    next_due: Option<u64>,
}

/// A worker, on its own thread.
pub struct Worker {
    policy: Policy,
    topology: Arc<Published<Topology>>,
    wakeup: Arc<Wakeup>,
    gauges: Arc<Gauges>,
    commands: Commands,
    next: Next,
    reader: Reader,
    clock: Clock,
    forwarder: Forwarder,
    slots: Vec<Option<PolledQueue>>,
    active: Vec<usize>,
    /// Armed queues that must be polled without a kick, and when.
    timed: Vec<(u64, usize)>,
    /// Whether the worker must end.
    stopped: bool,
    /// Number of its queues.
    queues: usize,
    /// When to poll for kicks of armed queues next, while others are active.
    next_look: u64,
    /// When the last turn began, or the worker woke.
    began: u64,
    /// When the last turn began, if frames moved in it.
    moved: Option<u64>,
    /// Number of lost mappings when the last turn ended.
    losses: u64,
    /// Signalled when ports must be checked.
    alarm: Arc<EventFd>,
    /// Frames whose way is asked for.
    traces: Vec<trace::TraceRequest>,
}

/// When a worker ends, even by a panic, no thread may wait for it any longer.
impl Drop for Worker {
    fn drop(&mut self) {
        drop(locked(&self.commands).take());
        self.gauges.has_ended.store(true, SeqCst);
        if self.gauges.is_superseded.load(SeqCst) {
            self.wakeup.rouse();
        }
        self.alarm.signal();
    }
}

impl Worker {
    /// A worker and its handle. Call `run` on a separate thread.
    pub fn new(
        policy: Policy,
        topology: Arc<Published<Topology>>,
        hash: FlowHash,
        alarm: Arc<EventFd>,
    ) -> Result<(Worker, Handle), HostError> {
        Worker::on(Wakeup::new()?, Gauges::default(), policy, topology, hash, alarm)
    }

    /// The successor of a worker that a peer blocks, without queues yet.
    pub fn succeeding(
        blocked: &Handle,
        policy: Policy,
        topology: Arc<Published<Topology>>,
        hash: FlowHash,
        alarm: Arc<EventFd>,
    ) -> Result<(Worker, Handle), HostError> {
        let of = |gauge: &AtomicU64| AtomicU64::new(gauge.load(Relaxed));
        let Gauges { turns, sleeps, busy, helped, .. } = &*blocked.gauges;
        let helped = AtomicBool::new(helped.load(Relaxed));
        let gauges =
            Gauges { turns: of(turns), sleeps: of(sleeps), busy: of(busy), helped, ..Gauges::default() };
        Worker::on(blocked.wakeup.clone(), gauges, policy, topology, hash, alarm)
    }

    fn on(
        wakeup: Arc<Wakeup>,
        gauges: Gauges,
        policy: Policy,
        topology: Arc<Published<Topology>>,
        hash: FlowHash,
        alarm: Arc<EventFd>,
    ) -> Result<(Worker, Handle), HostError> {
        let gauges = Arc::new(gauges);
        let commands = Arc::new(Mutex::new(Some(Vec::new())));
        let next = Next::default();
        let reader = Reader::register().ok_or(HostError::TooManyReaders)?;
        let handle = Handle {
            wakeup: wakeup.clone(),
            gauges: gauges.clone(),
            commands: commands.clone(),
            next: next.clone(),
        };
        let (clock, forwarder) = (Clock::new(), Forwarder::new(hash, Meter::new(gauges.clone())));
        let (slots, active, timed) = (Vec::new(), Vec::new(), Vec::new());
        let worker = Worker {
            policy,
            topology,
            wakeup,
            gauges,
            commands,
            next,
            reader,
            clock,
            forwarder,
            slots,
            active,
            timed,
            stopped: false,
            queues: 0,
            next_look: 0,
            began: clock.now(),
            moved: None,
            losses: losses(),
            alarm,
            traces: Vec::new(),
        };
        Ok((worker, handle))
    }

    /// Takes turns until requested to stop.
    pub fn run(mut self) {
        self.begin();
        if let Err(error) = ringway_host::prepare_signals() {
            self.gauges.helped.store(true, Relaxed);
            tracing::warn!(
                %error,
                "peers' eventfds are signalled by a thread each, which is slower; raise fs.aio-max-nr, or \
                 end what takes asynchronous I/O, and start the fabric again"
            );
        }
        let mut functions = Functions::new(match self.policy.poll {
            Poll::Never => 0,
            Poll::Adaptive | Poll::Always => self.policy.spin,
        });
        while self.round(&mut functions, true) {
            if let Some((number, next)) = functions.next_build() {
                (self, functions) = match self.build(functions, number, *next) {
                    Some(both) => both,
                    None => return,
                };
            }
        }
    }

    /// Called once by the worker's thread.
    fn begin(&self) {
        self.gauges.thread.store(ringway_host::thread_number(), Relaxed);
        self.alarm.signal();
    }

    /// Ends, since another thread took over its queues: returns `false`. If it has functions, which can't change
    /// threads, it goes on as another worker, without queues, which no peer can block.
    #[cold]
    fn give_up(&mut self, functions: &mut Functions) -> bool {
        let next = locked(&self.next).take();
        let Some(next) = next else {
            self.stopped = true;
            return false;
        };
        // The former one is dropped, which reports that it ended.
        *self = *next;
        self.begin();
        // The successor got their wake-ups meanwhile.
        functions.wake_all();
        true
    }

    /// Takes a turn, and sleeps if there is nothing to do; `false` to end.
    fn round(&mut self, functions: &mut Functions, may_sleep: bool) -> bool {
        let Worker { wakeup, slots, active, .. } = self;
        let woken = wakeup.collect(|bit| ring(slots, active, functions, bit));
        if woken && !self.apply_commands(functions) {
            self.stopped = true;
            return false;
        }
        if self.gauges.is_superseded.load(Relaxed) {
            return self.give_up(functions);
        }
        let Turned { now, moved, functions: ran, next_due } = self.turn(functions);
        if self.gauges.is_superseded.load(Relaxed) {
            return self.give_up(functions);
        }
        if self.active.is_empty() && self.traces.is_empty() && !ran.busy && self.policy.poll != Poll::Always {
            if may_sleep && functions.is_built() {
                self.sleep(next_due, functions);
            }
        } else if (self.active.len() < self.queues || !functions.is_empty()) && now >= self.next_look {
            self.next_look = now + if moved { LOOK_BUSY } else { LOOK_IDLE };
            let Worker { wakeup, slots, active, .. } = self;
            wakeup.look(|bit| ring(slots, active, functions, bit));
        }
        true
    }

    /// Builds a configuration of function `number`, and takes turns meanwhile. `None` to end.
    fn build(self, functions: Functions, number: u64, build: Build) -> Option<(Worker, Functions)> {
        let shared = Rc::new(RefCell::new(Some((self, functions))));
        let (breathing, inside) = (shared.clone(), Rc::new(Cell::new(false)));
        let within = inside.clone();
        let breath = Box::new(move || {
            let mut both = breathing.borrow_mut();
            let Some((worker, functions)) = both.as_mut().filter(|(worker, _)| !worker.stopped) else {
                return false;
            };
            within.set(true);
            worker.round(functions, false);
            within.set(false);
            // The function may have been removed meanwhile.
            !worker.stopped && functions.has(number)
        });
        let built = function::build(build, breath);
        let (worker, mut functions) = shared.take()?;
        let built = match built {
            Ok(built) => Some(built),
            // The worker panicked, not the function.
            Err(panic) if inside.get() => std::panic::resume_unwind(panic),
            Err(_) => None,
        };
        functions.built(number, built);
        (!worker.stopped).then_some((worker, functions))
    }

    /// Carries out pending commands; `false` to end. The lock is taken only after a wake-up, and no thread holds it for
    /// longer than a push.
    fn apply_commands(&mut self, functions: &mut Functions) -> bool {
        let commands = locked(&self.commands).as_mut().map(std::mem::take);
        for command in commands.unwrap_or_default() {
            match command {
                Command::Add { bit, worker, source } => self.add(bit, worker, source),
                Command::Remove { bit, to } => {
                    self.active.retain(|&active| active != bit);
                    let slot = self.slots.get_mut(bit).and_then(Option::take);
                    let _ = to.try_send(slot.map(|slot| slot.source));
                }
                Command::AddFunction(order) => functions.add(*order),
                Command::RemoveFunction(number) => functions.release(number),
                Command::SuspendFunction(number, suspended) => functions.suspend(number, suspended),
                Command::Inherit { due, closely_until } => {
                    self.forwarder.due.extend(due.into_iter().map(|slot| (0, slot)));
                    self.forwarder.meter.extend_closely(closely_until);
                }
                Command::Watch(files) => self.forwarder.meter.watch(files),
                Command::Trace(request) => self.traces.push(*request),
                Command::Stop => return false,
            }
        }
        self.queues = self.slots.iter().flatten().count();
        self.gauges.queues.store(self.queues as u64, Relaxed);
        self.gauges.has_functions.store(!functions.is_empty(), Relaxed);
        true
    }

    fn add(&mut self, bit: usize, worker: usize, source: SharedSource) {
        if self.slots.len() <= bit {
            self.slots.resize_with(bit + 1, || None);
        }
        // With private counters, the queue's kicks are not counted.
        let counters = free(&source).map_or_else(CountersRef::private, |source| source.counters.clone());
        let queue = PolledQueue { source, worker, counters, last: 0, active: false, armed: true };
        self.slots[bit] = Some(queue);
        activate(&mut self.slots, &mut self.active, bit, 0);
    }

    /// One turn.
    fn turn(&mut self, functions: &mut Functions) -> Turned {
        let Worker { reader, clock, topology, forwarder, slots, active, policy, gauges, timed, .. } = self;
        let now = clock.now();
        forwarder.meter.turn_ended(self.began, now);
        forwarder.meter.turn_begins(now);
        forwarder.meter.stopwatch.turn_begins(&gauges.profile, now, self.moved.is_some());
        self.began = now;
        timed.retain(|&(when, bit)| when > now || activate(slots, active, bit, LONG_AGO));
        let turn = reader.turn(now);
        let topology = topology.read(&turn);
        add(&gauges.turns, 1);
        if let Some(began) = self.moved.take() {
            add(&gauges.busy, now.saturating_sub(began));
        }
        charge(&forwarder.meter, topology, now);
        let mut moved = false;
        let mut next = 0;
        while let Some(&bit) = active.get(next) {
            let slot = slots.get_mut(bit).and_then(Option::as_mut);
            match slot.map_or(Polled::Inactive(None), |slot| poll(forwarder, slot, &turn, topology, policy)) {
                Polled::Moved => (moved, next) = (true, next + 1),
                Polled::Active => next += 1,
                Polled::Inactive(due) => {
                    timed.extend(due.map(|when| (when, bit)));
                    active.swap_remove(next);
                }
            }
            if gauges.is_superseded.load(Relaxed) {
                break;
            }
        }
        // One a turn: a trace takes no longer than forwarding does.
        if let Some(request) = self.traces.pop() {
            request.run(forwarder, &turn, topology);
        }
        gauges.active.store(active.len() as u64, Relaxed);
        self.moved = moved.then_some(now);
        if !moved {
            std::hint::spin_loop();
        }
        report_losses(&mut self.losses, &self.alarm);
        let is_superseded = gauges.is_superseded.load(Relaxed);
        if is_superseded {
            // Nobody else knows of them.
            forwarder.due.iter_mut().for_each(|(when, _)| *when = 0);
        }
        let next_due = if forwarder.is_done() { None } else { forwarder.publish_due(&turn) };
        if is_superseded {
            let now = clock.now();
            forwarder.meter.turn_ended(turn.now, now);
            charge(&forwarder.meter, topology, now);
            gauges.closely_until.store(forwarder.meter.closely_until(), Relaxed);
        }
        forwarder.meter.at(Access::NONE);
        forwarder.meter.stopwatch.enter(Stage::Functions, 0);
        let functions = functions.turn(now, || clock.now(), moved);
        forwarder.meter.stopwatch.enter(Stage::Rest, 0);
        if functions.took > 0 {
            add(&gauges.profile.functions[usize::from(!moved)], functions.took);
        }
        let next_due = next_due.into_iter().chain(functions.due).min();
        Turned { now, moved, functions, next_due }
    }

    fn sleep(&mut self, next_due: Option<u64>, functions: &mut Functions) {
        let Worker { reader, clock, gauges, wakeup, slots, active, timed, forwarder, .. } = self;
        let until = timed.iter().map(|&(when, _)| when).chain(next_due).min();
        let now = clock.now();
        let timeout = until.map(|due| due.saturating_sub(now));
        reader.rest();
        add(&gauges.sleeps, 1);
        forwarder.meter.turn_ended(self.began, now);
        forwarder.meter.refresh(now);
        let before = clock.now();
        gauges.profile.asleep.store(before, Relaxed);
        wakeup.sleep(timeout, |bit| ring(slots, active, functions, bit));
        self.began = clock.now();
        let slept = self.began.saturating_sub(before);
        gauges.profile.asleep.store(0, Relaxed);
        add(&gauges.profile.slept, slept);
        forwarder.meter.slept(slept);
    }
}

/// What became of a queue that was polled.
enum Polled {
    /// Frames moved.
    Moved,
    /// The queue had no frames, but stays active.
    Active,
    /// The queue is inactive now, until a wake-up or this time.
    Inactive(Option<u64>),
}

/// Polls an active queue. If that ends this process, `control` finds which queue it was.
#[inline]
fn poll(
    forwarder: &mut Forwarder,
    slot: &mut PolledQueue,
    turn: &Turn<'_>,
    topology: &Topology,
    policy: &Policy,
) -> Polled {
    serving(&slot.counters).store(SERVED, Relaxed);
    let polled = serve(forwarder, slot, turn, topology, policy);
    serving(&slot.counters).store(0, Relaxed);
    polled
}

#[inline]
fn serve(
    forwarder: &mut Forwarder,
    slot: &mut PolledQueue,
    turn: &Turn<'_>,
    topology: &Topology,
    policy: &Policy,
) -> Polled {
    let PolledQueue { source, worker, last, active, armed, .. } = slot;
    // Only a predecessor, of this worker or of one that it was moved from, can have it, since nothing but workers'
    // threads locks a source. When a predecessor ends, the session thread wakes every queue.
    let Some(mut source) = free(source) else {
        (*active, *armed) = (false, true);
        return Polled::Inactive(None);
    };
    let source = &mut *source;
    // A predecessor may have had it when it was moved.
    if source.worker() != *worker {
        source.move_to(*worker);
    }
    if *last == 0 && !topology.port(source.port).is_some_and(|port| is_closed(&port.budget)) {
        forwarder.meter.at(Access::of(source.port));
        // The queue just became active: it is polled, so its peer need not kick.
        source.tx.disarm(turn);
        (*last, *armed) = (turn.now, false);
    }
    let served = forwarder.serve(turn, topology, source);
    charge(&forwarder.meter, topology, turn.now);
    forwarder.meter.at(Access::of(source.port));
    match served {
        Served::Closed => {
            // The next attached peer rings for the queue.
            (*active, *armed) = (false, true);
            return Polled::Inactive(None);
        }
        Served::Moved(_) => {
            if std::mem::take(armed) {
                source.tx.disarm(turn);
            }
            *last = turn.now;
            return Polled::Moved;
        }
        Served::Waiting => *last = turn.now,
        Served::Idle if is_over(policy, *last, turn.now) && source.tx.arm(turn) => {
            (*active, *armed) = (false, true);
            return Polled::Inactive(source.tx.next_due());
        }
        Served::Idle => {}
    }
    Polled::Active
}

/// Signals `alarm` when a peer's memory is lost, so that its port is checked.
#[inline]
fn report_losses(losses: &mut u64, alarm: &EventFd) {
    let lost = ringway_host::losses();
    if std::mem::replace(losses, lost) != lost {
        alarm.signal();
    }
}

/// Charges peers for the time for which they blocked the worker.
#[inline]
fn charge(meter: &Meter, topology: &Topology, now: u64) {
    if !meter.is_held() {
        return;
    }
    for (port, time) in meter.take_held() {
        if let Some(budget) = topology.port(port).and_then(|port| port.budget.as_ref()) {
            budget.charge(now, time);
        }
    }
}

/// Whether an empty queue is no longer worth polling.
fn is_over(policy: &Policy, last: u64, now: u64) -> bool {
    match policy.poll {
        Poll::Adaptive => now.saturating_sub(last) >= policy.spin,
        Poll::Never => true,
        Poll::Always => false,
    }
}

/// Activates a queue that was kicked or woken, or wakes a function.
fn ring(slots: &mut [Option<PolledQueue>], active: &mut Vec<usize>, functions: &mut Functions, bit: usize) {
    if !functions.is_empty() && functions.wake(bit) {
        return;
    }
    if let Some(slot) = slots.get(bit).and_then(Option::as_ref) {
        add(&slot.counters.kicks, 1);
    }
    activate(slots, active, bit, 0);
}

/// Activates the queue, as one that last had frames at `last`. Always returns `false`, for `retain`.
fn activate(slots: &mut [Option<PolledQueue>], active: &mut Vec<usize>, bit: usize, last: u64) -> bool {
    if let Some(slot) = slots.get_mut(bit).and_then(Option::as_mut)
        && !slot.active
    {
        slot.active = true;
        slot.last = last;
        active.push(bit);
    }
    false
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::forward::Source;
    use ringway_frame::{Burst, TxQueue};

    /// A queue that panics.
    struct Wrong;

    impl TxQueue for Wrong {
        fn take<'t>(&mut self, _turn: &'t Turn<'_>, _burst: &mut Burst<'t>) {
            panic!("as this test wants it");
        }

        fn release(&mut self, _turn: &Turn<'_>, _frames: usize) {}

        fn arm(&mut self, _turn: &Turn<'_>) -> bool {
            true
        }

        fn disarm(&mut self, _turn: &Turn<'_>) {}
    }

    pub(crate) fn wrong() -> SharedSource {
        Arc::new(Mutex::new(Source::new(Box::new(Wrong), 0, 0, CountersRef::private())))
    }

    #[test]
    fn a_panicking_worker_blocks_no_other_thread() {
        let policy = Policy { poll: Poll::Adaptive, spin: 0 };
        let (published, alarm) =
            (Arc::new(Published::new(Arc::new(Topology::default()))), Arc::new(EventFd::new().unwrap()));
        let (worker, handle) = Worker::new(policy, published, FlowHash::new(1), alarm.clone()).unwrap();
        let thread = std::thread::spawn(move || worker.run());
        assert!(!handle.is_gone());
        handle.send(Command::Add { bit: 0, worker: 0, source: wrong() });
        assert!(thread.join().is_err() && handle.is_gone() && alarm.clear());
        assert!(handle.take_back(0).recv().is_err());
        ringway_host::grace();
    }
}
