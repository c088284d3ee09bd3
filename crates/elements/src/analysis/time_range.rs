//! `TimeRange([SIMPLE])`: notes the earliest and the latest timestamp of the packets that pass.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `SIMPLE`: timestamps only grow; false by default.
//!
//! Handlers: `first`, `last`, `range` (both), `interval` (their difference) (read); `reset` (write).
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use ringway_click::arg::Args;
use ringway_click::{Class, Context, Element, Failed, Handler, HandlerError, PacketBurst, Timestamp};

/// Facts.
pub static CLASS: Class = Class::new("TimeRange", || Box::<TimeRange>::default()).ports("1/1");

/// See the module.
#[derive(Debug, Default)]
pub struct TimeRange {
    range: Option<(u64, u64)>,
}

impl Element for TimeRange {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        // Both ends are compared in any case, which costs next to nothing.
        args.read("SIMPLE", &mut false);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter() {
            let time = packet.notes().timestamp;
            let (first, last) = self.range.unwrap_or((time, time));
            self.range = Some((first.min(time), last.max(time)));
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        let mut handlers: Vec<Handler> = ["first", "last", "range", "interval"].map(Handler::read).into();
        handlers.push(Handler::write("reset").button());
        handlers
    }

    fn read(&mut self, name: &str, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        let (first, last) = self.range.unwrap_or_default();
        Ok(match name {
            "first" => Timestamp(first).to_string(),
            "last" => Timestamp(last).to_string(),
            "range" => format!("{} {}", Timestamp(first), Timestamp(last)),
            "interval" => Timestamp(last - first).to_string(),
            _ => return Err(HandlerError::missing(name)),
        })
    }

    fn write(&mut self, name: &str, _: &str, _: &mut Context<'_>) -> Result<(), HandlerError> {
        if name != "reset" {
            return Err(HandlerError::missing(name));
        }
        self.range = None;
        Ok(())
    }
}
