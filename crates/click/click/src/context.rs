//! The interface of the router to a running element.
use crate::arg::{Arg, ArgError, Scope};
use crate::console::Listening;
use crate::notifier::{Listener, NoteState};
use crate::router::Emission;
use crate::{
    ChatterLines, Console, Element, ElementId, Failed, HandlerCall, HandlerError, Note, NoteKind, PACKETS,
    Packet, PacketBurst, Pieces, Pool, Progress, Router, Search, Signal, Task, Timer,
};
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use core::any::Any;
use core::fmt;
use ringway_click_lang::config;

/// Attack: handlers that call each other. Largest number of nested calls that elements are lent to.
const DEEPEST: u32 = 32;

/// The channel of all chatter that names none.
const DEFAULT_CHANNEL: &str = "default";

/// Number of outputs to which packets can be distributed at once.
const OUTPUTS: usize = 63;

/// An element's view of its router while it runs. The element is taken out of the router meanwhile, so
/// packets and writes to it are deferred until it returns, and reads fail, unless it lends itself
/// ([`Context::lend`]).
pub struct Context<'a> {
    pub(crate) router: &'a mut Router,
    pub(crate) id: ElementId,
    /// Where its own emissions begin in [`Router::emitted`].
    base: usize,
    /// Emissions are passed on as soon as a burst is full, not only when the element returns.
    eager: bool,
}

impl<'a> Context<'a> {
    pub(crate) fn new(router: &'a mut Router, id: ElementId, eager: bool) -> Self {
        let base = router.emitted.len();
        Self { router, id, base, eager }
    }

    pub(crate) fn emissions(&self) -> usize {
        self.base
    }

    /// Emits a packet from an output; drops it if the output does not exist.
    #[inline]
    pub fn push(&mut self, port: usize, packet: Packet) {
        let limit = self.router.burst;
        let open = self.router.emitted[self.base..]
            .iter_mut()
            .rev()
            .find(|emission| emission.port == port && emission.burst.len() < limit);
        let full = match open {
            Some(emission) => {
                emission.burst.push(packet);
                emission.burst.len() >= limit
            }
            None => {
                let mut burst = self.router.spare.pop().unwrap_or_default();
                burst.push(packet);
                self.router.emitted.push(Emission { port, burst });
                limit == 1
            }
        };
        if full && self.eager {
            self.flush();
        }
    }

    /// Emits all packets of a burst from an output.
    pub fn push_burst(&mut self, port: usize, burst: &mut PacketBurst) {
        self.push_with(port, |_, own| own.append(burst));
        for packet in burst.drain() {
            self.push(port, packet);
        }
    }

    /// For sources: emits the packets that `fill` puts into an empty burst, in place.
    #[inline]
    pub fn push_with(&mut self, port: usize, fill: impl FnOnce(&mut Self, &mut PacketBurst)) {
        let mut burst = self.router.spare.pop().unwrap_or_default();
        fill(self, &mut burst);
        let limit = self.router.burst;
        if burst.len() > limit || self.router.emitted[self.base..].iter().any(|other| other.port == port) {
            for packet in burst.drain() {
                self.push(port, packet);
            }
        }
        if burst.is_empty() {
            self.router.spare.push(burst);
            return;
        }
        let full = burst.len() == limit;
        self.router.emitted.push(Emission { port, burst });
        if full && self.eager {
            self.flush();
        }
    }

    /// Emits each packet of a burst from the output returned by `output`, which gets the packet's index;
    /// drops it if there is no such output.
    pub fn scatter(
        &mut self,
        burst: &mut PacketBurst,
        mut output: impl FnMut(usize, &mut Packet) -> Option<usize>,
    ) {
        if self.eager || self.router.burst < PACKETS || self.noutputs() > OUTPUTS {
            for (number, mut packet) in burst.drain().enumerate() {
                if let Some(port) = output(number, &mut packet) {
                    self.push(port, packet);
                }
            }
            return;
        }
        let mut ports = [0u8; PACKETS];
        for ((number, packet), port) in burst.iter_mut().enumerate().zip(&mut ports) {
            *port = output(number, packet).map_or(OUTPUTS, |port| port.min(OUTPUTS)) as u8;
        }
        let ports = &ports[..burst.len()];
        let Some(&first) = ports.first() else { return };
        let count = |wanted: u8| ports.iter().filter(|port| **port == wanted).count();
        let others = ports.len() - count(first);
        if others == 0 && usize::from(first) < OUTPUTS {
            if first > 0 {
                let mut all = self.router.spare.pop().unwrap_or_default();
                all.append(burst);
                self.router.emitted.push(Emission { port: first.into(), burst: all });
            }
            return;
        }
        let second = ports.iter().copied().find(|port| *port != first).unwrap_or(OUTPUTS as u8);
        if 8 * others <= ports.len() && usize::from(first) != OUTPUTS {
            self.keep(burst, ports, first);
        } else if count(second) == others {
            self.divide(burst, ports, [first, second]);
        } else {
            self.deal(burst, ports);
        }
    }

    /// Emits packets from two outputs, `ends[0]` first.
    fn divide(&mut self, burst: &mut PacketBurst, ports: &[u8], ends: [u8; 2]) {
        let [mut one, mut other] = [(); 2].map(|()| self.router.spare.pop().unwrap_or_default());
        burst.divide(|number| ports.get(number) == Some(&ends[0]), &mut one, &mut other);
        for (port, mut burst) in ends.map(usize::from).into_iter().zip([one, other]) {
            if port < OUTPUTS {
                self.router.emitted.push(Emission { port, burst });
            } else {
                burst.clear();
                self.router.spare.push(burst);
            }
        }
    }

    /// Emits most packets of a burst from the output `main`, which is the first packet's, and then the others.
    fn keep(&mut self, burst: &mut PacketBurst, ports: &[u8], main: u8) {
        let first = self.router.emitted.len();
        let mut all = ports.iter().copied();
        burst.sift(
            self,
            |_, _| all.next().filter(|port| *port != main).map(usize::from),
            |cx, packet, port| {
                if port < OUTPUTS {
                    cx.push(port, packet);
                }
            },
        );
        let mut kept = self.router.spare.pop().unwrap_or_default();
        kept.append(burst);
        self.router.emitted.insert(first, Emission { port: main.into(), burst: kept });
    }

    /// Emits packets from the outputs in `ports`, the output of the first packet first, as packet by packet.
    fn deal(&mut self, burst: &mut PacketBurst, ports: &[u8]) {
        let first = self.router.emitted.len();
        let mut places = [u8::MAX; OUTPUTS];
        for (packet, port) in burst.drain().zip(ports) {
            let port = usize::from(*port);
            let Some(place) = places.get_mut(port) else { continue };
            if *place == u8::MAX {
                *place = (self.router.emitted.len() - first) as u8;
                let burst = self.router.spare.pop().unwrap_or_default();
                self.router.emitted.push(Emission { port, burst });
            }
            if let Some(emission) = self.router.emitted.get_mut(first + usize::from(*place)) {
                emission.burst.push(packet);
            }
        }
    }

    /// Passes emitted packets on immediately. In [`Element::run_task`], [`Element::run_timer`], handlers and
    /// pulls; a push input's packets are passed on when it returns, so that elements don't nest on the stack.
    pub fn flush(&mut self) {
        if self.eager {
            self.router.pass_on(self.id, self.base);
        }
    }

    /// Pulls up to `max` packets from upstream of a pull input and appends them to `burst`, as far as they
    /// fit.
    pub fn pull(&mut self, port: usize, max: usize, burst: &mut PacketBurst) {
        self.router.pull(self.id, port, max, burst);
    }

    /// Pulls one packet from upstream of a pull input.
    pub fn pull_one(&mut self, port: usize) -> Option<Packet> {
        let mut burst = self.router.spare.pop().unwrap_or_default();
        self.pull(port, 1, &mut burst);
        let packet = burst.drain().next();
        self.router.spare.push(burst);
        packet
    }

    /// Number of packets that the router handles at once; 1 keeps the order of effects exactly Click's.
    #[inline]
    pub fn burst(&self) -> usize {
        self.router.burst
    }

    /// The pool of the router's packets.
    #[inline]
    pub fn pool(&self) -> &Pool {
        &self.router.pool
    }

    /// A packet of these bytes with the usual headroom; `None`, with a count, if it is too large.
    pub fn packet(&mut self, data: &[u8]) -> Option<Packet> {
        self.router.pool.copy(data)
    }

    /// A packet of `length` uninitialized bytes, with at least this headroom and tailroom.
    pub fn make_packet(&mut self, headroom: usize, length: usize, tailroom: usize) -> Option<Packet> {
        self.router.pool.make(headroom, length, tailroom)
    }

    /// Appends packets like [`Context::make_packet`]'s to a burst, one for each of `from` as far as they fit;
    /// `write` fills them.
    #[inline]
    pub fn make_packets<T>(
        &mut self,
        burst: &mut PacketBurst,
        from: &[T],
        headroom: usize,
        length: usize,
        write: impl FnMut(&T, &mut [u8]),
    ) {
        self.router.pool.fill(burst, from, headroom, length, write);
    }

    /// Nanoseconds since 1970.
    pub fn now(&mut self) -> u64 {
        self.router.clock.wall()
    }

    /// Monotonic time in nanoseconds, used by timers.
    pub fn steady(&mut self) -> u64 {
        self.router.clock.steady()
    }

    /// Nanoseconds on the steady clock as of the beginning of this turn: costs nothing to read.
    #[inline]
    pub fn coarse_now(&self) -> u64 {
        self.router.turn_began
    }

    /// The timestamp for a new packet: with burst 1 one per packet, else one per turn.
    #[inline]
    pub fn packet_time(&mut self) -> u64 {
        if self.router.burst == 1 { self.router.clock.wall() } else { self.router.wall_at_turn() }
    }

    /// Changes the value of the element's `config` handler.
    pub fn set_configuration(&mut self, text: &str) {
        self.router.info_mut(self.id).configuration = text.into();
    }

    /// Changes one argument in the value of the element's `config` handler: that with the keyword, which may be empty,
    /// otherwise that at `position`, otherwise it is added.
    pub(crate) fn set_argument(&mut self, position: Option<usize>, keyword: &str, value: &str) {
        let is_keyword =
            |argument: &str| config::parse_keyword(argument).is_some_and(|(_, rest)| !rest.is_empty());
        let is_this = |argument: &str| config::parse_keyword(argument).is_some_and(|(own, _)| own == keyword);
        let configuration = &mut self.router.info_mut(self.id).configuration;
        let mut arguments = config::split_arguments(configuration);
        let count = arguments.len();
        arguments.retain(|argument| !(is_keyword(argument) && is_this(argument)));
        let place = position.filter(|_| arguments.len() == count).and_then(|at| arguments.get_mut(at));
        match place.filter(|argument| keyword.is_empty() || !is_keyword(argument)) {
            Some(argument) => *argument = value.to_string(),
            None => arguments.push(alloc::format!("{keyword} {value}")),
        }
        *configuration = config::join_arguments(&arguments);
    }

    /// Parses a value as an argument is parsed, for handlers.
    ///
    /// # Errors
    /// [`ArgError`].
    // Not in each of the functions that need it, of which there are hundreds.
    #[inline(never)]
    pub fn parse<T: Arg>(&self, text: &str) -> Result<T, ArgError> {
        self.parse_with(text, T::parse)
    }

    /// [`Context::parse`] with a custom parser.
    ///
    /// # Errors
    /// [`ArgError`].
    pub fn parse_with<T>(
        &self,
        text: &str,
        parse: impl FnOnce(&str, &Scope) -> Result<T, ArgError>,
    ) -> Result<T, ArgError> {
        parse(text.trim_ascii(), &self.scope())
    }

    /// The names visible to the element.
    pub fn scope(&self) -> Scope {
        Scope::new(self.router.names.clone(), self.name())
    }

    /// The element itself.
    pub fn id(&self) -> ElementId {
        self.id
    }

    /// The element's name.
    pub fn name(&self) -> &str {
        self.router.name(self.id)
    }

    /// Name and class, as in messages: `c :: Counter`.
    pub fn declaration(&self) -> String {
        self.router.declaration(self.id)
    }

    /// Number of its inputs.
    #[inline]
    pub fn ninputs(&self) -> usize {
        self.router.info(self.id).inputs.len()
    }

    /// Number of another element's outputs.
    pub fn outputs_of(&self, id: ElementId) -> usize {
        self.router.info(id).outputs.len()
    }

    /// Number of its outputs.
    #[inline]
    pub fn noutputs(&self) -> usize {
        self.router.info(self.id).outputs.len()
    }

    /// Whether an input is pull.
    pub fn input_is_pull(&self, port: usize) -> bool {
        self.router.info(self.id).inputs.get(port).is_some_and(|port| port.pull)
    }

    /// Whether an output is push.
    pub fn output_is_push(&self, port: usize) -> bool {
        self.router.info(self.id).outputs.get(port).is_some_and(|port| !port.pull)
    }

    /// The next random number, determined by the seed.
    pub fn random(&mut self) -> u32 {
        self.router.random().next()
    }

    /// A random number from `least` to `most`, inclusive; `least` if `most` is smaller. After `RandomSeed` it
    /// is the same as Click's.
    pub fn random_between(&mut self, least: u32, most: u32) -> u32 {
        self.router.random().between(least, most)
    }

    /// A seed for random numbers of the element's own, which others can't draw: of the router's next random numbers and
    /// the element's name.
    pub fn own_seed(&mut self) -> u64 {
        let drawn = u64::from(self.random()) << 32 | u64::from(self.random());
        drawn ^ ringway_frame::fnv1a(self.name().bytes())
    }

    /// Prints a line for people.
    pub fn chatter(&mut self, line: fmt::Arguments<'_>) {
        self.router.chatter(line);
    }

    /// Prints a line to the listeners of a channel; chatter, if the channel is `default` or has no name.
    pub fn chatter_on(&mut self, channel: &str, line: fmt::Arguments<'_>) {
        if matches!(channel, "" | DEFAULT_CHANNEL) {
            return self.router.chatter(line);
        }
        let line = format!("{line}");
        if self.router.send_to_listeners(channel, &line) {
            self.router.console.chatter(&line);
        }
    }

    /// Subscribes to a channel's chatter, which is also printed if it is not `quiet`: `task` is scheduled when
    /// there is any. In [`Element::initialize`].
    pub fn listen_to_chatter(&mut self, task: Task, channel: &str, quiet: bool) -> ChatterLines {
        let channel = if channel == DEFAULT_CHANNEL { String::new() } else { channel.into() };
        let lines = ChatterLines::default();
        self.router.chatter_listeners.push(Listening { channel, quiet, task, lines: lines.clone() });
        lines
    }

    /// Id of the process that runs the router; 0 if there are no processes.
    pub fn process(&self) -> u32 {
        self.router.console.process()
    }

    /// Writes to standard output.
    pub fn output(&mut self, bytes: &[u8]) {
        self.router.console.output(bytes);
    }

    /// Reports an error while the router is built; later, prints it as chatter.
    #[cold]
    #[inline(never)]
    pub fn error(&mut self, text: impl Into<String>) -> Failed {
        self.router.report_error(text.into())
    }

    /// Prints a message that is neither an error nor a warning, in the same way.
    #[cold]
    #[inline(never)]
    pub fn message(&mut self, text: impl Into<String>) {
        self.router.report_message(text.into());
    }

    /// Reports a warning in the same way.
    #[cold]
    #[inline(never)]
    pub fn warning(&mut self, text: impl Into<String>) {
        let declaration = self.declaration();
        self.router.report_warning(&declaration, &text.into());
    }

    /// Prints why the run was in vain; the program then ends with an error status.
    pub fn fail(&mut self, reason: fmt::Arguments<'_>) {
        let declaration = self.declaration();
        self.chatter(format_args!("{declaration}: {reason}"));
        self.router.failed = true;
    }

    /// Makes a task. In [`Element::initialize`].
    pub fn new_task(&mut self, schedule: bool) -> Task {
        if let Some(task) = self.router.reused.tasks.pop_front() {
            if schedule {
                self.reschedule(task);
            }
            return task;
        }
        let task = self.router.tasks.add(self.id, self.router.info(self.id).thread.unwrap_or(0));
        self.router.info_mut(self.id).tasks.push(task);
        if schedule {
            self.router.tasks.reschedule(task);
        }
        task
    }

    /// Schedules a task, if it is not scheduled.
    #[inline]
    pub fn reschedule(&mut self, task: Task) {
        self.router.tasks.reschedule(task);
    }

    /// Unschedules a task.
    pub fn unschedule(&mut self, task: Task) {
        self.router.tasks.unschedule(task);
    }

    /// Whether a task is scheduled.
    pub fn is_scheduled(&self, task: Task) -> bool {
        self.router.tasks.is_scheduled(task)
    }

    /// Makes a timer. In [`Element::initialize`].
    pub fn new_timer(&mut self) -> Timer {
        if let Some(timer) = self.router.reused.timers.pop_front() {
            return timer;
        }
        self.router.timers.add(self.id)
    }

    /// Sets a timer to a moment of the steady clock.
    pub fn set_timer(&mut self, timer: Timer, at: u64) {
        self.router.timers.set(timer, at);
    }

    /// Sets a timer to expire after this many nanoseconds.
    pub fn set_timer_after(&mut self, timer: Timer, after: u64) {
        let now = self.steady();
        self.router.timers.set(timer, now.saturating_add(after));
    }

    /// Sets a timer to expire this many nanoseconds after its last expiry, for periodic timers. What was missed is made
    /// up for at most [`BEHIND`](crate::BEHIND).
    pub fn set_timer_again(&mut self, timer: Timer, after: u64) {
        let last = self.router.timers.expiry(timer);
        self.router.timers.set(timer, last.saturating_add(after));
    }

    /// Unsets a timer.
    pub fn cancel_timer(&mut self, timer: Timer) {
        self.router.timers.cancel(timer);
    }

    /// Whether a timer is set.
    pub fn is_timer_set(&self, timer: Timer) -> bool {
        self.router.timers.is_set(timer)
    }

    /// When a timer expires, or last expired, on the steady clock.
    pub fn timer_expiry(&self, timer: Timer) -> u64 {
        self.router.timers.expiry(timer)
    }

    /// Makes a notifier, active at first, for all ports of its side. In [`Element::configure`].
    pub fn new_note(&mut self, kind: NoteKind, search: Search) -> Note {
        self.new_note_at(kind, search, None)
    }

    /// Makes a notifier for one port: an output for [`NoteKind::Empty`], an input for [`NoteKind::Full`].
    pub fn new_note_at(&mut self, kind: NoteKind, search: Search, port: Option<usize>) -> Note {
        if let Some(note) = self.router.reused.notes.pop_front() {
            self.wake(note);
            return note;
        }
        let element = self.id;
        let listeners = alloc::vec::Vec::new();
        self.router.notes.push(NoteState { kind, search, port, element, active: true, listeners });
        Note(self.router.notes.len() as u32 - 1)
    }

    /// Signals that packets, or room, are available again: wakes listeners.
    #[inline]
    pub fn wake(&mut self, note: Note) {
        self.router.set_note(note, true);
    }

    /// Signals that nothing is available.
    #[inline]
    pub fn sleep(&mut self, note: Note) {
        self.router.set_note(note, false);
    }

    /// Whether a notifier is active.
    pub fn note_is_active(&self, note: Note) -> bool {
        self.router.is_active(&Signal::Notes(alloc::vec![note]))
    }

    /// Whether a signal is active: there may be work.
    #[inline]
    pub fn is_active(&self, signal: &Signal) -> bool {
        self.router.is_active(signal)
    }

    /// Finds the notifiers upstream of an input that signal available packets; they will schedule `task`. In
    /// [`Element::initialize`].
    pub fn upstream_empty_signal(&mut self, port: usize, task: Option<Task>) -> Signal {
        self.router.signal(self.id, port, NoteKind::Empty, task.map(Listener::Task))
    }

    /// [`Context::upstream_empty_signal`], activating another notifier instead of scheduling a task.
    pub fn upstream_empty_signal_for(&mut self, port: usize, note: Note) -> Signal {
        self.router.signal(self.id, port, NoteKind::Empty, Some(Listener::Note(note)))
    }

    /// Finds the notifiers downstream of an output that signal available room; they will schedule `task`.
    pub fn downstream_full_signal(&mut self, port: usize, task: Option<Task>) -> Signal {
        self.router.signal(self.id, port, NoteKind::Full, task.map(Listener::Task))
    }

    /// Finds the notifiers downstream of an output that signal available room; they will activate the notifier `note`.
    pub fn downstream_full_signal_for(&mut self, port: usize, note: Note) -> Signal {
        self.router.signal(self.id, port, NoteKind::Full, Some(Listener::Note(note)))
    }

    /// The nearest elements of a kind ([`Element::cast`]), downstream of an output or upstream of an input.
    /// In [`Element::initialize`].
    pub fn nearby(&self, port: usize, downstream: bool, kind: &str) -> alloc::vec::Vec<ElementId> {
        self.router.nearby(self.id, port, downstream, kind)
    }

    /// Requests [`Element::selected`] when a descriptor is ready; with neither flag, cancels it.
    pub fn select(&mut self, descriptor: i32, readable: bool, writable: bool) {
        self.router.set_interest(self.id, descriptor, readable, writable);
    }

    /// Requests [`Element::signalled`] when the process gets a signal, or cancels it.
    pub fn catch_signal(&mut self, signal: i32, catch: bool) {
        let entry = (self.id, signal);
        self.router.signals.retain(|own| *own != entry);
        if catch {
            self.router.signals.push(entry);
        }
    }

    /// Lets the router to be replaced, if any, handle packets. Call it in [`Element::configure`] and
    /// [`Element::initialize`], every ten microseconds or so of long operations.
    pub fn breathe(&mut self) {
        self.router.breathe();
    }

    /// Files, processes and the terminal.
    pub fn console(&mut self) -> &mut dyn Console {
        &mut *self.router.console
    }

    /// While the router is built as a replacement: whether the running one has an element of the same name
    /// and class. [`Element::take_state`] will then be called, so resources of the other (a socket, a file)
    /// need not be opened, and can't be opened yet.
    pub fn has_predecessor(&self) -> bool {
        self.router.has_predecessor(self.id)
    }

    /// Whether another configuration was requested that has not replaced this one yet.
    pub fn is_being_replaced(&self) -> bool {
        self.router.is_being_replaced()
    }

    /// Whether another configuration is about to replace this one, so that nothing should begin any more.
    pub fn is_replaced(&self) -> bool {
        self.router.is_replaced()
    }

    /// The element of this name, searched from this one's compound outwards.
    pub fn find(&self, name: &str) -> Option<ElementId> {
        self.router.names.find(name, self.name())
    }

    /// Another element, if it is a `T` and not running.
    pub fn element<T: Element>(&self, id: ElementId) -> Option<&T> {
        let element: &dyn Any = self.router.element(id)?;
        element.downcast_ref()
    }

    /// Another element, mutable, if it is a `T` and not running.
    pub fn with<T: Element, R>(
        &mut self,
        id: ElementId,
        change: impl FnOnce(&mut T, &mut Context<'_>) -> R,
    ) -> Option<R> {
        self.router.with(id, change)
    }

    /// Parses a call such as `e.count` or `stop`.
    ///
    /// # Errors
    /// [`HandlerError::NoElement`].
    pub fn parse_call(&self, text: &str) -> Result<HandlerCall, HandlerError> {
        self.router.parse_call(text, self.name())
    }

    /// Finds the handler of a call such as `e.count` or `stop`, and checks that it is writable (or readable).
    ///
    /// # Errors
    /// [`HandlerError`], with Click's text.
    pub fn handler_call(&self, text: &str, write: bool) -> Result<HandlerCall, HandlerError> {
        let call = self.parse_call(text)?;
        self.router.check_call(&call, write)?;
        if call.element.is_some() && self.ninputs() + self.noutputs() > 0 {
            self.router.lends.set(true);
        }
        Ok(call)
    }

    /// Calls a function; a heading is printed before its first error.
    pub fn under<R>(&mut self, heading: String, call: impl FnOnce(&mut Context<'_>) -> R) -> R {
        let (id, eager) = (self.id, self.eager);
        self.router.under(heading, |router| call(&mut Context::new(router, id, eager)))
    }

    /// Prints an error of a handler call under the headings of the calls in progress.
    pub fn complain(&mut self, text: &str) {
        self.router.complain(text);
    }

    /// Number of errors printed by [`Context::complain`].
    pub fn complaints(&self) -> u64 {
        self.router.complaints.count
    }

    /// Reports that a handler call can't work, and which name is meant.
    pub fn call_error(&mut self, error: &HandlerError) -> Failed {
        let hint = self.router.proposal(error, self.id);
        let failed = self.error(error.to_string());
        self.router.hint(hint);
        failed
    }

    /// Reads a handler.
    ///
    /// # Errors
    /// [`HandlerError`]; [`HandlerError::Busy`] if the element is running itself.
    pub fn read(&mut self, call: &HandlerCall) -> Result<String, HandlerError> {
        self.router.call_read(call)
    }

    /// Writes a handler. If its element is running, the write is deferred until it returns.
    ///
    /// # Errors
    /// [`HandlerError`].
    pub fn write(&mut self, call: &HandlerCall) -> Result<(), HandlerError> {
        self.router.call_write(call)
    }

    /// Reads the next piece of a handler.
    ///
    /// # Errors
    /// [`HandlerError`]; [`HandlerError::Busy`] if the element is running itself.
    pub fn read_on(&mut self, call: &HandlerCall, pieces: &mut Pieces) -> Result<Progress, HandlerError> {
        self.router.call_read_on(call, pieces)
    }

    /// Performs the next step of writing a handler.
    ///
    /// # Errors
    /// [`HandlerError`].
    pub fn write_on(&mut self, call: &HandlerCall, pieces: &mut Pieces) -> Result<Progress, HandlerError> {
        self.router.call_write_on(call, pieces)
    }

    /// Reads a handler of this element while it runs: `element` is the element itself.
    ///
    /// # Errors
    /// [`HandlerError`].
    pub fn read_own(
        &mut self,
        element: &mut dyn Element,
        name: &str,
        parameters: &str,
    ) -> Result<String, HandlerError> {
        self.router.call_own(self.id, element, (name, parameters, false))
    }

    /// Writes a handler of this element while it runs: `element` is the element itself.
    ///
    /// # Errors
    /// [`HandlerError`].
    pub fn write_own(
        &mut self,
        element: &mut dyn Element,
        name: &str,
        value: &str,
    ) -> Result<(), HandlerError> {
        self.router.call_own(self.id, element, (name, value, true)).map(drop)
    }

    /// Calls a function in which the running element, `own`, can be read, written and given packets. Costs nothing
    /// unless elements call handlers while they handle packets.
    pub fn lend<E: Element + Default, R>(&mut self, own: &mut E, call: impl FnOnce(&mut Self) -> R) -> R {
        if self.router.lends.get() { self.lend_to_call(own, call) } else { call(self) }
    }

    /// Calls a function that calls handlers; in it the running element, `own`, can be read, written and given packets.
    pub fn lend_to_call<E: Element + Default, R>(
        &mut self,
        own: &mut E,
        call: impl FnOnce(&mut Self) -> R,
    ) -> R {
        if self.router.lent >= DEEPEST || self.router.element(self.id).is_some() {
            return call(self);
        }
        self.router.lent += 1;
        self.router.put(self.id, Box::new(core::mem::take(own)));
        let result = call(self);
        let back = self.router.take(self.id).and_then(|back| (back as Box<dyn Any>).downcast().ok());
        if let Some(back) = back {
            *own = *back;
        }
        self.router.lent -= 1;
        result
    }

    /// Writes a handler, which may use the running element, `own`, meanwhile; prints its error.
    pub fn write_lending<E: Element + Default>(&mut self, own: &mut E, call: &HandlerCall) {
        if let Err(error) = self.lend_to_call(own, |cx| cx.write(call)) {
            self.chatter(format_args!("{error}"));
        }
    }

    /// Asks the driver to stop, as the router's `stop` handler does.
    pub fn stop(&mut self) {
        self.router.adjust_runcount(-1);
    }

    /// The router, for elements that manage it.
    pub fn router(&mut self) -> &mut Router {
        self.router
    }
}
