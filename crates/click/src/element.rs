//! The element trait.
use crate::arg::Args;
use crate::{Context, Handler, HandlerError, PacketBurst, Task, Timer};
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
    /// Reads the arguments. Ends with `args.complete()`; what else is wrong is reported by [`Context::error`]. No other
    /// element may be asked for anything yet.
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

    /// Its handlers, besides those every element has. Asked once, after it is configured.
    fn handlers(&self) -> Vec<Handler> {
        Vec::new()
    }

    /// Reads a handler that [`Element::handlers`] names.
    ///
    /// # Errors
    /// [`HandlerError`], usually [`HandlerError::Failed`] with a text for people.
    fn read(&mut self, name: &str, parameter: &str, cx: &mut Context<'_>) -> Result<String, HandlerError> {
        let _ = (parameter, cx);
        Err(HandlerError::missing(name))
    }

    /// Writes a handler that [`Element::handlers`] names.
    ///
    /// # Errors
    /// [`HandlerError`], usually [`HandlerError::Failed`] with a text for people.
    fn write(&mut self, name: &str, value: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let _ = (value, cx);
        Err(HandlerError::missing(name))
    }

    /// Takes over what an element of the same name learned, when a new configuration replaces one that runs.
    fn take_state(&mut self, from: &mut dyn Element, cx: &mut Context<'_>) {
        let _ = (from, cx);
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
