//! The common part of `RatedUnqueue` and `BandwidthRatedUnqueue`.
use crate::shape::{BYTES_AT_LEAST, Measure};
use crate::token_bucket::TokenBucket;
use ringway_click::prelude::*;

/// Pulls and pushes at a rate.
#[derive(Debug, Default)]
pub(super) struct RatedPull {
    measure: Measure,
    rate: u32,
    bucket: TokenBucket,
    active: bool,
    task: Option<Task>,
    timer: Option<Timer>,
    signal: Signal,
    runs: u32,
    pushes: u32,
    in_vain: u32,
    empty: u32,
}

impl RatedPull {
    pub(super) fn new(measure: Measure) -> Self {
        Self { measure, active: true, ..Self::default() }
    }

    fn needed(&self) -> u32 {
        if self.measure == Measure::Bytes { BYTES_AT_LEAST } else { 1 }
    }

    /// The write handler of the rate.
    fn set_rate(&mut self, value: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let rate = self.measure.parse_rate(cx, value)?;
        let capacity = (u64::from(rate) / 50).max(1).min(u64::from(u32::MAX / 2)) as u32;
        let extra = if self.measure == Measure::Bytes { BYTES_AT_LEAST } else { 0 };
        (self.rate, self.bucket) = (rate, TokenBucket::new(rate, capacity + extra));
        cx.set_configuration(&self.measure.text(rate));
        Ok(())
    }

    fn go_on(&mut self, cx: &mut Context<'_>) {
        if let Some(task) = self.task.filter(|_| self.active) {
            cx.reschedule(task);
        }
    }
}

impl Element for RatedPull {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        (self.rate, self.bucket) = self.measure.bucket(args, cx)?;
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let task = cx.new_task(true);
        self.signal = cx.upstream_empty_signal(0, Some(task));
        (self.task, self.timer) = (Some(task), Some(cx.new_timer()));
        Ok(())
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        self.runs = self.runs.wrapping_add(1);
        if !self.active {
            return false;
        }
        let now = cx.steady();
        self.bucket.refill(now);
        if !self.bucket.contains(self.needed()) {
            self.empty = self.empty.wrapping_add(1);
            if let (Some(timer), Some(wait)) = (self.timer, self.bucket.time_until(self.needed())) {
                cx.set_timer_after(timer, wait);
            }
            return false;
        }
        let mut burst = PacketBurst::new();
        while burst.len() < cx.burst() && self.bucket.contains(self.needed()) {
            let Some(packet) = cx.lend(self, |cx| cx.pull_one(0)) else { break };
            let tokens = if self.measure == Measure::Bytes { packet.len() as u32 } else { 1 };
            self.bucket.remove(tokens);
            burst.push(packet);
        }
        let worked = !burst.is_empty();
        self.pushes = self.pushes.wrapping_add(burst.len() as u32);
        cx.lend(self, |cx| cx.push_burst(0, &mut burst));
        if !worked {
            self.in_vain = self.in_vain.wrapping_add(1);
            if !cx.is_active(&self.signal) {
                return false;
            }
            self.empty = self.empty.wrapping_add(1);
        }
        cx.reschedule(task);
        worked
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        if let Some(task) = self.task {
            cx.reschedule(task);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("calls", |e: &Self| {
                format!(
                    "{} calls to run_task()\n{} empty runs\n{} pushes\n{} failed pulls\n",
                    e.runs, e.empty, e.pushes, e.in_vain
                )
            }),
            Handler::read("rate", |e: &Self| e.measure.text(e.rate)).writes(Self::set_rate),
            Handler::field("active", |e: &mut Self| &mut e.active).checkbox().error("syntax error"),
        ]
        .map(|handler| handler.then(Self::go_on))
        .into()
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        if let Some(old) = from.downcast_mut::<Self>() {
            (self.runs, self.pushes) = (old.runs, old.pushes);
        }
    }
}
