//! The element trait, and how to write an element.
//!
//! # A file
//! An element lives in a file of its own under `crates/elements/src/GROUP/`, named after it (`CheckIPHeader` in
//! `check_ip_header.rs`). The file begins with its documentation in `//!`: a line with its arguments and what it
//! does, then `Ports:`, `Arguments:`, `Handlers:`; the element reference is made of it. Then come its facts, a
//! [`Class`], and the type. A line in the group's `CLASSES` and a `pub mod` register it; nothing else does.
//!
//! # Packets
//! Packets come as bursts. An element overrides one of these:
//! - [`Element::action`], if it works the same pushed and pulled (Click's `simple_action`): what remains in the
//!   burst goes on; to change or drop use [`PacketBurst::iter_mut`], [`PacketBurst::retain`],
//!   [`PacketBurst::filter_map`]; to send a packet elsewhere `cx.push(1, packet)` and keep it out of the burst.
//! - [`Element::push`] and [`Element::pull`], if they differ. After `push`, what remains in the burst goes out of
//!   output 0, so a classifier drains the burst and a sink clears it. `pull` fills the empty burst it is given, with
//!   `max` packets at most; it asks upstream by [`Context::pull`].
//!
//! Dropping a packet is dropping the value; its memory finds back by itself. [`Packet::clone`] shares the data, and
//! every `.._mut` method makes the data this packet's own first. [`Context::push`] to an output that is not
//! connected drops the packet (Click's `checked_output_push`).
//!
//! What is emitted is handed over when the method returns, depth first, in the order of emission: with burst 1 the
//! order of effects is Click's. In tasks, timers and handlers it is handed over at once when a burst is full, or by
//! [`Context::flush`]. So while it runs, an element is never entered a second time: packets and handler writes that
//! lead back to it wait until it has returned.
//!
//! # Time, tasks, notifiers
//! [`Context::new_task`] and [`Context::new_timer`] in `initialize`; keep the handles. A task runs once for each
//! [`Context::reschedule`]. An element that pulls gets a [`Signal`](crate::Signal) by
//! [`Context::upstream_empty_signal`], and does not reschedule itself when it got nothing and the signal is
//! inactive; who holds packets makes a [`Note`](crate::Note) in `configure` and says [`Context::wake`] and
//! [`Context::sleep`]. Times are nanoseconds. [`Context::now`] moves a simulation's clock on, as in Click;
//! [`Context::coarse_now`] is free.
//!
//! # Handlers
//! [`Element::handlers`] declares them, a line each: what reads a handler and what writes it stands beside its name
//! ([`Handler`]). Values that may be long are read and written in pieces ([`Handler::read_in_pieces`]).
//!
//! # Bounds
//! Whatever a configuration or a packet sizes is bounded. Nothing panics: packets are read by `get`, or by the views
//! of `ringway_wire`. Nothing is allocated for a packet while it runs, except where a table grows.
//!
//! # Threads
//! A router and its elements stay on one thread, so an element needs no locks. Where several threads run a
//! configuration each has a part of it. What has to be in one part is found by connections and by names in
//! configurations; an element that has something else in common with another says so by [`Element::shares`], and one
//! that acts on the whole router by [`Class::reach`].
//!
//! # An example
//! ```text
//! //! `Strip(LENGTH)`: takes bytes off the front of packets.
//! //!
//! //! Ports: one input, one output, push or pull.
//! //!
//! //! Arguments:
//! //! - `LENGTH`: how many bytes.
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

/// Which element of a router: its place in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ElementId(pub(crate) u32);

impl ElementId {
    /// As an index, counted from 0 in configuration order.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Something failed, and what it was has been reported already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// A node of a router's graph.
pub trait Element: Any {
    /// Reads the arguments. Ends with `args.complete()`; what else is wrong is reported by [`Context::error`]. No
    /// other element may be asked for anything yet.
    ///
    /// # Errors
    /// [`Failed`] if something was reported.
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let _ = cx;
        args.complete()
    }

    /// Makes tasks and timers, looks for notifiers and checks names of handlers. All elements are configured by now.
    ///
    /// # Errors
    /// [`Failed`] if something was reported.
    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let _ = cx;
        Ok(())
    }

    /// Takes packets that arrive at a push input. What it leaves in `burst` goes out of output 0, after whatever it
    /// emitted; without an output 0 it is dropped.
    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let _ = port;
        self.action(burst, cx);
    }

    /// Gives up to `max` packets that are asked for at a pull output, in `burst`, which is empty at first.
    fn pull(&mut self, port: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let _ = port;
        cx.pull(0, max, burst);
        self.action(burst, cx);
    }

    /// What an element does that has one input and one main output and works the same pushed and pulled: it changes,
    /// drops or emits elsewhere the packets of `burst`; those that remain go on.
    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let _ = (burst, cx);
    }

    /// Runs a task. It is no longer scheduled; it calls [`Context::reschedule`] to run again. Says whether it did
    /// anything useful.
    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        let _ = (task, cx);
        false
    }

    /// Takes note that a timer has expired.
    fn run_timer(&mut self, timer: Timer, cx: &mut Context<'_>) {
        let _ = (timer, cx);
    }

    /// Takes note that a descriptor it asked about is ready.
    fn selected(&mut self, descriptor: i32, readable: bool, writable: bool, cx: &mut Context<'_>) {
        let _ = (descriptor, readable, writable, cx);
    }

    /// Takes note that the process got a signal it asked about.
    fn signalled(&mut self, signal: i32, cx: &mut Context<'_>) {
        let _ = (signal, cx);
    }

    /// Its handlers, besides those every element has. Asked once, after it is configured.
    fn handlers(&self) -> Vec<Handler> {
        Vec::new()
    }

    /// Answers a low-level remote procedure call, by Click's number for it; numbers in the data are in the machine's
    /// order.
    ///
    /// # Errors
    /// [`HandlerError`], by default for every command.
    fn llrpc(&mut self, command: u32, data: &[u8], cx: &mut Context<'_>) -> Result<Vec<u8>, HandlerError> {
        let _ = (command, data, cx);
        Err(HandlerError::failed("Invalid argument"))
    }

    /// Takes over what an element of the same name learned, when a new configuration replaces one that runs.
    fn take_state(&mut self, from: &mut dyn Element, cx: &mut Context<'_>) {
        let _ = (from, cx);
    }

    /// What outside of the router it has in common with elements that answer the same: a device, a port. One thread
    /// runs them all. Asked once, after it is configured.
    fn shares(&self) -> Option<String> {
        None
    }

    /// Lets go of some of the memory that it holds, where to drop it at once would take long: packets of what runs in
    /// its place wait meanwhile. Called again and again before it is dropped.
    fn dispose(&mut self) -> Progress {
        Progress::Done
    }

    /// Whether it can stand for an element of this kind, besides its own class: `Storage`, say.
    fn cast(&self, kind: &str) -> bool {
        let _ = kind;
        false
    }

    /// Ends: flushes files, says last words. Also called if building the router failed later on.
    fn cleanup(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
}
