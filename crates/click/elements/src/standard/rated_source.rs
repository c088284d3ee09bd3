//! `RatedSource(DATA, RATE, LIMIT, ACTIVE, LENGTH, STOP, BANDWIDTH)`: generates packets at a rate.
//!
//! Ports: no inputs; one output, push or pull.
//!
//! Arguments:
//! - `DATA`: the contents of each packet.
//! - `RATE`: packets per second; 10 by default.
//! - `LIMIT`: total number of packets; negative (default) for no limit.
//! - `ACTIVE`: whether it generates packets; true by default.
//! - `LENGTH` (or `DATASIZE`): length of a packet, which DATA is repeated to fill; negative (default) for DATA once.
//! - `STOP`: whether the driver stops after LIMIT packets.
//! - `BANDWIDTH`: bytes per second, instead of RATE.
//!
//! The first burst has the packets of 10 ms, but at least two.
//!
//! Handlers: `data`, `rate`, `limit`, `active`, `length`, `stop` (read, write; `stop` read only); `count` (read);
//! `reset` (write); those of its task if the output is push.
use super::infinite_source::{DEFAULT_DATA, LARGEST};
use crate::token_bucket::TokenBucket;
use ringway_click::arg::Bandwidth;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("RatedSource", || Box::<RatedSource>::default())
    .ports("0/1")
    .flags("S1")
    .metadata(Metadata::Ignores);

#[derive(Debug, Default)]
pub struct RatedSource {
    data: Vec<u8>,
    length: i32,
    template: Vec<u8>,
    rate: u32,
    limit: i64,
    active: bool,
    stop: bool,
    count: u64,
    bucket: TokenBucket,
    task: Option<Task>,
    timer: Option<Timer>,
}

impl RatedSource {
    fn fill(&mut self) {
        let length = usize::try_from(self.length).map_or(self.data.len(), |length| length.min(LARGEST));
        self.template = self.data.iter().copied().cycle().take(length).collect();
    }

    fn set_rate(&mut self, rate: u32, least: u32) {
        let burst = if rate < 200 { 2 } else { rate / 100 };
        self.rate = rate;
        self.bucket = TokenBucket::new(rate, burst.max(least));
    }

    fn done(&self) -> bool {
        u64::try_from(self.limit).is_ok_and(|limit| self.count >= limit)
    }

    /// A packet if one is due.
    fn make(&mut self, cx: &mut Context<'_>) -> Option<Packet> {
        let now = cx.steady();
        self.bucket.refill(now);
        if !self.bucket.remove_if(1) {
            return None;
        }
        let mut packet = cx.packet(&self.template)?;
        packet.set_timestamp(cx.now());
        Some(packet)
    }

    /// Reschedules after a handler changed a parameter.
    fn changed(&mut self, cx: &mut Context<'_>) {
        self.fill();
        if let Some(task) = self.task.filter(|_| self.active && !self.done()) {
            cx.reschedule(task);
        }
    }
}

impl Element for RatedSource {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.data = DEFAULT_DATA.as_bytes().to_vec();
        (self.limit, self.length, self.active) = (-1, -1, true);
        let (mut rate, mut bandwidth) = (10u32, Bandwidth::default());
        args.read_p("DATA", &mut self.data);
        args.read_p("RATE", &mut rate);
        args.read_p("LIMIT", &mut self.limit);
        args.read_p("ACTIVE", &mut self.active);
        args.read("LENGTH", &mut self.length);
        args.read("DATASIZE", &mut self.length);
        args.read("STOP", &mut self.stop);
        args.read("BANDWIDTH", &mut bandwidth);
        args.complete()?;
        self.fill();
        let length = u32::try_from(self.template.len()).unwrap_or(u32::MAX);
        if bandwidth.0 > 0 {
            if length == 0 {
                return Err(cx.error("BANDWIDTH needs packets that are not empty"));
            }
            rate = bandwidth.0 / length;
        }
        let least =
            if bandwidth.0 > 0 { u32::try_from(self.length).unwrap_or(0).saturating_mul(2) } else { 0 };
        self.set_rate(rate, least);
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if cx.output_is_push(0) {
            self.task = Some(cx.new_task(true));
        }
        self.timer = Some(cx.new_timer());
        Ok(())
    }

    fn run_task(&mut self, task: Task, cx: &mut Context<'_>) -> bool {
        if !self.active {
            return false;
        }
        if self.done() {
            if self.stop {
                cx.stop();
            }
            return false;
        }
        if let Some(packet) = self.make(cx) {
            cx.lend(self, |cx| cx.push(0, packet));
            self.count += 1;
            cx.reschedule(task);
            return true;
        }
        if let (Some(timer), Some(wait)) = (self.timer, self.bucket.time_until(1)) {
            cx.set_timer_after(timer, wait);
        }
        false
    }

    fn run_timer(&mut self, _: Timer, cx: &mut Context<'_>) {
        if let Some(task) = self.task {
            cx.reschedule(task);
        }
    }

    fn pull(&mut self, _: usize, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        if !self.active {
            return;
        }
        if self.done() {
            if self.stop {
                cx.stop();
            }
            return;
        }
        if let Some(packet) = self.make(cx) {
            burst.push(packet);
            self.count += 1;
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        let data =
            Handler::read("data", |e: &Self| String::from_utf8_lossy(&e.data).into_owned()).raw().calm();
        let length =
            |name| Handler::field(name, |e: &mut Self| &mut e.length).calm().error("length must be integer");
        [
            data.writes(|e: &mut Self, value, _| {
                e.data = value.as_bytes().to_vec();
                Ok(())
            }),
            Handler::read("rate", |e: &Self| e.rate).calm().writes(|e: &mut Self, value, cx| {
                let rate = cx.parse(value).map_err(|_| HandlerError::failed("syntax error"))?;
                e.set_rate(rate, 0);
                let now = cx.steady();
                e.bucket.refill(now);
                e.bucket.set(1);
                Ok(())
            }),
            Handler::field("limit", |e: &mut Self| &mut e.limit).calm().error("syntax error"),
            Handler::field("active", |e: &mut Self| &mut e.active).checkbox().error("syntax error"),
            Handler::read("count", |e: &Self| e.count),
            Handler::button("reset", |e: &mut Self, _| e.count = 0),
            length("length"),
            length("datasize").deprecated(),
            Handler::read("stop", |e: &Self| e.stop).calm(),
        ]
        .map(|handler| handler.then(Self::changed))
        .into()
    }
}
