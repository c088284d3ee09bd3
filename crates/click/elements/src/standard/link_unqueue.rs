//! `LinkUnqueue(LATENCY, BANDWIDTH)`: a link: pulls packets and pushes them on as late as a wire would.
//!
//! Ports: one pull input, one push output. Packets' timestamps become the moments they leave.
//!
//! Arguments:
//! - `LATENCY`: how long a bit is on its way.
//! - `BANDWIDTH`: bytes a second, at least 100.
//!
//! Handlers: `latency`, `bandwidth` (read, write); `size`: packets on their way (read); `reset` (write); those of its
//! task. Packets on their way arrive as before when a value is written; `reset` drops them.
use alloc::collections::VecDeque;
use ringway_click::arg::{Bandwidth, Nanoseconds};
use ringway_click::prelude::*;
use ringway_click::{BEHIND, Interval};

pub static CLASS: Class =
    Class::new("LinkUnqueue", || Box::<LinkUnqueue>::default()).ports("1/1").processing("l/h");

/// The least bandwidth, in bytes per second.
const LEAST: u32 = 100;
const TOO_SMALL: &str = "bandwidth too small, minimum 100Bps";
/// Maximum number of packets in transit. Attack: a long link of empty packets.
const MOST: usize = 1 << 20;

#[derive(Debug, Default)]
pub struct LinkUnqueue {
    latency: u64,
    bandwidth: u32,
    /// Packets in transit, with the moments of the steady clock at which they arrive.
    link: VecDeque<(u64, Packet)>,
    back_to_back: bool,
    task: Option<Task>,
    timer: Option<Timer>,
    signal: Signal,
}

impl LinkUnqueue {
    /// Continues after a change.
    fn go_on(&mut self, cx: &mut Context<'_>) {
        if let Some(task) = self.task {
            cx.reschedule(task);
        }
    }

    fn last(&self) -> Option<u64> {
        self.link.back().map(|(arrives, _)| *arrives)
    }

    /// Pulls what begins its way by `now`, which is `wall` as a time of day.
    fn take_in(&mut self, wall: u64, now: u64, cx: &mut Context<'_>) -> bool {
        let arrives = now.saturating_add(self.latency);
        let mut worked = false;
        while self.last().is_none_or(|last| last <= arrives) && self.link.len() < MOST {
            let Some(mut packet) = cx.lend(self, |cx| cx.pull_one(0)) else {
                self.back_to_back = false;
                break;
            };
            let length = packet.len() as u64 + u64::from(packet.notes().u32(Annotations::EXTRA_LENGTH));
            let last = self.last().filter(|_| self.back_to_back);
            let from = last.map_or(arrives, |last| last.max(arrives.saturating_sub(BEHIND)));
            let time = length.saturating_mul(SECOND) / u64::from(self.bandwidth);
            let when = from.saturating_add(time);
            packet.set_timestamp(wall.saturating_add(when).saturating_sub(now));
            self.link.push_back((when, packet));
            (worked, self.back_to_back) = (true, true);
        }
        worked
    }
}

impl Element for LinkUnqueue {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut latency, mut bandwidth) = (Nanoseconds::default(), Bandwidth::default());
        args.read_mp("LATENCY", &mut latency);
        args.read_mp("BANDWIDTH", &mut bandwidth);
        args.complete()?;
        if bandwidth.0 < LEAST {
            return Err(cx.error(TOO_SMALL));
        }
        (self.latency, self.bandwidth) = (latency.0, bandwidth.0);
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let task = cx.new_task(true);
        self.signal = cx.upstream_empty_signal(0, Some(task));
        (self.task, self.timer) = (Some(task), Some(cx.new_timer()));
        Ok(())
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        let (wall, now) = (cx.now(), cx.steady());
        let mut worked = self.take_in(wall, now, cx);
        while let Some((_, packet)) = self.link.pop_front_if(|(arrives, _)| *arrives <= now) {
            cx.lend(self, |cx| cx.push(0, packet));
            worked = true;
        }
        let active = cx.is_active(&self.signal);
        match (self.link.front(), self.last(), self.timer) {
            (Some((leaves, _)), Some(last), Some(timer)) => {
                let room = last.saturating_sub(self.latency);
                let next = if active { room.min(*leaves) } else { *leaves };
                if next > now { cx.set_timer(timer, next) } else { cx.reschedule(task) }
            }
            _ if active => cx.reschedule(task),
            _ => self.back_to_back = false,
        }
        worked
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        if let Some(task) = self.task {
            cx.reschedule(task);
        }
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        let Some(from) = from.downcast_mut::<Self>() else { return };
        // Packets arrive at the times that they were given.
        (self.link, self.back_to_back) = (core::mem::take(&mut from.link), from.back_to_back);
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("latency", |e: &Self| Interval(e.latency))
                .calm()
                .writes(|e: &mut Self, value, cx| {
                    e.latency = cx.parse::<Nanoseconds>(value)?.0;
                    Ok(())
                })
                .error("latency must be a timestamp")
                .then(Self::go_on),
            Handler::read("bandwidth", |e: &Self| e.bandwidth)
                .calm()
                .writes(|e: &mut Self, value, cx| {
                    let given: Bandwidth =
                        cx.parse(value).map_err(|_| HandlerError::failed("invalid bandwidth"))?;
                    if given.0 < LEAST {
                        return Err(HandlerError::failed(TOO_SMALL));
                    }
                    e.bandwidth = given.0;
                    Ok(())
                })
                .then(Self::go_on),
            Handler::read("size", |e: &Self| e.link.len()),
            Handler::button("reset", |e: &mut Self, _| e.link.clear()).then(Self::go_on),
        ]
        .into()
    }
}
