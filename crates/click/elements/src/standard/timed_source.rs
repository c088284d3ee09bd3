//! `TimedSource(INTERVAL, DATA, LIMIT, ACTIVE, STOP)`: makes a packet now and then.
//!
//! Ports: no inputs, one push output.
//!
//! Arguments:
//! - `INTERVAL`: time between packets; 500 ms by default.
//! - `DATA`: what stands in each packet.
//! - `LIMIT`: packets in all; no limit if negative, as by default.
//! - `ACTIVE`: whether it makes packets; true by default.
//! - `HEADROOM`: room before the data, in bytes; as usual by default.
//! - `STOP`: stops the driver after LIMIT packets.
//!
//! Handlers: `data`, `interval`, `active`, `headroom`, `limit` (read, write); `count` (read); `reset` (write).
use super::infinite_source::DEFAULT_DATA;
use ringway_click::arg::Nanoseconds;
use ringway_click::prelude::*;
use ringway_click::{HEADROOM, Interval};

pub static CLASS: Class = Class::new("TimedSource", || Box::<TimedSource>::default())
    .ports("0/1")
    .processing("h")
    .metadata(Metadata::Ignores);

/// Minimum interval; shorter ones would leave no time for other tasks.
const SHORTEST: u64 = 1000;

#[derive(Debug, Default)]
pub struct TimedSource {
    interval: u64,
    data: Vec<u8>,
    limit: i64,
    active: bool,
    stop: bool,
    headroom: u16,
    count: u64,
    timer: Option<Timer>,
}

impl TimedSource {
    /// Emits a packet at once, unless one is due.
    fn wake(&mut self, cx: &mut Context<'_>) {
        if let Some(timer) = self.timer.filter(|timer| self.active && !cx.is_timer_set(*timer)) {
            cx.set_timer_after(timer, 0);
        }
    }
}

impl Element for TimedSource {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let mut interval = Nanoseconds(500_000_000);
        self.data = DEFAULT_DATA.as_bytes().to_vec();
        (self.limit, self.active, self.headroom) = (-1, true, HEADROOM as u16);
        args.read_p("INTERVAL", &mut interval);
        args.read_p("DATA", &mut self.data);
        args.read("LIMIT", &mut self.limit);
        args.read("ACTIVE", &mut self.active);
        args.read("HEADROOM", &mut self.headroom);
        args.read("STOP", &mut self.stop);
        self.interval = interval.0.max(SHORTEST);
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let timer = cx.new_timer();
        if self.active {
            cx.set_timer_after(timer, self.interval);
        }
        self.timer = Some(timer);
        Ok(())
    }

    fn run_timer(&mut self, timer: Timer, cx: &mut Context<'_>) {
        if !self.active {
            return;
        }
        if u64::try_from(self.limit).is_ok_and(|limit| self.count >= limit) {
            if self.stop {
                cx.stop();
            }
            return;
        }
        if let Some(mut packet) = cx.make_packet(usize::from(self.headroom), self.data.len(), 0) {
            packet.data_mut().copy_from_slice(&self.data);
            packet.set_timestamp(cx.now());
            cx.lend(self, |cx| cx.push(0, packet));
            self.count += 1;
        }
        cx.set_timer_again(timer, self.interval);
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("data", |e: &Self| String::from_utf8_lossy(&e.data).into_owned())
                .raw()
                .calm()
                .writes(|e: &mut Self, value, _| {
                    e.data = value.as_bytes().to_vec();
                    Ok(())
                })
                .then(Self::wake),
            Handler::read("interval", |e: &Self| Interval(e.interval))
                .calm()
                .writes(|e: &mut Self, value, cx| {
                    e.interval = cx.parse::<Nanoseconds>(value)?.0.max(SHORTEST);
                    Ok(())
                })
                .error("syntax error")
                .then(|e: &mut Self, cx| {
                    if let Some(timer) = e.timer.filter(|timer| e.active && !cx.is_timer_set(*timer)) {
                        cx.set_timer_after(timer, e.interval);
                    }
                }),
            Handler::field("active", |e: &mut Self| &mut e.active)
                .checkbox()
                .error("syntax error")
                .then(Self::wake),
            Handler::field("limit", |e: &mut Self| &mut e.limit).then(Self::wake),
            Handler::field("headroom", |e: &mut Self| &mut e.headroom),
            Handler::read("count", |e: &Self| e.count),
            Handler::button("reset", |e: &mut Self, cx| {
                e.count = 0;
                if let Some(timer) = e.timer.filter(|_| e.active) {
                    cx.set_timer_after(timer, 0);
                }
            }),
        ]
        .into()
    }
}
