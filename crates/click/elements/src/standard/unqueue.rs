//! `Unqueue(BURST, LIMIT, ACTIVE)`: pulls packets and pushes them on.
//!
//! Ports: one pull input, one push output.
//!
//! Arguments:
//! - `BURST`: packets a run of its task; 1 by default, or as many as the router handles at once; all if negative.
//! - `LIMIT`: packets in all; no limit if negative, as by default.
//! - `ACTIVE`: whether it pulls; true by default.
//!
//! Handlers: `count` (read); `burst`, `limit`, `active` (read, write); `reset`, `reset_counts` (write); those of its
//! task.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("Unqueue", || Box::<Unqueue>::default()).ports("1/1").processing("l/h");

#[derive(Debug, Default)]
pub struct Unqueue {
    burst: i32,
    limit: i32,
    active: bool,
    count: u32,
    task: Option<Task>,
    signal: Signal,
}

impl Unqueue {
    /// Continues unless the limit is reached.
    fn go_on(&mut self, cx: &mut Context<'_>) {
        let more = self.limit < 0 || i64::from(self.count) < i64::from(self.limit);
        if let Some(task) = self.task.filter(|_| self.active && more) {
            cx.reschedule(task);
        }
    }
}

impl Element for Unqueue {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        (self.burst, self.limit, self.active) = (cx.burst() as i32, -1, true);
        args.read_p("BURST", &mut self.burst);
        args.read("ACTIVE", &mut self.active);
        args.read("LIMIT", &mut self.limit);
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let task = cx.new_task(self.active);
        self.signal = cx.upstream_empty_signal(0, Some(task));
        self.task = Some(task);
        match self.burst {
            ..0 => self.burst = i32::MAX,
            0 => cx.warning("BURST size 0, no packets will be pulled"),
            _ => {}
        }
        Ok(())
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        if !self.active {
            return false;
        }
        let mut wanted = self.burst as usize;
        if let Ok(limit) = u32::try_from(self.limit) {
            wanted = wanted.min(limit.saturating_sub(self.count) as usize);
            if wanted == 0 {
                return false;
            }
        }
        let mut worked = 0;
        let mut burst = PacketBurst::new();
        while worked < wanted && self.active {
            cx.lend(self, |cx| cx.pull(0, wanted - worked, &mut burst));
            if burst.is_empty() {
                break;
            }
            worked += burst.len();
            self.count = self.count.wrapping_add(burst.len() as u32);
            cx.lend(self, |cx| cx.push_burst(0, &mut burst));
        }
        if worked == wanted || cx.is_active(&self.signal) {
            cx.reschedule(task);
        }
        worked > 0
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::field("active", |e: &mut Self| &mut e.active).checkbox(),
            Handler::read("count", |e: &Self| e.count),
            Handler::read("burst", |e: &Self| e.burst).writes(|e: &mut Self, value, cx| {
                let burst = cx.parse(value)?;
                e.burst = if burst < 0 { i32::MAX } else { burst };
                Ok(())
            }),
            Handler::field("limit", |e: &mut Self| &mut e.limit),
            Handler::button("reset", |e: &mut Self, _| e.count = 0),
            Handler::button("reset_counts", |e: &mut Self, _| e.count = 0).uncommon(),
        ]
        .map(|handler| handler.error("syntax error").then(Self::go_on))
        .into()
    }
}
