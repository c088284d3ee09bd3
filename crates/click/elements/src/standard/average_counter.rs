//! `AverageCounter(IGNORE)`: counts packets and bytes, and computes their mean rate from the first to the last.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `IGNORE`: number of seconds after the first packet during which nothing is counted; 0 by default.
//!
//! Handlers: `count`, `byte_count`, `rate`, `byte_rate` (read); `reset` (write).
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("AverageCounter", || Box::<AverageCounter>::default()).ports("1/1");

/// Minimum duration, assumed for packets that arrived together.
const AT_LEAST: u64 = SECOND / 1000;

#[derive(Debug, Default)]
pub struct AverageCounter {
    count: u64,
    bytes: u64,
    first: Option<u64>,
    last: u64,
    ignore: u64,
}

impl AverageCounter {
    /// The rate per second over the measured time, as text with up to three decimals.
    fn rate(&self, count: u64) -> String {
        let began = self.first.unwrap_or(0).saturating_add(self.ignore);
        let time = self.last.saturating_sub(began).max(AT_LEAST);
        let thousandths = u128::from(count) * 1000 * u128::from(SECOND) / u128::from(time);
        let text = format!("{}.{:03}", thousandths / 1000, thousandths % 1000);
        text.trim_end_matches('0').trim_end_matches('.').into()
    }
}

impl Element for AverageCounter {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let mut seconds = 0u32;
        args.read_p("IGNORE", &mut seconds);
        self.ignore = u64::from(seconds) * SECOND;
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let now = cx.coarse_now();
        let first = *self.first.get_or_insert(now);
        if now.saturating_sub(first) >= self.ignore {
            self.count += burst.len() as u64;
            self.bytes += burst.iter().map(|packet| packet.len() as u64).sum::<u64>();
        }
        self.last = now;
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("count", |e: &Self| e.count),
            Handler::read("byte_count", |e: &Self| e.bytes),
            Handler::read("rate", |e: &Self| e.rate(e.count)),
            Handler::read("byte_rate", |e: &Self| e.rate(e.bytes)),
            Handler::button("reset", |e: &mut Self, _| (e.count, e.bytes, e.first, e.last) = (0, 0, None, 0)),
        ]
        .into()
    }
}
