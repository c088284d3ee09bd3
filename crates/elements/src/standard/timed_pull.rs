//! What `TimedUnqueue` and `Burster` share.
use alloc::vec::Vec;
use ringway_click::arg::{Args, Nanoseconds};
use ringway_click::{Context, Element, Failed, Handler, PacketBurst, Signal, Task, Timer, Timestamp};

/// Minimum interval, so that no configuration keeps the router busy with a timer.
const SHORTEST: u64 = 1000;

/// Pulls and pushes a burst of packets at intervals.
#[derive(Debug, Default)]
pub(super) struct TimedPull {
    burst: u32,
    interval: u64,
    timer: Option<Timer>,
    signal: Signal,
}

impl TimedPull {
    pub(super) fn new(burst: u32) -> Self {
        Self { burst, ..Self::default() }
    }
}

impl Element for TimedPull {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut interval = Nanoseconds::default();
        args.read_mp("INTERVAL", &mut interval);
        args.read_p("BURST", &mut self.burst);
        args.complete()?;
        self.interval = interval.0.max(SHORTEST);
        if self.burst == 0 { Err(cx.error("BURST must be > 0")) } else { Ok(()) }
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let task = cx.new_task(true);
        self.signal = cx.upstream_empty_signal(0, Some(task));
        self.timer = Some(cx.new_timer());
        Ok(())
    }

    /// Packets are available again: schedules the next pull one interval after the last one.
    fn run_task(&mut self, _: Task, cx: &mut Context<'_>) -> bool {
        let Some(timer) = self.timer.filter(|timer| !cx.is_timer_set(*timer)) else { return false };
        let next = cx.timer_expiry(timer).saturating_add(self.interval);
        let now = cx.steady();
        cx.set_timer(timer, next.max(now));
        true
    }

    fn run_timer(&mut self, timer: Timer, cx: &mut Context<'_>) {
        let mut left = self.burst as usize;
        let mut burst = PacketBurst::new();
        let mut worked = false;
        while left > 0 {
            cx.pull(0, left.min(cx.burst()), &mut burst);
            if burst.is_empty() {
                break;
            }
            worked = true;
            left = left.saturating_sub(burst.len());
            cx.push_burst(0, &mut burst);
        }
        if worked || cx.is_active(&self.signal) {
            cx.set_timer_again(timer, self.interval);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("interval", |e: &Self| Timestamp(e.interval))
                .calm()
                .writes(|e: &mut Self, value, cx| {
                    e.interval = cx.parse::<Nanoseconds>(value)?.0.max(SHORTEST);
                    Ok(())
                })
                .error("syntax error"),
            Handler::read("burst", |e: &Self| e.burst)
                .calm()
                .writes(|e: &mut Self, value, cx| {
                    e.burst = cx.parse::<u32>(value)?.max(1);
                    Ok(())
                })
                .error("syntax error"),
        ]
        .into()
    }
}
