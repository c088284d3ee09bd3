//! `TimerTest(DELAY, SCHEDULE)`: prints a line when its timer expires, for tests.
//!
//! Ports: none.
//!
//! Arguments:
//! - `DELAY`: time until the first expiry; by default the timer is not set.
//! - `SCHEDULE`: sets the timer even without DELAY.
//!
//! Handlers: `scheduled` (read, write): whether the timer is set; `expiry` (read): its next or last expiry;
//! `schedule_after`, `unschedule` (write).
use ringway_click::Timestamp;
use ringway_click::arg::Nanoseconds;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("TimerTest", || Box::<TimerTest>::default());

#[derive(Debug, Default)]
pub struct TimerTest {
    delay: Option<u64>,
    timer: Option<Timer>,
}

impl Element for TimerTest {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let (mut delay, mut schedule) = (Nanoseconds::default(), false);
        args.read("DELAY", &mut delay);
        args.read("SCHEDULE", &mut schedule);
        self.delay = Some(delay.0).filter(|delay| schedule || *delay > 0);
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let timer = cx.new_timer();
        self.timer = Some(timer);
        if let Some(delay) = self.delay {
            cx.set_timer_after(timer, delay);
        }
        Ok(())
    }

    fn run_timer(&mut self, timer: Timer, cx: &mut Context<'_>) {
        let (expiry, name) = (Timestamp(cx.timer_expiry(timer)), cx.declaration());
        cx.chatter(format_args!("{expiry}: {name} fired"));
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read_with("scheduled", |e: &mut Self, _, cx| {
                Ok(e.timer.is_some_and(|timer| cx.is_timer_set(timer)).to_string())
            })
            .writes(|e: &mut Self, value, cx| {
                let scheduled: bool = cx.parse(value)?;
                e.timer.into_iter().for_each(|timer| match scheduled {
                    true => cx.set_timer(timer, cx.timer_expiry(timer)),
                    false => cx.cancel_timer(timer),
                });
                Ok(())
            })
            .error("syntax error"),
            Handler::read_with("expiry", |e: &mut Self, _, cx| {
                Ok(Timestamp(e.timer.map_or(0, |timer| cx.timer_expiry(timer))).to_string())
            }),
            Handler::write("schedule_after", |e: &mut Self, value, cx| {
                let delay: Nanoseconds = cx.parse(value)?;
                e.timer.into_iter().for_each(|timer| cx.set_timer_after(timer, delay.0));
                Ok(())
            })
            .error("syntax error"),
            Handler::button("unschedule", |e: &mut Self, cx| {
                e.timer.into_iter().for_each(|timer| cx.cancel_timer(timer));
            }),
        ]
        .into()
    }
}
