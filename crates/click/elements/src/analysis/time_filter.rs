//! `TimeFilter(START, END, [keywords])`: passes packets whose timestamps are at least START and less than END.
//!
//! Ports: one input, one output, push or pull; a second output, push, gets the others.
//!
//! Arguments:
//! - `START`: seconds since 1970; or `START_DELAY`, seconds after the router's start; or `START_AFTER`, seconds
//!   after the first packet (0, which is the default).
//! - `END`, `END_DELAY`, `END_AFTER`: likewise; or `INTERVAL`, seconds after the start. Never, by default.
//! - `STOP`: whether to stop the driver at the first packet after the end.
//! - `END_CALL`: a write handler that is called for it instead, with the packet's timestamp for `$t`; it may set a
//!   later end.
//!
//! Handlers: `start`, `end` (read, write); `interval` (read, write), the time between; `extend_interval` (write),
//! by how much the end is to be later.
use ringway_click::Timestamp;
use ringway_click::arg::{Nanoseconds, Raw};
use ringway_click::prelude::*;
use ringway_click_lang::config::{self, Budget, VariableSyntax, Variables};

pub static CLASS: Class =
    Class::new("TimeFilter", || Box::<TimeFilter>::default()).ports("1/1-2").processing("a/ah");

/// Bytes that a call may grow to.
const LONGEST_CALL: usize = 1 << 16;
/// How often the end may be put off for a packet. Attack: a handler that puts it off by a nanosecond each time.
const MOST_CALLS: u32 = 1000;

/// The reference of a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum From {
    #[default]
    Epoch,
    Initialize,
    FirstPacket,
    Start,
}

#[derive(Debug)]
pub struct TimeFilter {
    start: u64,
    start_from: From,
    end: u64,
    end_from: From,
    /// Whether a packet has come.
    ready: bool,
    call: String,
    armed: bool,
}

impl Default for TimeFilter {
    fn default() -> Self {
        Self {
            start: 0,
            start_from: From::FirstPacket,
            end: u64::MAX,
            end_from: From::Epoch,
            ready: false,
            call: String::new(),
            armed: true,
        }
    }
}

/// `$t` in a call.
struct Time(u64);

impl Variables for Time {
    fn value(&self, name: &str, kind: VariableSyntax, _: u32, _: &Budget) -> Option<String> {
        (name == "t" && kind != VariableSyntax::Parentheses).then(|| Timestamp(self.0).to_string())
    }
}

impl TimeFilter {
    fn first_packet(&mut self, at: u64) {
        if self.start_from == From::FirstPacket {
            self.start = self.start.saturating_add(at);
        }
        match self.end_from {
            From::FirstPacket => self.end = self.end.saturating_add(at),
            From::Start => self.end = self.end.saturating_add(self.start),
            From::Epoch | From::Initialize => {}
        }
        self.ready = true;
    }

    fn passes(&mut self, at: u64, cx: &mut Context<'_>) -> bool {
        if !self.ready {
            self.first_packet(at);
        }
        if at < self.start {
            return false;
        }
        for _ in 0..MOST_CALLS {
            if at < self.end || !self.armed || self.call.is_empty() {
                break;
            }
            let before = self.end;
            self.armed = false;
            self.report(at, cx);
            if self.end <= before {
                break;
            }
        }
        at < self.end
    }

    /// Calls the handler. Its writes to this element take effect immediately.
    fn report(&mut self, at: u64, cx: &mut Context<'_>) {
        let text = config::expand(&self.call, &Time(at), &Budget::new(LONGEST_CALL));
        match cx.handler_call(&text, true) {
            Ok(call) => cx.write_lending(self, &call),
            Err(error) => cx.chatter(format_args!("{error}")),
        }
    }
}

/// A time that is written to a handler.
fn time(value: &str, cx: &Context<'_>) -> Result<u64, HandlerError> {
    let time = cx.parse::<Nanoseconds>(value).map_err(|_| HandlerError::failed("expected time"))?;
    Ok(time.0)
}

impl Element for TimeFilter {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut starts, mut ends) = ([None::<Nanoseconds>; 3], [None::<Nanoseconds>; 4]);
        let (mut stop, mut call) = (false, Raw::default());
        args.read_p("START", &mut starts[0]);
        args.read_p("END", &mut ends[0]);
        args.read("START_DELAY", &mut starts[1]);
        args.read("START_AFTER", &mut starts[2]);
        args.read("END_DELAY", &mut ends[1]);
        args.read("END_AFTER", &mut ends[2]);
        args.read("INTERVAL", &mut ends[3]);
        args.read("STOP", &mut stop);
        args.read("END_CALL", &mut call);
        args.complete()?;
        if starts.iter().flatten().count() > 1 {
            return Err(cx.error("START, START_AFTER, and START_DELAY are mutually exclusive"));
        }
        if ends.iter().flatten().count() > 1 {
            return Err(cx.error("END, END_AFTER, END_DELAY, and INTERVAL are mutually exclusive"));
        }
        if stop && !call.0.is_empty() {
            return Err(cx.error("END_CALL and STOP are mutually exclusive"));
        }
        let kinds = [From::Epoch, From::Initialize, From::FirstPacket, From::Start];
        let given = |times: &[Option<Nanoseconds>]| {
            times.iter().zip(kinds).find_map(|(time, kind)| time.map(|time| (time.0, kind)))
        };
        (self.start, self.start_from) = given(&starts).unwrap_or((self.start, self.start_from));
        (self.end, self.end_from) = given(&ends).unwrap_or((self.end, self.end_from));
        self.call = if stop { "stop true".into() } else { call.0 };
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if !self.call.is_empty()
            && let Err(error) = cx.handler_call(&self.call, true)
        {
            return Err(cx.error(error.to_string()));
        }
        let now = cx.now();
        if self.start_from == From::Initialize {
            self.start = self.start.saturating_add(now);
        }
        if self.end_from == From::Initialize {
            self.end = self.end.saturating_add(now);
        }
        Ok(())
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        burst.filter_map(|packet| {
            if self.passes(packet.timestamp(), cx) {
                return Some(packet);
            }
            cx.push(1, packet);
            None
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("start", |e: &Self| Timestamp(e.start)).writes(|e: &mut Self, value, cx| {
                let start = time(value, cx)?;
                if !e.ready {
                    e.first_packet(start);
                }
                e.start = start;
                Ok(())
            }),
            Handler::read("end", |e: &Self| Timestamp(e.end)).writes(|e: &mut Self, value, cx| {
                (e.end, e.end_from, e.armed) = (time(value, cx)?, From::Epoch, true);
                Ok(())
            }),
            Handler::read("interval", |e: &Self| Timestamp(e.end.saturating_sub(e.start))).writes(
                |e: &mut Self, value, cx| {
                    let interval = time(value, cx)?;
                    match e.ready {
                        true => e.end = e.start.saturating_add(interval),
                        false => (e.end, e.end_from) = (interval, From::Start),
                    }
                    e.armed = true;
                    Ok(())
                },
            ),
            Handler::write("extend_interval", |e: &mut Self, value, cx| {
                (e.end, e.armed) = (e.end.saturating_add(time(value, cx)?), true);
                Ok(())
            }),
        ]
        .into()
    }
}
