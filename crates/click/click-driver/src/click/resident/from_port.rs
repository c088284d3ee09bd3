//! FromPort of a resident function. Arguments and handlers are those of the element for a ring.
//!
//! Once its queue is empty, the function looks at it for a while, as workers poll queues: to be woken costs as much as
//! to pass on many frames.

use super::port_access::PortAccess;
use ringway_click::arg::{Args, Nanoseconds};
use ringway_click::{Class, Context, Element, Failed, Handler, PacketBurst, Task, Timer};
use ringway_elements::platform::devices;
use std::sync::atomic::Ordering::Relaxed;

pub(super) static CLASS: Class = devices::source(Class::new("FromPort", || Box::<FromPort>::default()));

#[derive(Default)]
pub(super) struct FromPort {
    access: PortAccess,
    offloads: bool,
    timestamp: bool,
    task: Option<Task>,
    timer: Option<Timer>,
    count: u64,
    bytes: u64,
    drops: u64,
}

impl FromPort {
    /// An element that names its port by a device.
    pub fn of_device() -> Self {
        Self { access: PortAccess::of_device(), ..Self::default() }
    }

    /// Takes frames off the queue; whether more wait there. Frames with invalid metadata, and those beyond the pool's
    /// limit, are counted.
    #[inline]
    fn take(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) -> bool {
        let Some(mut ends) = self.access.ends() else { return false };
        let more = ends.receive(cx.burst().min(burst.room()), cx.pool());
        if !ends.has_frames() {
            return more;
        }
        let time = if self.timestamp { cx.packet_time() } else { 0 };
        let unpacked = ends.unpack(burst, cx.pool(), time);
        drop(ends);
        self.count += burst.len() as u64;
        self.bytes += unpacked.bytes;
        self.drops += unpacked.refused;
        more
    }

    /// Ends the task until there are frames.
    fn rest(&self, task: Task, cx: &mut Context<'_>) {
        if !self.access.ends().is_some_and(|mut ends| ends.is_stocked() && ends.rest()) {
            cx.reschedule(task);
        }
    }
}

impl Element for FromPort {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.timestamp = true;
        args.read("OFFLOADS", &mut self.offloads);
        // A worker polls as long as its own `spin` says.
        args.read("SPIN", &mut Nanoseconds::default());
        args.read("TIMESTAMP", &mut self.timestamp);
        self.access.configure(args, cx)
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.task = Some(cx.new_task(false));
        let timer = cx.new_timer();
        // Deferred, since another configuration may still be running.
        cx.set_timer_after(timer, 0);
        self.timer = Some(timer);
        self.access.initialize(true, cx)?;
        // Frames may come before the first turn.
        self.access.ends().into_iter().for_each(|mut ends| ends.stock(cx.pool()));
        Ok(())
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        if let Some(ends) = self.access.ends() {
            ends.inside.offloads.store(self.offloads, Relaxed);
            ends.disarm();
        }
        self.task.into_iter().for_each(|task| cx.reschedule(task));
    }

    fn selected(&mut self, _: i32, _: bool, _: bool, cx: &mut Context<'_>) {
        self.task.into_iter().for_each(|task| cx.reschedule(task));
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        let (mut more, before) = (false, self.count);
        cx.push_with(0, |cx, burst| more = self.take(burst, cx));
        if self.count == before {
            self.rest(task, cx);
            return false;
        }
        cx.reschedule(task);
        more
    }

    fn shares(&self) -> Option<String> {
        self.access.shares()
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::counter("count", |e: &mut Self| &mut e.count),
            Handler::counter("byte_count", |e: &mut Self| &mut e.bytes),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
            Handler::read("state", |e: &Self| e.access.state()),
            Handler::read("losses", |_: &Self| 0),
            Handler::button("reset_counts", |e: &mut Self, _| (e.count, e.bytes, e.drops) = (0, 0, 0)),
        ]
        .into()
    }
}
