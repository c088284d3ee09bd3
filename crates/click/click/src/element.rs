//! The element trait, and how to write an element.
//!
//! # A file
//! An element is a file under `crates/click/elements/src/GROUP/`, named after it (`CheckIPHeader` in
//! `check_ip_header.rs`). The file begins with its documentation in `//!`: a line with its arguments and its
//! purpose, then `Ports:`, `Arguments:`, `Handlers:`; the element reference is generated from it. Then follow
//! its [`Class`] and its type. A `mod` in the group registers it.
//!
//! # Packets
//! Packets are handled in bursts. An element overrides one of these:
//! - [`Element::action`], if it works the same pushed and pulled (Click's `simple_action`): packets left in
//!   the burst are passed on; to change or drop packets use [`PacketBurst::iter_mut`],
//!   [`PacketBurst::retain`], [`PacketBurst::filter_map`]; to send a packet elsewhere, call `cx.push(1,
//!   packet)` and remove it from the burst.
//! - [`Element::push`] and [`Element::pull`], if they differ. After `push`, packets left in the burst are
//!   sent to output 0, so a classifier drains the burst and a sink clears it. `pull` fills the given empty
//!   burst with at most `max` packets; it pulls upstream by [`Context::pull`].
//!
//! A packet is dropped by dropping its value; its memory is recycled automatically. [`Packet::clone`] shares
//! the data, and every `.._mut` method first makes a private copy of shared data. [`Context::push`] to an
//! unconnected output drops the packet (Click's `checked_output_push`).
//!
//! Emitted packets are passed on when the method returns, depth first, in the order of emission: with burst 1
//! the order of effects is Click's. In tasks, timers and handlers they are passed on when a burst is full, or
//! by [`Context::flush`]. An element is therefore never reentered: packets and handler writes that lead back
//! to it are deferred until it has returned.
//!
//! # Time, tasks, notifiers
//! Create tasks and timers with [`Context::new_task`] and [`Context::new_timer`] in `initialize`, and keep
//! the handles. A task runs once for each [`Context::reschedule`]. An element that pulls gets a
//! [`Signal`](crate::Signal) by [`Context::upstream_empty_signal`], and does not reschedule itself when it
//! got no packets and the signal is inactive; an element that holds packets creates a [`Note`](crate::Note)
//! in `configure` and calls [`Context::wake`] and [`Context::sleep`]. Times are in nanoseconds.
//! [`Context::now`] advances a simulation's clock, as in Click; [`Context::coarse_now`] is free.
//!
//! # Handlers
//! [`Element::handlers`] declares them, one line each: a handler's name with its read and write functions
//! ([`Handler`]). Counters are declared by [`Handler::counter`], so that they go on when the configuration changes.
//! Long values are read and written in steps ([`Handler::read_in_pieces`]).
//!
//! # Bounds
//! Every size that a configuration or a packet controls is bounded. Nothing panics: packets are read by
//! `get`, or by the views of `ringway_wire`. No memory is allocated per packet at run time, except when a
//! table grows.
//!
//! # Size
//! Guests contain all elements. Ordered maps and sets are [`OrderedMap`](crate::OrderedMap) and
//! [`OrderedSet`](crate::OrderedSet), and sorts are those of [`sort`](crate::sort), unless packets need a faster one:
//! the standard library's take 2 to 14 KB of code for each type.
//!
//! # Threads
//! A router and its elements stay on one thread, so elements need no locks. With several threads, each runs a
//! part of the configuration. Parts are determined by connections and by names in configurations; an element
//! that shares anything else declares it by [`Element::shares`], and one that acts on the whole router by
//! [`Class::reach`].
//!
//! # An example
//! ```text
//! //! `Strip(LENGTH)`: removes bytes from the front of packets.
//! //!
//! //! Ports: one input, one output, push or pull.
//! //!
//! //! Arguments:
//! //! - `LENGTH`: number of bytes.
//! pub static CLASS: Class = Class::new("Strip", || Box::<Strip>::default()).ports("1/1");
//!
//! impl Element for Strip {
//!     fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
//!         args.read_mp("LENGTH", &mut self.bytes);
//!         args.complete()
//!     }
//!
//!     fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
//!         burst.iter_mut().for_each(|packet| packet.pull(self.bytes));
//!     }
//!
//!     fn handlers(&self) -> Vec<Handler> {
//!         [Handler::field("length", |e: &mut Self| &mut e.bytes)].into()
//!     }
//! }
//! ```
use crate::arg::Args;
#[cfg(doc)]
use crate::{Class, Packet};
use crate::{Context, Handler, HandlerError, PacketBurst, Progress, Task, Timer};
use alloc::string::String;
use alloc::vec::Vec;
use core::any::Any;

pub use ringway_frame::packet::ANNOTATION_BYTES;

/// Identifies an element of a router: its index in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ElementId(pub(crate) u32);

impl ElementId {
    /// As an index, counted from 0 in configuration order.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An operation failed; the error has been reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

// Once, not for each of the hundreds of classes.
#[cold]
#[inline(never)]
fn no_call() -> Result<Vec<u8>, HandlerError> {
    Err(HandlerError::failed("Invalid argument"))
}

// A function of its own, so that the two that call it for each class do not both contain it.
#[inline(never)]
fn act<E: Element + ?Sized>(element: &mut E, burst: &mut PacketBurst, cx: &mut Context<'_>) {
    element.action(burst, cx);
}

/// A node of a router's graph.
pub trait Element: Any {
    /// Reads the arguments. Ends with `args.complete()`; other errors are reported by [`Context::error`].
    /// Other elements must not be accessed yet.
    ///
    /// # Errors
    /// [`Failed`] if an error was reported.
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let _ = cx;
        args.complete()
    }

    /// Creates tasks and timers, finds notifiers and checks handler names. All elements are configured by
    /// now.
    ///
    /// # Errors
    /// [`Failed`] if an error was reported.
    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let _ = cx;
        Ok(())
    }

    /// Handles packets that arrive at a push input. Packets left in `burst` are sent to output 0, after all
    /// emitted ones; without an output 0 they are dropped.
    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let _ = port;
        act(self, burst, cx);
    }

    /// Fills `burst`, which is initially empty, with up to `max` packets for a pull output.
    fn pull(&mut self, port: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let _ = port;
        cx.pull(0, max, burst);
        act(self, burst, cx);
    }

    /// Handles packets of an element with one input and one main output that works the same pushed and
    /// pulled: it changes, drops or emits elsewhere packets of `burst`; the remaining ones are passed on.
    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let _ = (burst, cx);
    }

    /// Runs a task. It is no longer scheduled; it calls [`Context::reschedule`] to run again. Returns whether
    /// it did anything useful.
    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        let _ = (task, cx);
        false
    }

    /// Called when a timer has expired.
    fn run_timer(&mut self, timer: Timer, cx: &mut Context<'_>) {
        let _ = (timer, cx);
    }

    /// Called when a requested descriptor is ready.
    fn selected(&mut self, descriptor: i32, readable: bool, writable: bool, cx: &mut Context<'_>) {
        let _ = (descriptor, readable, writable, cx);
    }

    /// Called when the process got a requested signal.
    fn signalled(&mut self, signal: i32, cx: &mut Context<'_>) {
        let _ = (signal, cx);
    }

    /// Its handlers, besides those of every element. Called once, after it is configured.
    fn handlers(&self) -> Vec<Handler> {
        Vec::new()
    }

    /// Handles a low-level remote procedure call with Click's number; numbers in the data are in native byte
    /// order.
    ///
    /// # Errors
    /// [`HandlerError`], by default for every command.
    fn llrpc(&mut self, command: u32, data: &[u8], cx: &mut Context<'_>) -> Result<Vec<u8>, HandlerError> {
        let _ = (command, data, cx);
        no_call()
    }

    /// Takes over the state of an element of the same name and class, when a new configuration replaces a running
    /// one, and that of the element itself, when its `config` handler is written: packets that it can hold, in order,
    /// and timers for them. Packets that it can't hold are counted as dropped. Counters declared by
    /// [`Handler::counter`] have been taken over already.
    fn take_state(&mut self, from: &mut dyn Element, cx: &mut Context<'_>) {
        let _ = (from, cx);
    }

    /// The resource outside the router that it shares with elements of the same value: a device, a port. One
    /// thread runs them all. Called once, after it is configured.
    fn shares(&self) -> Option<String> {
        None
    }

    /// Frees part of its memory, if dropping it at once would take long and delay packets of its replacement.
    /// Called repeatedly before it is dropped.
    fn dispose(&mut self) -> Progress {
        Progress::Done
    }

    /// Whether it also counts as an element of this kind, besides its own class: `Storage`, for example.
    fn cast(&self, kind: &str) -> bool {
        let _ = kind;
        false
    }

    /// Draws random numbers that it keeps again, such as keys and states of generators of its own: the router is a copy
    /// of another one from now on, which has the same. Numbers that follow a seed in the configuration stay.
    fn reseed(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Called at the end: flushes files, prints final messages. Also called if building the router failed
    /// later on.
    fn cleanup(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
}

impl<'e> dyn Element + 'e {
    /// The element, if it has this type.
    pub fn downcast_mut<E: Element>(&mut self) -> Option<&mut E> {
        let any: &mut dyn Any = self;
        any.downcast_mut()
    }
}
