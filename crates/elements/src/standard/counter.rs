//! `Counter(COUNT_CALL, BYTE_COUNT_CALL)`: counts packets and bytes, and measures their rates.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `COUNT_CALL`: `N HANDLER [VALUE]`; when the count becomes N, the write handler is called.
//! - `BYTE_COUNT_CALL`: likewise, when the byte count is at least N.
//!
//! Handlers: `count`, `byte_count`, `rate`, `bit_rate`, `byte_rate` (read); `reset`, `reset_counts` (write);
//! `count_call`, `byte_count_call` (read, write).
use crate::rate::Rate;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use ringway_click::arg::ArgError;
use ringway_click::arg::{Args, KEYWORD, Scope};
use ringway_click::{Class, Context, Element, Failed, Handler, HandlerCall, HandlerError, PacketBurst};
use ringway_click_lang::config;

pub static CLASS: Class = Class::new("Counter", || Box::<Counter>::default()).ports("1/1");

/// A handler to call once a number is reached.
#[derive(Debug, Default)]
struct Trigger {
    at: Option<u64>,
    text: String,
    call: Option<HandlerCall>,
    done: bool,
}

impl Trigger {
    fn parse(text: &str, scope: &Scope) -> Result<Self, ArgError> {
        let (number, text) = config::shift_word(text);
        let at =
            ringway_click::arg::Arg::parse(number, scope).map_err(|_| ArgError::other("type mismatch"))?;
        Ok(Self { at: Some(at), text: text.into(), call: None, done: false })
    }

    fn resolve(&mut self, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        if !self.text.is_empty() {
            self.call = Some(cx.handler_call(&self.text, true)?);
        }
        Ok(())
    }

    fn pull(&mut self, cx: &mut Context<'_>) {
        self.done = true;
        if let Some(call) = &self.call
            && let Err(error) = cx.write(call)
        {
            cx.chatter(format_args!("{error}"));
        }
    }

    /// The handler that reads and writes one of a counter's.
    fn handler(name: &'static str, trigger: fn(&mut Counter) -> &mut Self) -> Handler {
        let read = Handler::read_with(name, move |e: &mut Counter, _, _| {
            Ok(trigger(e).at.map(|at| at.to_string()).unwrap_or_default())
        });
        read.writes(move |e: &mut Counter, value, cx| {
            let error = alloc::format!("'{name}' first word should be unsigned (count)");
            let mut new = cx.parse_with(value, Self::parse).map_err(|_| HandlerError::failed(error))?;
            new.resolve(cx)?;
            *trigger(e) = new;
            Ok(())
        })
    }
}

/// Counts packets.
#[derive(Debug, Default)]
pub struct Counter {
    count: u64,
    bytes: u64,
    rate: Rate,
    byte_rate: Rate,
    at_count: Trigger,
    at_bytes: Trigger,
}

impl Counter {
    fn reset(&mut self, _: &mut Context<'_>) {
        (self.count, self.bytes, self.at_count.done, self.at_bytes.done) = (0, 0, false, false);
    }
}

impl Element for Counter {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_with("COUNT_CALL", KEYWORD, &mut self.at_count, Trigger::parse);
        args.read_with("BYTE_COUNT_CALL", KEYWORD, &mut self.at_bytes, Trigger::parse);
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.at_count.resolve(cx).map_err(|error| cx.error(error.to_string()))?;
        self.at_bytes.resolve(cx).map_err(|error| cx.error(error.to_string()))
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let bytes: usize = burst.iter().map(ringway_click::Packet::len).sum();
        let before = self.count;
        self.count += burst.len() as u64;
        self.bytes += bytes as u64;
        let now = cx.coarse_now();
        self.rate.update(now, burst.len() as u64);
        self.byte_rate.update(now, bytes as u64);
        if self.at_count.at.is_some_and(|at| before < at && at <= self.count) && !self.at_count.done {
            self.at_count.pull(cx);
        }
        if self.at_bytes.at.is_some_and(|at| at <= self.bytes) && !self.at_bytes.done {
            self.at_bytes.pull(cx);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("count", |e: &Self| e.count),
            Handler::read("byte_count", |e: &Self| e.bytes),
            Handler::read_with("rate", |e: &mut Self, _, cx| Ok(e.rate.text(cx.coarse_now(), 1))),
            Handler::read_with("bit_rate", |e: &mut Self, _, cx| Ok(e.byte_rate.text(cx.coarse_now(), 8))),
            Handler::read_with("byte_rate", |e: &mut Self, _, cx| Ok(e.byte_rate.text(cx.coarse_now(), 1))),
            Handler::button("reset", Self::reset),
            Handler::button("reset_counts", Self::reset).uncommon(),
            Trigger::handler("count_call", |e| &mut e.at_count),
            Trigger::handler("byte_count_call", |e| &mut e.at_bytes),
        ]
        .into()
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        let from: &mut dyn core::any::Any = from;
        if let Some(from) = from.downcast_mut::<Self>() {
            (self.count, self.bytes) = (from.count, from.bytes);
            (self.rate, self.byte_rate) =
                (core::mem::take(&mut from.rate), core::mem::take(&mut from.byte_rate));
        }
    }
}
