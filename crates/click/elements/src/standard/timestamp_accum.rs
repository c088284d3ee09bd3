//! `TimestampAccum`: accumulates the time that has passed since packets' timestamps.
//!
//! Ports: one input, one output, push or pull. No arguments.
//!
//! Handlers: `count`, `time`, `average_time` (read): packets, total seconds, and seconds per packet; `reset_counts`
//! (write).
use ringway_click::Timestamp;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("TimestampAccum", || Box::<TimestampAccum>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct TimestampAccum {
    count: u64,
    time: u64,
}

impl Element for TimestampAccum {
    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.iter() {
            let passed = cx.packet_time().saturating_sub(packet.timestamp());
            self.time = self.time.saturating_add(passed);
            self.count += 1;
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("count", |e: &Self| e.count),
            Handler::read("time", |e: &Self| Timestamp(e.time)),
            Handler::read("average_time", |e: &Self| Timestamp(e.time / e.count.max(1))),
            Handler::button("reset_counts", |e: &mut Self, _| (e.count, e.time) = (0, 0)),
        ]
        .into()
    }
}
