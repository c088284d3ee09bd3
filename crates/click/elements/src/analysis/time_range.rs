//! `TimeRange([SIMPLE])`: records the earliest and the latest timestamp of packets.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `SIMPLE`: timestamps never decrease; false by default.
//!
//! Handlers: `first`, `last`, `range` (both), `interval` (their difference) (read); `reset` (write).
use ringway_click::Timestamp;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("TimeRange", || Box::<TimeRange>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct TimeRange {
    range: Option<(u64, u64)>,
}

impl Element for TimeRange {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        // Both ends are always compared, at negligible cost.
        args.read("SIMPLE", &mut false);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter() {
            let time = packet.timestamp();
            let (first, last) = self.range.unwrap_or((time, time));
            self.range = Some((first.min(time), last.max(time)));
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("first", |e: &Self| Timestamp(e.range.unwrap_or_default().0)),
            Handler::read("last", |e: &Self| Timestamp(e.range.unwrap_or_default().1)),
            Handler::read("range", |e: &Self| {
                let (first, last) = e.range.unwrap_or_default();
                format!("{} {}", Timestamp(first), Timestamp(last))
            }),
            Handler::read("interval", |e: &Self| {
                let (first, last) = e.range.unwrap_or_default();
                Timestamp(last - first)
            }),
            Handler::button("reset", |e: &mut Self, _| e.range = None),
        ]
        .into()
    }
}
