//! `Counter(COUNT_CALL, BYTE_COUNT_CALL, NO_RATE, ATOMIC, BATCH_PRECISE)`: counts packets and bytes, and measures
//! their rates.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `COUNT_CALL`: `N HANDLER [VALUE]`; the write handler is called when the count reaches N.
//! - `BYTE_COUNT_CALL`: the same for the byte count.
//! - `NO_RATE`, `ATOMIC`, `BATCH_PRECISE`: accepted for FastClick's configurations, no effect.
//!
//! Handlers: `count`, `byte_count`, `rate`, `bit_rate`, `byte_rate` (read); `reset`, `reset_counts` (write);
//! `count_call`, `byte_count_call` (read, write).
use crate::rate::Rate;
use ringway_click::HandlerCall;
use ringway_click::arg::{ArgError, Raw, Scope, parse_saturating};
use ringway_click::prelude::*;
use ringway_click_lang::config;

pub static CLASS: Class = Class::new("Counter", || Box::<Counter>::default()).ports("1/1");

/// A handler that is called when a count reaches a number.
#[derive(Debug, Default)]
struct Trigger {
    at: Option<u64>,
    text: String,
    call: Option<HandlerCall>,
    done: bool,
}

impl Trigger {
    fn parse(text: &str, _: &Scope) -> Result<Self, ArgError> {
        let (number, text) = config::shift_word(text);
        let most = u64::MAX;
        let at = match parse_saturating(number, 0, most.into()) {
            Some((at, false)) => u64::try_from(at).ok(),
            Some(_) => return Err(ArgError::Other(format!("overflow, max {most}"))),
            None => None,
        };
        let at = Some(at.ok_or_else(|| ArgError::other("type mismatch"))?);
        Ok(Self { at, text: text.into(), call: None, done: false })
    }

    fn resolve(&mut self, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        if !self.text.is_empty() {
            self.call = Some(cx.handler_call(&self.text, true)?);
        }
        Ok(())
    }

    /// The handler for one of a counter's triggers.
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

#[derive(Debug)]
pub struct Counter {
    count: u64,
    bytes: u64,
    rate: Rate,
    byte_rate: Rate,
    at_count: Trigger,
    at_bytes: Trigger,
}

impl Default for Counter {
    fn default() -> Self {
        Self {
            count: 0,
            bytes: 0,
            rate: Rate::default(),
            byte_rate: Rate::coarse(),
            at_count: Trigger::default(),
            at_bytes: Trigger::default(),
        }
    }
}

impl Counter {
    /// Calls the handler of a trigger, once.
    fn call(&mut self, trigger: fn(&mut Self) -> &mut Trigger, cx: &mut Context<'_>) {
        let done = core::mem::replace(&mut trigger(self).done, true);
        if let Some(call) = trigger(self).call.clone().filter(|_| !done) {
            cx.write_lending(self, &call);
        }
    }

    fn reset(&mut self, _: &mut Context<'_>) {
        (self.count, self.bytes, self.at_count.done, self.at_bytes.done) = (0, 0, false, false);
    }
}

impl Element for Counter {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        for (name, trigger) in [("COUNT_CALL", &mut self.at_count), ("BYTE_COUNT_CALL", &mut self.at_bytes)] {
            let mut text = Raw::default();
            if !args.read(name, &mut text) {
                continue;
            }
            match Trigger::parse(&text.0, args.scope()) {
                Ok(parsed) => *trigger = parsed,
                Err(error) => args.error(format!("{name} {error}")),
            }
        }
        args.read("NO_RATE", &mut false);
        args.read("ATOMIC", &mut 0u32);
        args.read("BATCH_PRECISE", &mut false);
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.at_count.resolve(cx).map_err(|error| cx.call_error(&error))?;
        self.at_bytes.resolve(cx).map_err(|error| cx.call_error(&error))
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let bytes: usize = burst.iter().map(ringway_click::Packet::len).sum();
        let before = self.count;
        self.count += burst.len() as u64;
        self.bytes += bytes as u64;
        let now = cx.coarse_now();
        self.rate.update(now, burst.len() as u64);
        self.byte_rate.update(now, bytes as u64);
        if let Some(at) = self.at_count.at
            && before < at
            && at <= self.count
        {
            // A handler that reads the count must get exactly the trigger's number.
            let more = self.count - at;
            self.count = at;
            self.call(|e| &mut e.at_count, cx);
            self.count += more;
        }
        if self.at_bytes.at.is_some_and(|at| at <= self.bytes) {
            self.call(|e| &mut e.at_bytes, cx);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("count", |e: &Self| e.count),
            Handler::read("byte_count", |e: &Self| e.bytes),
            Handler::read_with("rate", |e: &mut Self, _, cx| Ok(e.rate.text(cx.coarse_now(), 0))),
            Handler::read_with("bit_rate", |e: &mut Self, _, cx| Ok(e.byte_rate.text(cx.coarse_now(), 3))),
            Handler::read_with("byte_rate", |e: &mut Self, _, cx| Ok(e.byte_rate.text(cx.coarse_now(), 0))),
            Handler::button("reset", Self::reset),
            Handler::button("reset_counts", Self::reset).uncommon(),
            Trigger::handler("count_call", |e| &mut e.at_count),
            Trigger::handler("byte_count_call", |e| &mut e.at_bytes),
        ]
        .into()
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        if let Some(from) = from.downcast_mut::<Self>() {
            (self.count, self.bytes) = (from.count, from.bytes);
            (self.rate, self.byte_rate) = (from.rate, from.byte_rate);
        }
    }
}
