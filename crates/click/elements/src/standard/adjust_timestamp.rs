//! `AdjustTimestamp(TIME, FIRST, ALL)`: adds a time to the timestamps of packets.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `TIME`: the time to add, in seconds unless it has a unit; may be negative.
//! - `FIRST`: if true, the first timestamp annotation is changed instead.
//! - `ALL`: if true, timestamps of 0, which packets without one have, are changed too.
//!
//! Handlers: `time` (read, write): the time that is added.
//!
//! Times before 1970 are negative: timestamps are treated as signed when they are adjusted and printed.
use ringway_click::Interval;
use ringway_click::arg::{Arg, ArgError, MANDATORY_POSITIONAL, Nanoseconds, Scope};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("AdjustTimestamp", || Box::<AdjustTimestamp>::default()).ports("1/1");

/// A duration, possibly negative.
#[derive(Clone, Copy, Debug, Default)]
struct Shift {
    back: bool,
    by: u64,
}

impl Shift {
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        let (back, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
        Ok(Self { back, by: Nanoseconds::parse(text, scope)?.0 })
    }

    fn apply(self, stamp: u64) -> u64 {
        if self.back { stamp.wrapping_sub(self.by) } else { stamp.wrapping_add(self.by) }
    }
}

#[derive(Debug, Default)]
pub struct AdjustTimestamp {
    shift: Shift,
    first: bool,
    all: bool,
}

impl Element for AdjustTimestamp {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_with("TIME", MANDATORY_POSITIONAL, &mut self.shift, Shift::parse);
        args.read("FIRST", &mut self.first);
        args.read("ALL", &mut self.all);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            let first = packet.notes().u64(Annotations::FIRST_TIMESTAMP);
            let old = if self.first { first } else { packet.timestamp() };
            if old == 0 && !self.all {
                continue;
            }
            let new = self.shift.apply(old);
            if self.first {
                packet.notes_mut().set_u64(Annotations::FIRST_TIMESTAMP, new);
            } else {
                packet.set_timestamp(new);
            }
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read("time", |e: &Self| {
            let sign = if e.shift.back { "-" } else { "" };
            format!("{sign}{}", Interval(e.shift.by))
        })
        .writes(|e: &mut Self, value, cx| {
            let wrong = |_| HandlerError::failed("expected time in seconds");
            e.shift = cx.parse_with(value, Shift::parse).map_err(wrong)?;
            Ok(())
        })]
        .into()
    }
}
