//! `DelayUnqueue(DELAY)`: pulls packets and pushes each on DELAY after its timestamp, which becomes that moment.
//!
//! Ports: one pull input, one push output.
//!
//! Arguments:
//! - `DELAY`: a time.
//!
//! Handlers: `delay` (read, write); those of its task.
use crate::departures::Departures;
use ringway_click::Interval;
use ringway_click::arg::Nanoseconds;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("DelayUnqueue", || Box::<DelayUnqueue>::default()).ports("1/1").processing("l/h");

#[derive(Debug, Default)]
pub struct DelayUnqueue {
    delay: u64,
    departures: Departures,
    /// With the moment of the steady clock at which it leaves.
    held: Option<(u64, Packet)>,
    task: Option<Task>,
    timer: Option<Timer>,
    signal: Signal,
}

impl Element for DelayUnqueue {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let mut delay = Nanoseconds::default();
        args.read_mp("DELAY", &mut delay);
        self.delay = delay.0;
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let task = cx.new_task(true);
        self.signal = cx.upstream_empty_signal(0, Some(task));
        (self.task, self.timer) = (Some(task), Some(cx.new_timer()));
        Ok(())
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        let mut worked = false;
        loop {
            if self.held.is_none() {
                self.held = cx.lend(self, |cx| cx.pull_one(0)).map(|mut packet| {
                    let (wall, when) = self.departures.of(packet.timestamp(), self.delay, cx);
                    packet.set_timestamp(wall);
                    (when, packet)
                });
            }
            let Some((when, packet)) = self.held.take() else {
                if cx.is_active(&self.signal) {
                    cx.reschedule(task);
                }
                return worked;
            };
            if when > cx.steady() {
                self.held = Some((when, packet));
                if let Some(timer) = self.timer {
                    cx.set_timer(timer, when);
                }
                return worked;
            }
            cx.lend(self, |cx| cx.push(0, packet));
            worked = true;
        }
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        if let Some(task) = self.task {
            cx.reschedule(task);
        }
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        (self.held, self.departures) = (from.held.take(), core::mem::take(&mut from.departures));
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read("delay", |e: &Self| Interval(e.delay))
            .calm()
            .writes(|e: &mut Self, value, cx| {
                e.delay = cx.parse::<Nanoseconds>(value)?.0;
                Ok(())
            })
            .error("expected time in seconds")]
        .into()
    }
}
