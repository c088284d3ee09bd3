//! `SetTimestamp(TIMESTAMP)`: sets packets' timestamp.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `TIMESTAMP`: seconds since 1970; now by default.
//! - `FIRST`: sets the first timestamp annotation instead.
//! - `DELTA`: sets it to the time since the packet's timestamp.
use ringway_click::arg::Nanoseconds;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("SetTimestamp", || Box::<SetTimestamp>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct SetTimestamp {
    timestamp: Option<u64>,
    first: bool,
    delta: bool,
}

impl Element for SetTimestamp {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let mut timestamp = None::<Nanoseconds>;
        args.read_p("TIMESTAMP", &mut timestamp);
        args.read("FIRST", &mut self.first);
        args.read("DELTA", &mut self.delta);
        self.timestamp = timestamp.map(|timestamp| timestamp.0);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            let now = self.timestamp.unwrap_or_else(|| cx.packet_time());
            let old = packet.timestamp();
            let new = if self.delta { now.saturating_sub(old) } else { now };
            match self.first {
                true => packet.notes_mut().set_u64(Annotations::FIRST_TIMESTAMP, new),
                false => packet.set_timestamp(new),
            }
        }
    }
}
