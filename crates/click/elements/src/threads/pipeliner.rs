//! `Pipeliner(CAPACITY, BURST, BLOCKING, DIRECT_TRAVERSAL, ACTIVE, ALWAYS_UP, NOUSELESS, VERBOSE, PREFETCH)`: moves
//! packets to the thread of the element (FastClick). Connected elements run on one thread here, so packets pass
//! immediately, unless DIRECT_TRAVERSAL is false.
//!
//! Ports: one or more push inputs, one push output.
//!
//! Arguments:
//! - `CAPACITY`: maximum number of stored packets; 1024 by default, at least 4.
//! - `BURST`: packets per run of its task; 32 by default, all if 0.
//! - `BLOCKING`: accepted, no effect: a full Pipeliner drops, since the sender runs on the same thread.
//! - `DIRECT_TRAVERSAL`: whether packets pass immediately; otherwise its task passes them on. True by default.
//! - `ACTIVE`: whether its task runs; true by default.
//! - `VERBOSE`: whether the first drops are reported; true by default.
//! - `ALWAYS_UP`, `NOUSELESS`, `PREFETCH`: accepted, no effect.
//!
//! Handlers: `count`, `dropped`, `highwater` (read): stored packets so far, dropped packets, maximum number of stored
//! packets; `active` (read, write); those of its task.
use crate::packet::bounded;
use alloc::collections::VecDeque;
use ringway_click::arg::POSITIONAL;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("Pipeliner", || Box::<Pipeliner>::default()).ports("1-/1").processing("h");

/// Maximum capacity. Attack: a configuration that exhausts memory.
const LARGEST: i128 = 1 << 24;
/// Number of drops that are reported.
const REPORTED: u64 = 10;

#[derive(Debug, Default)]
pub struct Pipeliner {
    packets: VecDeque<Packet>,
    capacity: usize,
    burst: usize,
    direct: bool,
    active: bool,
    verbose: bool,
    count: u64,
    dropped: u64,
    highwater: usize,
    task: Option<Task>,
}

impl Pipeliner {
    /// Schedules the task if packets are stored.
    fn go_on(&mut self, cx: &mut Context<'_>) {
        if let Some(task) = self.task.filter(|_| self.active && !self.packets.is_empty()) {
            cx.reschedule(task);
        }
    }
}

impl Element for Pipeliner {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut burst, mut ignored) = (32i32, false);
        (self.capacity, self.direct, self.active, self.verbose) = (1024, true, true, true);
        args.read_with("CAPACITY", POSITIONAL, &mut self.capacity, bounded(0, LARGEST));
        args.read_p("BURST", &mut burst);
        args.read_p("BLOCKING", &mut ignored);
        args.read("DIRECT_TRAVERSAL", &mut self.direct);
        args.read("ACTIVE", &mut self.active);
        args.read("VERBOSE", &mut self.verbose);
        for keyword in ["ALWAYS_UP", "NOUSELESS", "PREFETCH"] {
            args.read(keyword, &mut ignored);
        }
        args.complete()?;
        if self.capacity < 4 {
            return Err(cx.error("Pipeliner ring size must be at least 4"));
        }
        self.burst = usize::try_from(burst).ok().filter(|burst| *burst > 0).unwrap_or(usize::MAX);
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.task = Some(cx.new_task(false));
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        if self.direct {
            return;
        }
        let room = self.capacity - self.packets.len();
        let lost = burst.len().saturating_sub(room);
        self.count += (burst.len() - lost) as u64;
        self.packets.extend(burst.drain().take(room));
        self.highwater = self.highwater.max(self.packets.len());
        if lost > 0 {
            if self.verbose && self.dropped < REPORTED {
                let name = cx.declaration();
                cx.chatter(format_args!("{name}: dropped {lost} packets"));
            }
            self.dropped += lost as u64;
        }
        self.go_on(cx);
    }

    fn run_task(&mut self, _: Task, cx: &mut Context<'_>) -> bool {
        let count = self.burst.min(self.packets.len());
        for packet in self.packets.drain(..count) {
            cx.push(0, packet);
        }
        self.go_on(cx);
        count > 0
    }

    fn take_state(&mut self, from: &mut dyn Element, cx: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        self.packets = core::mem::take(&mut from.packets);
        let excess = self.packets.len().saturating_sub(self.capacity);
        self.packets.truncate(self.capacity);
        self.dropped += excess as u64;
        self.highwater = from.highwater.min(self.capacity);
        self.go_on(cx);
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::counter("count", |e: &mut Self| &mut e.count),
            Handler::counter("dropped", |e: &mut Self| &mut e.dropped),
            Handler::read("highwater", |e: &Self| e.highwater),
            Handler::field("active", |e: &mut Self| &mut e.active).checkbox().then(Self::go_on),
        ]
        .into()
    }
}
