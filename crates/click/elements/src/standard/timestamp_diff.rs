//! `TimestampDiff(RECORDER, OFFSET, N, MAXDELAY)`: measures the delay of numbered packets since a RecordTimestamp.
//!
//! Ports: one input; one output, and optionally a push output for packets that are unknown to the recorder.
//!
//! Arguments:
//! - `RECORDER`: the RecordTimestamp.
//! - `OFFSET`: offset of the number written by a NumberPacket; 40 by default.
//! - `N`: number of recorded delays; 65536 by default.
//! - `MAXDELAY`: the first packet with a delay of more than this many milliseconds is reported; 1000 by default.
//!
//! Handlers: `count`, `average` or `avg` (with a parameter, without this number of first delays), `min`, `max`,
//! `median`, `std_dev` or `stddev`, in microseconds over the recorded delays; `perc` (with a parameter, 0 to 100) and
//! `perc00`, `perc01`, `perc05`, `perc10`, `perc25`, `perc75`, `perc90`, `perc95`, `perc99`, `perc100`, in whole
//! microseconds; `unknown`: packets unknown to the recorder (read); `reset` (write).
use super::record_timestamp::{RecordTimestamp, number};
use crate::packet::{bounded, divert};
use alloc::collections::VecDeque;
use ringway_click::arg::Word;
use ringway_click::prelude::*;
use ringway_click::sort;

pub static CLASS: Class =
    Class::new("TimestampDiff", || Box::<TimestampDiff>::default()).ports("1/1-2").processing("a/ah");

/// Maximum number of delays stored. Attack: a configuration that exhausts memory.
const MOST: i128 = 1 << 24;

#[derive(Debug, Default)]
pub struct TimestampDiff {
    name: String,
    recorder: Option<ElementId>,
    offset: u32,
    size: u32,
    most: u32,
    reported: bool,
    /// Delays in nanoseconds, the oldest first.
    delays: VecDeque<u64>,
    unknown: u64,
}

/// Nanoseconds as microseconds, with up to three decimals.
fn micros(nanoseconds: u64) -> String {
    let text = format!("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
    text.trim_end_matches('0').trim_end_matches('.').into()
}

impl TimestampDiff {
    fn keep(&mut self, delay: u64, cx: &mut Context<'_>) {
        if self.delays.len() >= self.size as usize {
            self.delays.pop_front();
        }
        self.delays.push_back(delay);
        if delay > u64::from(self.most) * 1_000_000 && !self.reported {
            self.reported = true;
            let name = cx.declaration();
            cx.chatter(format_args!("{name}: a packet took {} ms", delay / 1_000_000));
        }
    }

    fn sorted(&self) -> Vec<u64> {
        let mut sorted: Vec<u64> = self.delays.iter().copied().collect();
        sort::by_number(&mut sorted, |delay| *delay);
        sorted
    }

    /// The given percentile of the delays.
    fn percentile(&self, percent: u64) -> u64 {
        let sorted = self.sorted();
        let at = (sorted.len().saturating_sub(1) as u64 * percent.min(100)).div_ceil(100);
        sorted.get(at as usize).copied().unwrap_or(0)
    }

    /// The average of all delays but the first `without`.
    fn average(&self, without: usize) -> u64 {
        let sum: u128 = self.delays.iter().skip(without).map(|delay| u128::from(*delay)).sum();
        (sum / (self.delays.len().saturating_sub(without).max(1) as u128)) as u64
    }

    /// The handlers of averages and percentiles.
    fn statistics() -> impl Iterator<Item = Handler> {
        let average = |name| {
            Handler::read_with(name, |e: &mut Self, without: &str, cx: &mut Context<'_>| {
                let without = if without.is_empty() { 0 } else { cx.parse::<u32>(without)? };
                Ok(micros(e.average(without as usize)))
            })
            .parameters()
        };
        let deviation = |name| Handler::read(name, |e: &Self| micros(e.deviation()));
        let percentile = |percent: u64| {
            Handler::read(format!("perc{percent:02}"), move |e: &Self| e.percentile(percent) / 1000)
        };
        let percentiles = [0, 1, 5, 10, 25, 75, 90, 95, 99, 100].map(percentile);
        ["average", "avg"]
            .map(average)
            .into_iter()
            .chain(["std_dev", "stddev"].map(deviation))
            .chain(percentiles)
    }

    fn deviation(&self) -> u64 {
        let average = self.average(0);
        let squares: u128 = self.delays.iter().map(|delay| u128::from(delay.abs_diff(average)).pow(2)).sum();
        (squares / (self.delays.len().max(1) as u128)).isqrt() as u64
    }
}

impl Element for TimestampDiff {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let mut recorder = Word::default();
        (self.offset, self.size, self.most) = (40, 65_536, 1000);
        args.read_mp("RECORDER", &mut recorder);
        args.read("OFFSET", &mut self.offset);
        args.read_with("N", ringway_click::arg::KEYWORD, &mut self.size, bounded(1, MOST));
        args.read("MAXDELAY", &mut self.most);
        self.name = recorder.0;
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let found = cx.find(&self.name).filter(|id| cx.element::<RecordTimestamp>(*id).is_some());
        self.recorder = found;
        match found {
            Some(_) => Ok(()),
            None => Err(cx.error(format!("'{}' is not a RecordTimestamp", self.name))),
        }
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let now = cx.steady();
        divert(burst, cx, |packet, cx| {
            let recorder = self.recorder.and_then(|id| cx.element::<RecordTimestamp>(id));
            match number(packet, self.offset).and_then(|number| recorder?.time(number)) {
                Some(time) => {
                    self.keep(now.saturating_sub(time), cx);
                    true
                }
                None => {
                    self.unknown += 1;
                    cx.noutputs() < 2
                }
            }
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("count", |e: &Self| e.delays.len()),
            Handler::read("min", |e: &Self| micros(e.percentile(0))),
            Handler::read("max", |e: &Self| micros(e.percentile(100))),
            Handler::read("median", |e: &Self| micros(e.percentile(50))),
            Handler::read("unknown", |e: &Self| e.unknown),
            Handler::read_with("perc", |e: &mut Self, percent, cx| {
                Ok((e.percentile(cx.parse::<u32>(percent)?.into()) / 1000).to_string())
            })
            .parameters(),
            Handler::button("reset", |e: &mut Self, _| {
                e.delays.clear();
                (e.unknown, e.reported) = (0, false);
            }),
        ]
        .into_iter()
        .chain(Self::statistics())
        .collect()
    }
}
