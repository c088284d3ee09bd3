//! `TimedSink(INTERVAL)`: pulls a packet at regular intervals and drops it.
//!
//! Ports: one pull input, no outputs.
//!
//! Arguments:
//! - `INTERVAL`: time between packets; 500 ms by default.
//!
//! Handlers: `interval` (read, write); `count` (read).
use ringway_click::Interval;
use ringway_click::arg::Nanoseconds;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("TimedSink", || Box::<TimedSink>::default())
    .ports("1/0")
    .processing("l")
    .metadata(Metadata::Ignores);

#[derive(Debug, Default)]
pub struct TimedSink {
    interval: u64,
    count: u64,
}

impl Element for TimedSink {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let mut interval = Nanoseconds(500_000_000);
        args.read_p("INTERVAL", &mut interval);
        self.interval = interval.0.max(1000);
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let timer = cx.new_timer();
        cx.set_timer_after(timer, self.interval);
        Ok(())
    }

    fn run_timer(&mut self, timer: Timer, cx: &mut Context<'_>) {
        self.count += u64::from(cx.lend(self, |cx| cx.pull_one(0)).is_some());
        cx.set_timer_again(timer, self.interval);
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("interval", |e: &Self| Interval(e.interval))
                .calm()
                .writes(|e: &mut Self, value, cx| {
                    e.interval = cx.parse::<Nanoseconds>(value)?.0.max(1000);
                    Ok(())
                })
                .error("syntax error"),
            Handler::counter("count", |e: &mut Self| &mut e.count),
        ]
        .into()
    }
}
