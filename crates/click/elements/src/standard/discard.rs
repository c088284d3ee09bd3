//! `Discard(BURST, ACTIVE)`: drops all packets.
//!
//! Ports: one input, push or pull; no outputs.
//!
//! Arguments:
//! - `BURST`: packets per pull if the input is pull; 1 by default.
//! - `ACTIVE`: whether it pulls; true by default.
//!
//! Handlers: `count` (read), `reset_counts` (write), `active` (read, write), those of its task if the input is pull.
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("Discard", || Box::<Discard>::default()).ports("1/0").metadata(Metadata::Ignores);

#[derive(Debug, Default)]
pub struct Discard {
    burst: usize,
    active: bool,
    count: u64,
    task: Option<Task>,
    signal: Signal,
}

impl Element for Discard {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut burst = 1u32;
        self.active = true;
        args.read("BURST", &mut burst);
        args.read("ACTIVE", &mut self.active);
        if burst == 0 {
            return Err(cx.error("BURST must be >= 1"));
        }
        self.burst = burst as usize;
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if cx.input_is_pull(0) {
            let task = cx.new_task(self.active);
            self.signal = cx.upstream_empty_signal(0, Some(task));
            self.task = Some(task);
        }
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, _: &mut Context<'_>) {
        self.count += burst.len() as u64;
        burst.clear();
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        if !self.active {
            return false;
        }
        let mut left = self.burst.max(cx.burst());
        let mut burst = PacketBurst::new();
        let wanted = left;
        while left > 0 {
            cx.lend(self, |cx| cx.pull(0, left, &mut burst));
            if burst.is_empty() {
                break;
            }
            left -= burst.len();
            self.count += burst.len() as u64;
            burst.clear();
        }
        if left < wanted || cx.is_active(&self.signal) {
            cx.reschedule(task);
        }
        left < wanted
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::counter("count", |e: &mut Self| &mut e.count),
            Handler::button("reset_counts", |e: &mut Self, _| e.count = 0),
            Handler::field("active", |e: &mut Self| &mut e.active).checkbox().error("syntax error").then(
                |e: &mut Self, cx| {
                    if let Some(task) = e.task.filter(|_| e.active) {
                        cx.reschedule(task);
                    }
                },
            ),
        ]
        .into()
    }
}
