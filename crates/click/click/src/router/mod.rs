//! A router: elements, their connections, and the code that runs them.
mod build;
mod call;
mod offload;
mod ports;
mod profile;
mod report;
mod run;
mod runtime_handlers;
mod search;
mod select;
mod swap;
mod text;
mod threads;
mod visits;

pub use build::{BuildError, Options};
pub(crate) use report::Report;
pub use run::Turn;
pub use select::Interest;
use swap::PendingSwap;
pub use swap::{Breath, Rebuild, Replacement, Succession};
pub use threads::{Job, Threads};

use crate::arg::Names;
use crate::console::Listening;
use crate::notifier::NoteState;
use crate::random::Random;
use crate::task::Tasks;
use crate::timer::Timers;
use crate::{
    Class, Clock, Console, Context, Element, ElementId, Handler, HandlerCall, HandlerInfo, Note, Packet,
    PacketBurst, Pool, Task, Timer,
};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;
use core::cell::{Cell, RefCell};
use core::fmt;

use ringway_click_lang::{Graph, Landmark};

/// Tasks, timers and notifiers that a reconfigured element takes over, in the order in which they were made.
#[derive(Debug, Default)]
pub(crate) struct Reused {
    pub(crate) notes: VecDeque<Note>,
    pub(crate) tasks: VecDeque<Task>,
    pub(crate) timers: VecDeque<Timer>,
}

/// Packets that an element emitted from one of its outputs.
pub(crate) struct Emission {
    pub(crate) port: usize,
    pub(crate) burst: Box<PacketBurst>,
}

/// Packets on their way to an input.
struct Work {
    to: ElementId,
    port: usize,
    burst: Box<PacketBurst>,
}

/// A port of an element.
#[derive(Clone, Debug)]
pub(crate) struct PortInfo {
    /// Pull if true, push if false.
    pub(crate) pull: bool,
    /// Determined by its neighbours, since the class is agnostic.
    pub(crate) agnostic: bool,
    /// The other end, if there is exactly one: of push outputs and pull inputs.
    pub(crate) peer: Option<(ElementId, usize)>,
    /// The element that packets of a push output reach.
    pub(crate) next: Option<(ElementId, usize)>,
}

/// The router's data about an element.
pub(crate) struct Info {
    pub(crate) name: String,
    pub(crate) class: &'static Class,
    pub(crate) configuration: String,
    pub(crate) landmark: Landmark,
    pub(crate) inputs: Vec<PortInfo>,
    pub(crate) outputs: Vec<PortInfo>,
    /// Its declared handlers.
    pub(crate) handlers: Rc<[Handler]>,
    /// All its handlers except those of tasks.
    pub(crate) handler_infos: Vec<HandlerInfo>,
    pub(crate) tasks: Vec<Task>,
    /// The thread assigned to its tasks, if any.
    pub(crate) thread: Option<i32>,
    /// Its tasks run on another thread.
    pub(crate) tasked: bool,
    /// Whether packets are completed before they reach the element.
    completes: bool,
}

/// A running configuration.
///
/// A router and its packets belong to one thread. The caller drives it by calling [`Router::turn`] repeatedly.
#[expect(clippy::vec_box, reason = "bursts are handed on by pointer")]
pub struct Router {
    elements: Vec<Option<Box<dyn Element>>>,
    infos: Vec<Info>,
    /// The elements that packets from each element's first output reach, stored compactly.
    firsts: Vec<Option<(ElementId, usize)>>,
    graph: Graph,
    source: String,
    pub(crate) names: Rc<Names>,
    pub(crate) burst: usize,
    pub(crate) pool: Pool,
    pub(crate) clock: Clock,
    pub(crate) console: Box<dyn Console>,
    pub(crate) tasks: Tasks,
    pub(crate) timers: Timers,
    pub(crate) notes: Vec<NoteState>,
    interests: Vec<Interest>,
    /// Signals of the process that elements requested.
    pub(crate) signals: Vec<(ElementId, i32)>,
    /// Listeners to chatter.
    pub(crate) chatter_listeners: Vec<Listening>,
    pub(crate) emitted: Vec<Emission>,
    pub(crate) spare: Vec<Box<PacketBurst>>,
    work: Vec<Work>,
    /// Packets to elements that were running.
    blocked: VecDeque<Work>,
    /// Writes to elements that were running.
    deferred: VecDeque<HandlerCall>,
    /// Whether elements call handlers while they handle packets, so that those that run lend themselves.
    pub(crate) lends: Cell<bool>,
    /// Number of running elements that are lent.
    pub(crate) lent: u32,
    /// Remaining number of bursts that may be passed on in this turn; 0 during a profile, which has its own.
    budget: u32,
    /// The processor's clock, if profiles are possible.
    ticks: Option<fn() -> u64>,
    profile: Option<Box<profile::Profile>>,
    /// Packets dropped because a turn passed on too many bursts.
    looped: u64,
    /// Packets dropped because they could not be completed.
    incomplete: u64,
    runcount: i64,
    stop_element: Option<ElementId>,
    report: Rc<RefCell<Report>>,
    pub(crate) complaints: report::Complaints,
    /// Whether an element reported that the run was in vain.
    pub(crate) failed: bool,
    building: bool,
    random: Random,
    /// When the turn began, on the steady clock.
    pub(crate) turn_began: u64,
    /// Nanoseconds from 1970 to the turn's beginning, if they were queried in this turn.
    turn_wall: Option<u64>,
    rebuild: Option<Box<dyn Rebuild>>,
    /// A requested replacement that is not built yet.
    pending_swap: Option<PendingSwap>,
    /// While it is built as a replacement: lets the running router handle packets.
    breath: Option<Breath>,
    /// While it is built as a replacement: whether nobody wants it any more.
    unwanted: bool,
    /// Calls from other threads.
    visits: visits::Visits,
    /// The names of all available classes.
    classes: Vec<&'static str>,
    /// Whether one of its elements is being reconfigured.
    reconfiguring: bool,
    /// During reconfiguration: what the old element created and the new one has not requested yet.
    pub(crate) reused: Reused,
    /// During reconfiguration: the time at which tasks last ran; `None` if they can't run.
    breathed: Option<u64>,
    /// Whether its elements were notified of its end.
    ended: bool,
    /// Its replacement.
    successor: Option<Box<Router>>,
    /// Names and classes of the elements that its own will replace.
    predecessors: BTreeMap<String, &'static str>,
    /// Number of threads available to the configuration, if it may be divided.
    threads: Option<usize>,
    /// Where elements live, if not all live here.
    homes: Option<Box<threads::Homes>>,
}

impl Router {
    pub(crate) fn info(&self, id: ElementId) -> &Info {
        &self.infos[id.index()]
    }

    pub(crate) fn info_mut(&mut self, id: ElementId) -> &mut Info {
        &mut self.infos[id.index()]
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.infos.len()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.infos.is_empty()
    }

    /// All elements, in configuration order.
    pub fn ids(&self) -> impl Iterator<Item = ElementId> + use<> {
        (0..self.infos.len() as u32).map(ElementId)
    }

    /// The element of this name.
    pub fn find(&self, name: &str) -> Option<ElementId> {
        self.names.find(name, "")
    }

    /// An element's name.
    pub fn name(&self, id: ElementId) -> &str {
        &self.info(id).name
    }

    /// An element's class.
    pub fn class(&self, id: ElementId) -> &'static Class {
        self.info(id).class
    }

    /// Where an element was declared.
    pub fn landmark(&self, id: ElementId) -> &Landmark {
        &self.info(id).landmark
    }

    /// Name and class, as in messages: `c :: Counter`.
    pub fn declaration(&self, id: ElementId) -> String {
        let info = self.info(id);
        format!("{} :: {}", info.name, info.class.name)
    }

    /// Its configuration.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Whether an element has a class, or counts as that kind.
    pub fn is_kind(&self, id: ElementId, kind: &str) -> bool {
        self.info(id).class.name == kind
            || self.element(id).is_some_and(|element| element.cast(kind))
            || self.elsewhere(id).is_some_and(|thread| self.is_kind_there(thread, id, kind))
    }

    /// An element, unless it is running.
    pub(crate) fn element(&self, id: ElementId) -> Option<&dyn Element> {
        self.elements.get(id.index())?.as_deref()
    }

    #[inline]
    pub(crate) fn take(&mut self, id: ElementId) -> Option<Box<dyn Element>> {
        self.elements.get_mut(id.index())?.take()
    }

    #[inline]
    pub(crate) fn put(&mut self, id: ElementId, element: Box<dyn Element>) {
        if let Some(place) = self.elements.get_mut(id.index()) {
            *place = Some(element);
        }
    }

    /// Calls a function of an element that may emit packets; `None` if it is already running.
    pub(crate) fn enter<R>(
        &mut self,
        id: ElementId,
        run: impl FnOnce(&mut dyn Element, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let mut element = self.take(id)?;
        let profiled = self.profile.is_some();
        let before = if profiled { self.profile_enter(id, 0) } else { None };
        let mut cx = Context::new(self, id, true);
        let result = run(&mut *element, &mut cx);
        let base = cx.emissions();
        self.put(id, element);
        if profiled {
            self.profile_leave(before);
        }
        self.pass_on(id, base);
        Some(result)
    }

    /// Another element, mutable, if it is a `T` and not running.
    pub fn with<T: Element, R>(
        &mut self,
        id: ElementId,
        change: impl FnOnce(&mut T, &mut Context<'_>) -> R,
    ) -> Option<R> {
        let run = |element: &mut dyn Element, cx: &mut Context<'_>| {
            element.downcast_mut::<T>().map(|element| change(element, cx))
        };
        self.enter(id, run).flatten()
    }

    /// Prints a line for people.
    pub fn chatter(&mut self, line: fmt::Arguments<'_>) {
        let line = format!("{line}");
        self.console.chatter(&line);
        self.send_to_listeners("", &line);
    }

    /// Passes a line of chatter to the channel's listeners. Returns whether to print it too.
    pub(crate) fn send_to_listeners(&mut self, channel: &str, line: &str) -> bool {
        let mut printed = false;
        for listener in self.chatter_listeners.iter().filter(|listener| listener.channel == channel) {
            listener.lines.add(line);
            self.tasks.reschedule(listener.task);
            printed |= !listener.quiet;
        }
        printed
    }

    /// The console.
    pub fn console(&mut self) -> &mut dyn Console {
        &mut *self.console
    }

    /// The clock.
    pub fn clock(&mut self) -> &mut Clock {
        &mut self.clock
    }

    /// Nanoseconds since 1970 at the first query in this turn.
    pub(crate) fn wall_at_turn(&mut self) -> u64 {
        match self.turn_wall {
            Some(wall) => wall,
            None => *self.turn_wall.insert(self.clock.wall()),
        }
    }

    /// The generator of its elements' random numbers.
    pub(crate) fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// Seeds its random numbers.
    pub fn seed(&mut self, seed: u64) {
        self.random = Random::new(seed);
        let thread = self.thread();
        self.random.diverge(thread);
    }

    /// Seeds its random numbers so that those from a range ([`Context::random_between`]) equal Click's with
    /// GNU's C library.
    pub fn seed_like_click(&mut self, seed: u32) {
        self.random = Random::like_click(seed);
        let thread = self.thread();
        self.random.diverge(thread);
    }

    /// Whether an element reported by [`Context::fail`] that the run was in vain.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Ends its elements, which flush files and print final messages; otherwise this happens when it is dropped.
    pub fn finish_elements(&mut self) {
        self.end();
    }

    /// Gives the router, which is a copy of another one, random numbers of its own, unless the configuration has set
    /// their seed; elements draw those again that they keep.
    pub fn reseed(&mut self, seed: u64) {
        if self.random.is_set() {
            return;
        }
        self.seed(seed);
        for id in self.ids().collect::<Vec<_>>() {
            self.enter(id, |element, cx| element.reseed(cx));
        }
    }

    /// Positive while it should continue; else the driver stops, or asks the element that manages stops.
    pub fn runcount(&self) -> i64 {
        self.runcount
    }

    /// Adjusts Click's run count, within 32 bits.
    pub fn adjust_runcount(&mut self, by: i64) {
        let limit = i64::from(i32::MAX);
        self.runcount = self.runcount.saturating_add(by).clamp(-limit, limit);
    }

    /// Sets the run count.
    pub fn set_runcount(&mut self, count: i64) {
        self.runcount = count;
    }

    /// Makes an element manage stops, through its `step` handler, unless another one does. Returns whether it manages
    /// them.
    pub fn manage_stop(&mut self, id: ElementId) -> bool {
        *self.stop_element.get_or_insert(id) == id
    }

    /// The element of this name, or those in the compound of this name, searched from `context` outwards.
    pub fn elements_named(&self, name: &str, context: ElementId) -> Vec<ElementId> {
        let context = self.name(context);
        if let Some(id) = self.names.find(name, context) {
            return alloc::vec![id];
        }
        let around = context.rfind('/').map_or("", |slash| &context[..=slash]);
        let prefix = format!("{around}{name}/");
        self.ids().filter(|id| self.name(*id).starts_with(&prefix)).collect()
    }

    /// Sets the thread of tasks that an element creates from now on.
    pub fn set_thread(&mut self, id: ElementId, thread: i32) {
        self.info_mut(id).thread = Some(thread);
    }

    /// Sets the tickets of an element's tasks: their share of the time.
    pub fn set_tickets(&mut self, id: ElementId, tickets: u32) {
        for task in self.info(id).tasks.clone() {
            self.tasks.set_tickets(task, tickets);
        }
    }

    /// Packets dropped because they were in a loop.
    pub fn looped(&self) -> u64 {
        self.looped
    }

    /// Packets dropped because they had to be completed, and their offload metadata was invalid.
    pub fn incomplete(&self) -> u64 {
        self.incomplete
    }

    /// The pool of its packets.
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// A packet from the router's pool.
    pub fn packet(&self, data: &[u8]) -> Option<Packet> {
        self.pool.copy(data)
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        self.end();
    }
}
