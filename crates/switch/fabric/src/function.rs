//! Functions that run on a worker, between its turns over queues.
//!
//! A function takes no more than its share: a bounded number of tasks a turn, and after a turn that took long as much
//! time as it took goes to the queues, while they have frames to pass on. A function that panics is lost; the worker
//! and its queues go on.

use crate::log_limit::LogLimit;
use crate::page::{RUN, serving};
use crate::profile::SharedFunctionGauges;
use crate::proto::FunctionReport;
use ringway_click::{Breath, Console};
use ringway_click_driver::click::resident::{Build, Built, Next, Resident, Seat};
use ringway_frame::add;
use ringway_host::EventFd;
use ringway_port::frame_queue::Inside;
use ringway_spec::{Function, printable};
use std::any::Any;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Tasks of a function a turn.
const TASKS: usize = 4;
/// Nanoseconds that a function's turn may take before the queues get as much time.
const SLICE: u64 = 20_000;
/// Lines a second that a function may log. Attack: a function that fills the log.
const LINES: u32 = 100;
/// Largest number of characters of a message.
const LETTERS: usize = 4096;

/// What happened to functions, for `control`.
#[derive(Clone)]
pub struct Reports {
    reports: Arc<Mutex<Vec<(u64, FunctionReport)>>>,
    /// Signalled when there are reports.
    alarm: Arc<EventFd>,
}

impl Reports {
    /// No reports yet.
    pub fn new(alarm: Arc<EventFd>) -> Reports {
        Reports { reports: Arc::default(), alarm }
    }

    /// Adds a report about function `number`.
    pub fn add(&self, number: u64, report: FunctionReport) {
        // The lock is held only for a push, or to take all entries.
        self.reports.lock().unwrap_or_else(PoisonError::into_inner).push((number, report));
        self.alarm.signal();
    }

    /// Takes all reports.
    pub fn take(&self) -> Vec<(u64, FunctionReport)> {
        std::mem::take(&mut *self.reports.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A function to run.
pub struct Order {
    /// Its number, by which `control` knows it.
    pub number: u64,
    /// The number of its doorbell on the worker's wakeup.
    pub bit: usize,
    /// The function.
    pub function: Function,
    /// The queues of its ports.
    pub ports: Vec<Arc<Inside>>,
    /// The place of its handlers, and the socket by which connections to them come.
    pub handlers: (String, UnixStream),
    /// Receives the function's reports.
    pub reports: Reports,
    /// Set while it has nothing to do.
    pub idle: Arc<AtomicBool>,
    /// Its time and turns.
    pub gauges: SharedFunctionGauges,
}

enum Life {
    /// Its first configuration is to be built.
    Unbuilt(Box<Build>),
    /// Its first configuration is being built.
    Building,
    Running(Box<Resident>),
    /// Ended: `control` was told, and releases it.
    Ended,
}

struct Hosted {
    number: u64,
    bit: usize,
    name: String,
    reports: Reports,
    ports: Vec<Arc<Inside>>,
    life: Life,
    active: bool,
    /// `active`, inverted, for other threads.
    idle: Arc<AtomicBool>,
    gauges: SharedFunctionGauges,
    /// Whether frames don't wake it: it looks for them.
    polls: bool,
    suspended: bool,
    /// Whether the function's doorbell rang.
    notified: bool,
    /// When the function runs although nothing wakes it.
    due: Option<u64>,
}

/// The functions of a worker.
#[derive(Default)]
pub struct Functions {
    /// Nanoseconds for which a function polls its ports after the last frame.
    spin: u64,
    all: Vec<Hosted>,
    /// The one that comes first in the next turn.
    first: usize,
    /// While queues pass frames on, none runs before this time: as long after their last turn as that took.
    resumes: u64,
}

/// The result of the functions' part of a turn.
#[derive(Debug, Default)]
pub struct Ran {
    /// Whether any has more to do immediately.
    pub busy: bool,
    /// When the next one is due.
    pub due: Option<u64>,
    /// Nanoseconds that all of them took.
    pub took: u64,
}

impl Functions {
    /// No functions yet. Each polls its ports for `spin` nanoseconds after the last frame, before it waits to be woken.
    pub fn new(spin: u64) -> Functions {
        Functions { spin, ..Functions::default() }
    }

    /// Whether the worker has no functions.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether the worker has the function of this number.
    pub fn has(&self, number: u64) -> bool {
        self.all.iter().any(|hosted| hosted.number == number)
    }

    /// Whether no configuration waits to be built.
    pub fn is_built(&self) -> bool {
        !self.all.iter().any(|hosted| matches!(hosted.life, Life::Unbuilt(_)))
    }

    /// Adds a function. It is built when [`Functions::build`] is called next.
    pub fn add(&mut self, order: Order) {
        let Order { number, bit, function, ports, handlers, reports, idle, gauges } = order;
        let name = function.name.clone();
        let console = Box::new(move || {
            let limit = LogLimit::new(LINES, Duration::from_secs(1));
            Box::new(Log { function: name.clone(), limit }) as Box<dyn Console>
        });
        let build =
            Build::first(&function, Seat { ports: ports.clone(), handlers, console, spin: self.spin });
        self.all.push(Hosted {
            number,
            bit,
            name: function.name,
            reports,
            ports,
            life: Life::Unbuilt(Box::new(build)),
            active: false,
            idle,
            gauges,
            polls: false,
            suspended: false,
            notified: false,
            due: None,
        });
    }

    /// Ends a function.
    pub fn release(&mut self, number: u64) {
        let Some(at) = self.all.iter().position(|hosted| hosted.number == number) else { return };
        let hosted = self.all.swap_remove(at);
        // An element's clean-up may panic.
        let (name, ports) = (hosted.name.clone(), hosted.ports.clone());
        if catch_unwind(AssertUnwindSafe(|| drop(hosted))).is_err() {
            tracing::error!(function = name, "it panicked when it ended");
        }
        ports.iter().for_each(|inside| inside.abandon());
    }

    /// Suspends a function, or lets it go on.
    pub fn suspend(&mut self, number: u64, suspended: bool) {
        for hosted in self.all.iter_mut().filter(|hosted| hosted.number == number) {
            hosted.suspended = suspended;
            hosted.activate();
            hosted.notified = true;
        }
    }

    /// Wakes the function whose doorbell is `bit`; `false` if there is none.
    pub fn wake(&mut self, bit: usize) -> bool {
        let Some(hosted) = self.all.iter_mut().find(|hosted| hosted.bit == bit) else { return false };
        hosted.notified = true;
        hosted.activate();
        true
    }

    /// Wakes every function.
    pub fn wake_all(&mut self) {
        for hosted in &mut self.all {
            hosted.notified = true;
            hosted.activate();
        }
    }

    /// A part of a turn that began at `now`. While queues pass frames on, functions that took long wait. `time` is the
    /// time in nanoseconds.
    #[inline]
    pub fn turn(&mut self, now: u64, time: impl Fn() -> u64, queues: bool) -> Ran {
        if self.all.is_empty() { Ran::default() } else { self.run(now, time, queues) }
    }

    fn run(&mut self, now: u64, time: impl Fn() -> u64, queues: bool) -> Ran {
        let mut ran = Ran::default();
        let count = self.all.len();
        let mut may_run = !queues || self.resumes <= now;
        // When the functions began, which excludes the time of the queues in this turn.
        let mut began = None;
        let mut last = 0;
        self.first = self.first.checked_rem(count).unwrap_or(0);
        let first = self.first;
        for at in (first..count).chain(0..first) {
            let Some(hosted) = self.all.get_mut(at) else { continue };
            if hosted.due.is_some_and(|due| due <= now) {
                hosted.due = None;
                hosted.activate();
            }
            if hosted.polls && !hosted.suspended && may_run && hosted.poll(now) {
                hosted.activate();
            }
            if hosted.active && !hosted.suspended && may_run {
                let began = *began.get_or_insert_with(&time);
                hosted.due = None;
                hosted.turn(now);
                let ended = time();
                let own = ended.saturating_sub(began.max(last));
                add(&hosted.gauges.time, own);
                add(&hosted.gauges.turns, 1);
                (last, ran.took) = (ended, ran.took + own);
                // All functions together get as much time as the queues.
                let took = ended.saturating_sub(began);
                if took > SLICE {
                    self.resumes = ended.saturating_add(took);
                    self.first = at + 1;
                    may_run = !queues;
                }
                hosted.due = hosted.due.map(|rest| ended.saturating_add(rest));
                hosted.idle.store(!hosted.active, SeqCst);
            }
            ran.busy |= (hosted.active || hosted.polls) && !hosted.suspended;
            ran.due = ran.due.into_iter().chain(hosted.due.filter(|_| !hosted.suspended)).min();
        }
        ran
    }

    /// The next configuration to build, and its function's number.
    pub fn next_build(&mut self) -> Option<(u64, Box<Build>)> {
        self.all.iter_mut().find_map(|hosted| Some((hosted.number, hosted.next_build()?)))
    }

    /// Takes a built configuration over; `None` if building it panicked.
    pub fn built(&mut self, number: u64, built: Option<Built>) {
        let Some(hosted) = self.all.iter_mut().find(|hosted| hosted.number == number) else {
            // The function was released meanwhile. An element's clean-up may panic, here and below.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(built)));
            return;
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| hosted.built(built))) {
            hosted.end(format!("an element panicked: {}", message(&*panic)));
        }
        hosted.activate();
    }
}

/// Builds a configuration; `None` if that panics. `breath` lets the worker go on, or ends building.
pub fn build(build: Build, breath: Breath) -> Result<Built, Box<dyn Any + Send>> {
    catch_unwind(AssertUnwindSafe(|| build.run(breath)))
}

impl Hosted {
    fn activate(&mut self) {
        self.idle.store(false, SeqCst);
        self.active = true;
    }

    /// Looks for frames that don't wake it; whether there are any.
    fn poll(&mut self, now: u64) -> bool {
        let found;
        (found, self.polls) = match &mut self.life {
            Life::Running(resident) => resident.poll(now),
            _ => (false, false),
        };
        found
    }

    /// A turn. Afterwards `due` is the time from now until it is due, if it is idle.
    fn turn(&mut self, now: u64) {
        self.polls = false;
        let Life::Running(resident) = &mut self.life else {
            self.active = false;
            return;
        };
        let notified = std::mem::take(&mut self.notified);
        // If that ends this process, `control` finds which function it was.
        let serving = self.ports.first().map(|inside| serving(&inside.counters));
        serving.inspect(|serving| serving.store(RUN, Relaxed));
        let turned = catch_unwind(AssertUnwindSafe(|| {
            if notified {
                resident.notified();
            }
            resident.turn(TASKS, now)
        }));
        serving.inspect(|serving| serving.store(0, Relaxed));
        match turned {
            Ok(Next::Busy) => {}
            Ok(Next::Idle(due)) => (self.active, self.due) = (false, due),
            Ok(Next::Polls(due)) => (self.active, self.polls, self.due) = (false, true, due),
            Ok(Next::Greedy) => self.end("its packets exceed its memory".into()),
            Ok(Next::Stopped) => self.end("its configuration stopped it".into()),
            Err(panic) => {
                let reason = format!("an element panicked: {}", message(&*panic));
                tracing::error!(function = self.name, reason, "the function is lost");
                self.end(reason);
            }
        }
    }

    fn end(&mut self, reason: String) {
        let former = std::mem::replace(&mut self.life, Life::Ended);
        // What a panic left behind may panic again.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(former)));
        (self.active, self.polls) = (false, false);
        self.reports.add(self.number, FunctionReport::Ended(reason));
    }

    fn next_build(&mut self) -> Option<Box<Build>> {
        match &mut self.life {
            Life::Running(resident) if !self.suspended => resident.replacement().map(Box::new),
            Life::Unbuilt(_) => match std::mem::replace(&mut self.life, Life::Building) {
                Life::Unbuilt(build) => Some(build),
                _ => None,
            },
            _ => None,
        }
    }

    fn built(&mut self, built: Option<Built>) {
        let Some(built) = built else {
            return self.end("an element panicked while it was configured".into());
        };
        match &mut self.life {
            Life::Running(resident) => resident.replaced(built),
            Life::Building => match built.start(ringway_host::ticks) {
                Ok(resident) => {
                    (self.life, self.notified) = (Life::Running(Box::new(resident)), true);
                    self.reports.add(self.number, FunctionReport::Up);
                }
                Err(wrong) => {
                    self.reports.add(self.number, FunctionReport::Wrong(wrong));
                    self.end("its configuration can't run".into());
                }
            },
            Life::Unbuilt(_) | Life::Ended => {}
        }
    }
}

/// What a panic says.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("see the log")
}

/// Writes a function's chatter to the log, at a limited rate. There are no files.
struct Log {
    function: String,
    limit: LogLimit,
}

impl Console for Log {
    fn chatter(&mut self, line: &str) {
        if let Some(suppressed) = self.limit.take(Instant::now()) {
            if suppressed > 0 {
                tracing::warn!(function = self.function, "{suppressed} more messages suppressed");
            }
            // Attack: frames of 64 KB, printed as a whole.
            let line: String = line.chars().take(LETTERS).map(|c| if c == '\t' { ' ' } else { c }).collect();
            tracing::info!(function = self.function, "{}", printable(&line));
        }
    }

    fn output(&mut self, bytes: &[u8]) {
        self.chatter(String::from_utf8_lossy(bytes).trim_end());
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use ringway_frame::packet::Pool;
    use ringway_frame::{CountersRef, Reason};
    use ringway_host::Clock;
    use ringway_port::frame_queue::{Receiver, Sender};
    use ringway_port::{Doorbell, Silent};
    use ringway_spec::{Configuration, Isolation};
    use std::cell::Cell;

    /// A console that panics.
    struct Wrong;

    impl Console for Wrong {
        fn chatter(&mut self, _line: &str) {
            panic!("as this test wants it");
        }

        fn output(&mut self, _bytes: &[u8]) {}
    }

    thread_local! {
        /// The time of a test.
        static NOW: Cell<u64> = const { Cell::new(1_000_000_000) };
    }

    /// Lets time pass.
    fn pass(time: u64) {
        NOW.set(NOW.get() + time);
    }

    /// A console whose lines take long.
    struct Slow;

    /// Nanoseconds for a line.
    const LINE: u64 = 3 * SLICE;

    impl Console for Slow {
        fn chatter(&mut self, _line: &str) {
            pass(LINE);
        }

        fn output(&mut self, _bytes: &[u8]) {}
    }

    /// A function with one port.
    pub fn function(click: &str) -> Function {
        Function {
            name: "f".into(),
            configuration: Configuration { text: click.into(), ..Configuration::default() },
            isolation: Isolation::Worker,
            ports: vec!["a".into()],
            memory: 32 << 20,
            ..Function::default()
        }
    }

    struct Rig {
        functions: Functions,
        inside: Arc<Inside>,
        reports: Reports,
        _callers: UnixStream,
    }

    /// The function, built, with this console if any.
    fn rig(click: &str, console: Option<fn() -> Box<dyn Console>>) -> Rig {
        let mut functions = Functions::default();
        let (inside, reports, callers) = added(&mut functions, (7, 3), click, console);
        Rig { functions, inside, reports, _callers: callers }
    }

    /// Adds a function with this number and this doorbell.
    fn added(
        functions: &mut Functions,
        (number, bit): (u64, usize),
        click: &str,
        console: Option<fn() -> Box<dyn Console>>,
    ) -> (Arc<Inside>, Reports, UnixStream) {
        let wakeup: Arc<dyn Doorbell> = Arc::new(Silent);
        let (inside, function) = (Inside::new("f", "a", &wakeup, CountersRef::private()), function(click));
        let reports = Reports::new(Arc::new(EventFd::new().unwrap()));
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (ports, handlers) = (vec![inside.clone()], ("handlers".to_string(), theirs));
        let (idle, own) = (Arc::default(), function.clone());
        let order = Order {
            number,
            bit,
            function: own,
            ports,
            handlers,
            reports,
            idle,
            gauges: SharedFunctionGauges::default(),
        };
        let reports = order.reports.clone();
        functions.add(order);
        if let Some(console) = console {
            functions.all[0].life = Life::Unbuilt(Box::new(first(&function, &inside, console)));
        }
        let (number, next) = functions.next_build().unwrap();
        functions.built(number, build(*next, Box::new(|| true)).ok());
        (inside, reports, ours)
    }

    /// The first configuration of a function with this console.
    fn first(function: &Function, inside: &Arc<Inside>, console: fn() -> Box<dyn Console>) -> Build {
        let (_, theirs) = UnixStream::pair().unwrap();
        let handlers = ("handlers".to_string(), theirs);
        Build::first(
            function,
            Seat { ports: vec![inside.clone()], handlers, console: Box::new(console), spin: 0 },
        )
    }

    impl Rig {
        /// Turns until the function is idle.
        fn run(&mut self) {
            self.functions.wake(3);
            let clock = Clock::new();
            let idle = (0..10_000).any(|_| !self.functions.turn(clock.now(), || clock.now(), false).busy);
            assert!(idle, "it never rests");
        }

        fn send(&self) {
            let mut sender = Sender::new(self.inside.to.clone());
            sender.push(Pool::new().copy(&[5; 60]).unwrap().into_parcel());
            assert!(sender.flush());
        }
    }

    #[test]
    fn a_frame_passes_a_function() {
        let mut rig = rig("FromPort(a) -> EtherMirror -> ToPort(a);", None);
        rig.run();
        rig.send();
        rig.run();
        let mut came = Vec::new();
        assert!(Receiver::new(rig.inside.from.clone()).receive(64, &mut came, &mut Vec::new()).is_some());
        assert_eq!((came.len(), came[0].len()), (1, 60));
        assert_eq!(rig.reports.take(), [(7, FunctionReport::Up)]);
    }

    #[test]
    fn a_frame_passes_two_functions_without_a_copy() {
        const WIRE: &str = "FromPort(a) -> ToPort(a);";
        let mut rig = rig(WIRE, None);
        let (second, _, _callers) = added(&mut rig.functions, (8, 4), WIRE, None);
        rig.inside.hand_to(Some(&second));
        rig.run();
        rig.functions.wake(4);
        rig.run();
        let owned_frame = Pool::new().copy(&[5; 60]).unwrap().into_parcel();
        let at = owned_frame.data().as_ptr();
        let mut sender = Sender::new(rig.inside.to.clone());
        sender.push(owned_frame);
        assert!(sender.flush());
        rig.run();
        assert!(rig.inside.is_quiet() && !second.is_quiet());
        rig.functions.wake(4);
        rig.run();
        let mut came = Vec::new();
        let mut receiver = Receiver::new(second.from.clone());
        assert!(receiver.receive(64, &mut came, &mut Vec::new()).is_some());
        assert_eq!((came.len(), came[0].data().as_ptr()), (1, at));
        let (sent, received) = (&rig.inside.counters, &second.counters);
        assert_eq!((sent.tx_frames.load(SeqCst), received.rx_bytes.load(SeqCst)), (1, 60));
        assert!(rig.functions.all.iter().all(|hosted| hosted.idle.load(SeqCst)));
    }

    #[test]
    fn a_function_polls_its_ports_for_a_while() {
        let clock = Clock::new();
        for (spin, polls) in [(0, false), (u64::MAX, true)] {
            let mut functions = Functions::new(spin);
            let (inside, _reports, _callers) =
                added(&mut functions, (7, 3), "FromPort(a) -> ToPort(a);", None);
            let rest = |functions: &mut Functions| {
                (0..1000).any(|_| !functions.turn(clock.now(), || clock.now(), false).busy)
            };
            functions.wake(3);
            assert!(rest(&mut functions), "no frame came yet");
            let mut sender = Sender::new(inside.to.clone());
            sender.push(Pool::new().copy(&[5; 60]).unwrap().into_parcel());
            assert!(sender.flush());
            functions.wake(3);
            assert_eq!(rest(&mut functions), !polls);
            // While it polls, it has nothing to do.
            assert!(functions.all[0].idle.load(SeqCst) && functions.all[0].polls == polls);
            sender.push(Pool::new().copy(&[5; 60]).unwrap().into_parcel());
            assert!(sender.flush());
            assert_eq!(rest(&mut functions), !polls);
            assert_eq!(inside.counters.rx_drops[Reason::Down as usize].load(SeqCst), 0);
            assert_eq!(inside.from.waiting(), if polls { 2 } else { 1 }, "nobody rang for the second frame");
        }
    }

    #[test]
    fn frames_for_a_function_that_ended_are_counted() {
        let mut rig = rig("FromPort(a) -> ToPort(a);", None);
        rig.run();
        rig.send();
        rig.send();
        rig.functions.release(7);
        assert_eq!(rig.inside.counters.rx_drops[Reason::Down as usize].load(SeqCst), 2);
        assert!(rig.inside.is_quiet());
    }

    #[test]
    fn a_panic_ends_only_the_function() {
        let mut rig = rig("FromPort(a) -> Print(x) -> ToPort(a);", Some(|| Box::new(Wrong)));
        rig.run();
        assert_eq!(rig.reports.take(), [(7, FunctionReport::Up)]);
        rig.send();
        rig.run();
        let reason = "an element panicked: as this test wants it".to_string();
        assert_eq!(rig.reports.take(), [(7, FunctionReport::Ended(reason))]);
        rig.run();
        rig.functions.release(7);
        assert!(rig.functions.is_empty() && rig.reports.take().is_empty());
    }

    #[test]
    fn a_wrong_configuration_is_reported_with_its_position() {
        let mut rig = rig("FromPort(a) -> Nonsense -> ToPort(a);", None);
        let reports = rig.reports.take();
        let [(7, FunctionReport::Wrong(why)), (7, FunctionReport::Ended(_))] = &reports[..] else {
            unreachable!("{reports:?}")
        };
        assert!(why.starts_with("f:1:16: "), "{why}");
        rig.run();
    }

    #[test]
    fn a_configuration_that_is_given_up_is_not_built_to_its_end() {
        let wakeup: Arc<dyn Doorbell> = Arc::new(Silent);
        let inside = Inside::new("f", "a", &wakeup, CountersRef::private());
        for is_wanted in [true, false] {
            let own = first(&function("FromPort(a) -> ToPort(a);"), &inside, || Box::new(Wrong));
            let built = build(own, Box::new(move || is_wanted)).unwrap();
            assert_eq!(built.start(ringway_host::ticks).is_ok(), is_wanted);
        }
    }

    #[test]
    fn a_slow_function_waits_while_queues_pass_frames_on() {
        let mut rig = rig("InfiniteSource -> Discard; FromPort(a) -> ToPort(a);", None);
        let clock = Clock::new();
        rig.functions.wake(3);
        rig.functions.resumes = u64::MAX;
        assert!(rig.functions.turn(clock.now(), || clock.now(), true).busy);
        assert_eq!(rig.functions.resumes, u64::MAX, "it did not run");
        assert!(rig.functions.turn(clock.now(), || clock.now(), false).busy);
        assert_ne!(rig.functions.resumes, u64::MAX, "the queues have nothing to do");
    }

    #[test]
    fn after_a_long_turn_the_queues_get_as_much_time() {
        const PRINTS: &str = "InfiniteSource(LENGTH 60) -> Print(x) -> Discard; FromPort(a) -> ToPort(a);";
        let mut rig = rig(PRINTS, Some(|| Box::new(Slow)));
        rig.functions.wake(3);
        // The time that its turn takes.
        let turn = |functions: &mut Functions, queues| {
            let before = NOW.get();
            assert!(functions.turn(before, || NOW.get(), queues).busy);
            NOW.get() - before
        };
        let took = turn(&mut rig.functions, true);
        assert!(took >= LINE && took.is_multiple_of(LINE), "{took}");
        assert_eq!(rig.functions.resumes, NOW.get() + took);
        pass(took - 1);
        assert_eq!(turn(&mut rig.functions, true), 0, "frames pass");
        pass(1);
        assert!(turn(&mut rig.functions, true) > 0);
        assert!(turn(&mut rig.functions, false) > 0, "the queues have nothing to do");
        // While the queues have frames for 10 us of each turn, they get half of the time.
        let (mut own, mut queues, mut longest) = (0, 0, 0);
        rig.functions.resumes = 0;
        for _ in 0..10_000 {
            pass(10_000);
            queues += 10_000;
            let took = turn(&mut rig.functions, true);
            (own, longest) = (own + took, longest.max(took));
        }
        assert!(own <= queues + longest && own + longest >= queues * 9 / 10, "{own}, {queues}, {longest}");
    }
}
