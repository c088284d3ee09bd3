//! What `TimedUnqueue` and `Burster` share.
use ringway_click::Interval;
use ringway_click::arg::Nanoseconds;
use ringway_click::prelude::*;

/// Minimum interval, so that no configuration keeps the router busy with a timer.
const SHORTEST: u64 = 1000;

/// Pulls and pushes a burst of packets at intervals.
#[derive(Debug, Default)]
pub(super) struct TimedPull {
    burst: u32,
    interval: u64,
    task: Option<Task>,
    timer: Option<Timer>,
    signal: Signal,
    /// Whether the timer's last expiry was a pull's time.
    pulled: bool,
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
        (self.task, self.timer) = (Some(task), Some(cx.new_timer()));
        Ok(())
    }

    /// Pulls a burst, and again an interval later as long as there may be more.
    fn run_task(&mut self, _: Task, cx: &mut Context<'_>) -> bool {
        let Some(timer) = self.timer.filter(|timer| !cx.is_timer_set(*timer)) else { return false };
        let mut left = self.burst as usize;
        let mut burst = PacketBurst::new();
        while left > 0 {
            cx.lend(self, |cx| cx.pull(0, left.min(cx.burst()), &mut burst));
            if burst.is_empty() {
                break;
            }
            left = left.saturating_sub(burst.len());
            cx.lend(self, |cx| cx.push_burst(0, &mut burst));
        }
        if left == self.burst as usize && !cx.is_active(&self.signal) {
            self.pulled = false;
            return false;
        }
        if core::mem::replace(&mut self.pulled, true) {
            cx.set_timer_again(timer, self.interval);
        } else {
            cx.set_timer_after(timer, self.interval);
        }
        true
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        if let Some(task) = self.task {
            cx.reschedule(task);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("interval", |e: &Self| Interval(e.interval))
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
