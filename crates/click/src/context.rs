//! What an element may do while it runs.
use crate::arg::{Arg, ArgError, Scope};
use crate::notifier::{Listener, NoteState};
use crate::router::Emission;
use crate::{
    Console, Element, ElementId, Failed, HandlerCall, HandlerError, Heard, Note, NoteKind, PACKETS, Packet,
    PacketBurst, Pieces, Progress, Router, Search, Signal, Task, Timer,
};
use alloc::boxed::Box;
use alloc::string::String;
use arrayvec::ArrayVec;
use core::any::Any;
use core::fmt;

/// Outputs that packets are dealt out to at once.
const OUTPUTS: usize = u64::BITS as usize - 1;

/// An element's view of its router while it runs. The element itself is not in the router meanwhile, so
/// whoever comes back to it has to wait: packets and writes until it returns, reads in vain.
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

    /// Emits a packet from an output; without such an output it is dropped.
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

    /// Emits from an output the packets that `fill` puts into an empty burst, where they stay: for sources.
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

    /// Emits each packet of a burst from the output that `output` says, which gets its place in the burst;
    /// drops it if there is none.
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
        // The outputs that packets go to, as bits; the last of them stands for none.
        let mut seen = 0u64;
        for ((number, packet), port) in burst.iter_mut().enumerate().zip(&mut ports) {
            *port = output(number, packet).map_or(OUTPUTS, |port| port.min(OUTPUTS)) as u8;
            seen |= 1 << (*port & 63);
        }
        if seen != 1 {
            self.deal(burst, &ports, seen);
        }
    }

    /// Emits packets from the outputs that `ports` says, all of which are bits of `seen`.
    fn deal(&mut self, burst: &mut PacketBurst, ports: &[u8; PACKETS], seen: u64) {
        let mut bursts: ArrayVec<(usize, Box<PacketBurst>), OUTPUTS> = ArrayVec::new();
        let mut places = [u8::MAX; OUTPUTS + 1];
        let mut left = seen & !(1 << OUTPUTS);
        while left != 0 {
            let port = left.trailing_zeros() as usize;
            places[port] = bursts.len() as u8;
            bursts.push((port, self.router.spare.pop().unwrap_or_default()));
            left &= left - 1;
        }
        for (packet, port) in burst.drain().zip(ports) {
            let place = places[usize::from(*port & 63)];
            if let Some((_, burst)) = bursts.get_mut(usize::from(place)) {
                burst.push(packet);
            }
        }
        self.router.emitted.extend(bursts.into_iter().map(|(port, burst)| Emission { port, burst }));
    }

    /// Passes on what was emitted so far, now. In [`Element::run_task`], [`Element::run_timer`], handlers
    /// and pulls; a push input's emissions are passed on when it returns, so that no element waits on
    /// another's stack.
    pub fn flush(&mut self) {
        if self.eager {
            self.router.pass_on(self.id, self.base);
        }
    }

    /// Asks upstream of a pull input for up to `max` packets, which are added to `burst` as far as they
    /// fit.
    pub fn pull(&mut self, port: usize, max: usize, burst: &mut PacketBurst) {
        self.router.pull(self.id, port, max, burst);
    }

    /// Asks upstream of a pull input for one packet.
    pub fn pull_one(&mut self, port: usize) -> Option<Packet> {
        let mut burst = self.router.spare.pop().unwrap_or_default();
        self.pull(port, 1, &mut burst);
        let packet = burst.drain().next();
        self.router.spare.push(burst);
        packet
    }

    /// How many packets the router handles at once; 1 keeps the order of effects exactly Click's.
    #[inline]
    pub fn burst(&self) -> usize {
        self.router.burst
    }

    /// A packet of these bytes with the usual headroom; nothing, counted, if it is too large.
    pub fn packet(&mut self, data: &[u8]) -> Option<Packet> {
        self.router.pool.copy(data)
    }

    /// A packet of `length` bytes, none meaningful yet, with at least that much room before and behind.
    pub fn make_packet(&mut self, headroom: usize, length: usize, tailroom: usize) -> Option<Packet> {
        self.router.pool.make(headroom, length, tailroom)
    }

    /// Adds packets such as [`Context::make_packet`] makes to a burst, one for each of `from` as far as
    /// they fit, which `write` puts into it.
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

    /// Nanoseconds that never go back; timers count in them.
    pub fn steady(&mut self) -> u64 {
        self.router.clock.steady()
    }

    /// Nanoseconds on the steady clock as of the beginning of this turn: costs nothing to read.
    #[inline]
    pub fn coarse_now(&self) -> u64 {
        self.router.turn_began
    }

    /// The time for a packet made now: with burst 1 each its own, else one for all that are made in a turn.
    #[inline]
    pub fn packet_time(&mut self) -> u64 {
        if self.router.burst == 1 { self.router.clock.wall() } else { self.router.wall_at_turn() }
    }

    /// Changes what the element's `config` handler says.
    pub fn set_configuration(&mut self, text: &str) {
        self.router.info_mut(self.id).configuration = text.into();
    }

    /// Reads a value as an argument is read: for handlers.
    ///
    /// # Errors
    /// [`ArgError`].
    pub fn parse<T: Arg>(&self, text: &str) -> Result<T, ArgError> {
        self.parse_with(text, T::parse)
    }

    /// The same with a parser of one's own.
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

    /// What names mean where the element stands.
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

    /// Name and class, as messages say them: `c :: Counter`.
    pub fn declaration(&self) -> String {
        self.router.declaration(self.id)
    }

    /// How many inputs it has.
    #[inline]
    pub fn ninputs(&self) -> usize {
        self.router.info(self.id).inputs.len()
    }

    /// How many outputs another element has.
    pub fn outputs_of(&self, id: ElementId) -> usize {
        self.router.info(id).outputs.len()
    }

    /// How many outputs it has.
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

    /// The next random number; the same after the same seed.
    pub fn random(&mut self) -> u32 {
        self.router.random().next()
    }

    /// A random number from `least` to `most`, both included; `least` if it is not less. After `RandomSeed` has been
    /// told a seed they are those that Click draws.
    pub fn random_between(&mut self, least: u32, most: u32) -> u32 {
        self.router.random().between(least, most)
    }

    /// Prints a line for people.
    pub fn chatter(&mut self, line: fmt::Arguments<'_>) {
        self.router.chatter(line);
    }

    /// Hears what is said to people from now on: `task` is scheduled when there is something. In
    /// [`Element::initialize`].
    pub fn hear_chatter(&mut self, task: Task) -> Heard {
        let heard = Heard::default();
        self.router.ears.push((task, heard.clone()));
        heard
    }

    /// The number of the process that runs the router; 0 where there are no processes.
    pub fn process(&self) -> u32 {
        self.router.console.process()
    }

    /// Writes to standard output.
    pub fn output(&mut self, bytes: &[u8]) {
        self.router.console.output(bytes);
    }

    /// Reports an error while the router is built; afterwards it is chattered.
    pub fn error(&mut self, text: impl Into<String>) -> Failed {
        self.router.report_error(text.into())
    }

    /// Says something likewise that is neither an error nor a warning.
    pub fn message(&mut self, text: impl Into<String>) {
        self.router.report_message(text.into());
    }

    /// Reports a warning likewise.
    pub fn warning(&mut self, text: impl Into<String>) {
        let declaration = self.declaration();
        self.router.report_warning(&declaration, &text.into());
    }

    /// Makes a task. In [`Element::initialize`].
    pub fn new_task(&mut self, schedule: bool) -> Task {
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

    /// Keeps a task from running until it is scheduled again.
    pub fn unschedule(&mut self, task: Task) {
        self.router.tasks.unschedule(task);
    }

    /// Whether a task is scheduled.
    pub fn is_scheduled(&self, task: Task) -> bool {
        self.router.tasks.is_scheduled(task)
    }

    /// Makes a timer. In [`Element::initialize`].
    pub fn new_timer(&mut self) -> Timer {
        self.router.timers.add(self.id)
    }

    /// Sets a timer to a moment of the steady clock.
    pub fn set_timer(&mut self, timer: Timer, at: u64) {
        self.router.timers.set(timer, at);
    }

    /// Sets a timer to expire in so many nanoseconds.
    pub fn set_timer_after(&mut self, timer: Timer, after: u64) {
        let now = self.steady();
        self.router.timers.set(timer, now.saturating_add(after));
    }

    /// Sets a timer to expire so many nanoseconds after it last expired: for what repeats.
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
        let element = self.id;
        let listeners = alloc::vec::Vec::new();
        self.router.notes.push(NoteState { kind, search, port, element, active: true, listeners });
        Note(self.router.notes.len() as u32 - 1)
    }

    /// Says that there are packets, or there is room, again: wakes who listens.
    #[inline]
    pub fn wake(&mut self, note: Note) {
        self.router.set_note(note, true);
    }

    /// Says that there is nothing.
    #[inline]
    pub fn sleep(&mut self, note: Note) {
        self.router.set_note(note, false);
    }

    /// Whether a notifier says there is something.
    pub fn note_is_active(&self, note: Note) -> bool {
        self.router.is_active(&Signal::Notes(alloc::vec![note]))
    }

    /// Whether a signal says there may be something to do.
    #[inline]
    pub fn is_active(&self, signal: &Signal) -> bool {
        self.router.is_active(signal)
    }

    /// Looks upstream of an input for who says when there are packets; they will schedule `task`. In
    /// [`Element::initialize`].
    pub fn upstream_empty_signal(&mut self, port: usize, task: Option<Task>) -> Signal {
        self.router.signal(self.id, port, NoteKind::Empty, task.map(Listener::Task))
    }

    /// The same; they will make another notifier active.
    pub fn upstream_empty_signal_for(&mut self, port: usize, note: Note) -> Signal {
        self.router.signal(self.id, port, NoteKind::Empty, Some(Listener::Note(note)))
    }

    /// Looks downstream of an output for who says when there is room; they will schedule `task`.
    pub fn downstream_full_signal(&mut self, port: usize, task: Option<Task>) -> Signal {
        self.router.signal(self.id, port, NoteKind::Full, task.map(Listener::Task))
    }

    /// The same; they will make another notifier active.
    pub fn downstream_full_signal_for(&mut self, port: usize, note: Note) -> Signal {
        self.router.signal(self.id, port, NoteKind::Full, Some(Listener::Note(note)))
    }

    /// The elements of a kind ([`Element::cast`]) that come first, downstream of an output or upstream of
    /// an input. In [`Element::initialize`].
    pub fn nearby(&self, port: usize, downstream: bool, kind: &str) -> alloc::vec::Vec<ElementId> {
        self.router.nearby(self.id, port, downstream, kind)
    }

    /// Asks to be told by [`Element::selected`] when a descriptor is ready; with neither, no longer.
    pub fn select(&mut self, descriptor: i32, readable: bool, writable: bool) {
        self.router.set_interest(self.id, descriptor, readable, writable);
    }

    /// Asks to be told by [`Element::signalled`] when the process gets a signal, or no longer.
    pub fn catch_signal(&mut self, signal: i32, catch: bool) {
        let wish = (self.id, signal);
        self.router.signals.retain(|own| *own != wish);
        if catch {
            self.router.signals.push(wish);
        }
    }

    /// Lets the router that this one is to replace handle packets, if there is one. In [`Element::configure`] and
    /// [`Element::initialize`], every some ten microseconds of what may last longer.
    pub fn breathe(&mut self) {
        self.router.breathe();
    }

    /// Files, processes and the terminal.
    pub fn console(&mut self) -> &mut dyn Console {
        &mut *self.router.console
    }

    /// While the router is built to take the place of one that runs: whether there is an element of the
    /// same name and class there. [`Element::take_state`] will be called then, so what the other holds (a
    /// socket, a file) need not be opened, and can't be yet.
    pub fn has_predecessor(&self) -> bool {
        self.router.has_predecessor(self.id)
    }

    /// Whether another configuration is about to replace this one, so that nothing should begin any more.
    pub fn is_replaced(&self) -> bool {
        self.router.is_replaced()
    }

    /// The element of this name, looked up from this one's compound outwards.
    pub fn find(&self, name: &str) -> Option<ElementId> {
        self.router.names.find(name, self.name())
    }

    /// Lets another element be looked into, if it is a `T` and not running.
    pub fn element<T: Element>(&self, id: ElementId) -> Option<&T> {
        let element: &dyn Any = self.router.element(id)?;
        element.downcast_ref()
    }

    /// Lets another element be changed, if it is a `T` and not running.
    pub fn with<T: Element, R>(
        &mut self,
        id: ElementId,
        change: impl FnOnce(&mut T, &mut Context<'_>) -> R,
    ) -> Option<R> {
        self.router.with(id, change)
    }

    /// Finds the handler of a call such as `e.count` or `stop`, and checks that it can be written (or
    /// read).
    ///
    /// # Errors
    /// [`HandlerError`], with Click's text.
    pub fn handler_call(&self, text: &str, write: bool) -> Result<HandlerCall, HandlerError> {
        let call = self.router.parse_call(text, self.name())?;
        self.router.check_call(&call, write)?;
        Ok(call)
    }

    /// Reads a handler.
    ///
    /// # Errors
    /// [`HandlerError`]; [`HandlerError::Busy`] if the element is running itself.
    pub fn read(&mut self, call: &HandlerCall) -> Result<String, HandlerError> {
        self.router.call_read(call)
    }

    /// Writes a handler. If its element is running, the write is done as soon as it has returned.
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

    /// Does the next piece of what writing a handler does.
    ///
    /// # Errors
    /// [`HandlerError`].
    pub fn write_on(&mut self, call: &HandlerCall, pieces: &mut Pieces) -> Result<Progress, HandlerError> {
        self.router.call_write_on(call, pieces)
    }

    /// Reads a handler of this element, which runs: `element` is the element itself.
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

    /// Writes a handler of this element likewise.
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

    /// Does the writes to this element that wait for it to return, for one that wants them done at once.
    pub fn do_own_writes(&mut self, element: &mut dyn Element) {
        self.router.write_deferred(self.id, element);
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
