//! `ReplayUnqueue(STOP, LIMIT, QUICK_CLONE)`: keeps the packets it can pull, then pushes them on again and again.
//!
//! Ports: one pull input, one push output.
//!
//! Arguments:
//! - `STOP`: after so many times the driver is asked to stop; -1, by default, for never.
//! - `LIMIT`: how many packets are kept at most; 1048576 by default.
//! - `QUICK_CLONE`: accepted and without effect: packets share their data until one is changed, in any case.
//!
//! Handlers: `count`, `loops` (read): packets kept, and how often all were sent.
use alloc::boxed::Box;
use alloc::vec::Vec;
use ringway_click::arg::Args;
use ringway_click::{Class, Context, Element, Failed, Handler, Packet, PacketBurst, Signal, Task};

pub static CLASS: Class =
    Class::new("ReplayUnqueue", || Box::<ReplayUnqueue>::default()).ports("1/1").processing("l/h");

#[derive(Debug, Default)]
pub struct ReplayUnqueue {
    stop: i32,
    limit: u32,
    kept: Vec<Packet>,
    loaded: bool,
    next: usize,
    loops: u64,
    signal: Signal,
}

impl ReplayUnqueue {
    /// Pulls and stores packets. Returns whether to continue.
    fn load(&mut self, cx: &mut Context<'_>) -> bool {
        // Attack: a source that never ends; LIMIT bounds the stored packets.
        let room = self.limit as usize - self.kept.len();
        let mut burst = PacketBurst::new();
        cx.lend(self, |cx| cx.pull(0, room.min(cx.burst()), &mut burst));
        let got = burst.len();
        self.kept.extend(burst.drain());
        let ended = got == 0 && !self.kept.is_empty();
        self.loaded = ended || self.kept.len() >= self.limit as usize;
        got > 0 || self.loaded || cx.is_active(&self.signal)
    }

    /// Emits a burst of stored packets. Returns whether to continue.
    fn replay(&mut self, cx: &mut Context<'_>) -> bool {
        let end = (self.next + cx.burst().max(1)).min(self.kept.len());
        for at in self.next..end {
            let packet = self.kept[at].clone();
            cx.lend(self, |cx| cx.push(0, packet));
        }
        self.next = end;
        if end < self.kept.len() {
            return true;
        }
        (self.next, self.loops) = (0, self.loops + 1);
        if u64::try_from(self.stop).is_ok_and(|stop| self.loops >= stop) {
            cx.flush();
            cx.stop();
            return false;
        }
        true
    }
}

impl Element for ReplayUnqueue {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut quick = false;
        (self.stop, self.limit) = (-1, 1 << 20);
        args.read_p("STOP", &mut self.stop);
        args.read("LIMIT", &mut self.limit);
        args.read("QUICK_CLONE", &mut quick);
        args.complete()?;
        if self.limit == 0 || self.stop == 0 { Err(cx.error("STOP and LIMIT must not be 0")) } else { Ok(()) }
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let task = cx.new_task(true);
        self.signal = cx.upstream_empty_signal(0, Some(task));
        Ok(())
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        if u64::try_from(self.stop).is_ok_and(|stop| self.loops >= stop) {
            return false;
        }
        let go_on = if self.loaded { self.replay(cx) } else { self.load(cx) };
        if go_on {
            cx.reschedule(task);
        }
        go_on
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read("count", |e: &Self| e.kept.len()), Handler::read("loops", |e: &Self| e.loops)].into()
    }
}
