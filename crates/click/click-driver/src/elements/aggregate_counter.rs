//! `AggregateCounter([keywords])`: counts packets or bytes for each value of the aggregate annotation.
//!
//! Ports: one or two inputs, one or two outputs, push or pull. Packets on the second input create no new
//! counters. Pushed packets that were not counted are sent to the second output.
//!
//! Arguments:
//! - `BYTES`: counts bytes; false. `IP_BYTES`: from the network header on; false.
//! - `MULTIPACKET`: a packet may stand for several; true. `EXTRA_LENGTH`: counts bytes not captured too; true.
//! - `AGGREGATE_STOP`, `AGGREGATE_FREEZE`, `AGGREGATE_CALL`: when the number of aggregates exceeds N, the
//!   driver stops, no new counters are created, or with `N HANDLER [VALUE]` a write handler is called. One of
//!   them.
//! - `COUNT_STOP`, `COUNT_FREEZE`, `COUNT_CALL`: likewise, when the sum of all counts is at least N.
//! - `BANNER`: a text at the beginning of files.
//!
//! Handlers: `count`, `nagg` (read): the sum, the number of aggregates; `freeze`, `active`, `banner`,
//! `aggregate_call`, `count_call` (read, write); `write_file`, `write_text_file` or `write_ascii_file`,
//! `write_ip_file`, `write_pdf_file` (write): a file, `-` for standard output, in packed form, as numbers, with
//! addresses, with parts of the sum; `stop`, `clear` (write); `reaggregate_counts` or `counts_pdf` (write): counts how
//! many aggregates have which count.
use crate::file::{Output, reason};
use ringway_click::arg::{Args, Raw};
use ringway_click::{
    Annotations, Class, Context, Element, Failed, Handler, HandlerCall, HandlerError, Packet, PacketBurst,
};
use ringway_click_lang::config;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

pub static CLASS: Class = Class::new("AggregateCounter", || Box::<AggregateCounter>::default())
    .ports("1-2/1-2")
    .processing("a/ah")
    .flow("#/#");

/// Attack: ever new aggregates. Largest number of counters.
const MOST: usize = 1 << 22;

/// A write handler that is called once when a number is reached.
#[derive(Debug, Default)]
struct Limit {
    at: u64,
    /// Empty if there is no call.
    text: String,
    call: Option<HandlerCall>,
}

#[derive(Debug, Default)]
pub struct AggregateCounter {
    counts: BTreeMap<u32, u64>,
    sum: u64,
    bytes: bool,
    ip_bytes: bool,
    multipacket: bool,
    extra_length: bool,
    frozen: bool,
    active: bool,
    banner: String,
    aggregates: Limit,
    total: Limit,
}

impl Limit {
    /// Reads `N`, for a stop or freeze, and `N HANDLER [VALUE]`; at most one of them may be given.
    fn read(&mut self, args: &mut Args, names: [&str; 3], own: &str) {
        let (mut stop, mut freeze, mut call) = (None::<u64>, None::<u64>, Raw::default());
        args.read(names[0], &mut stop);
        args.read(names[1], &mut freeze);
        args.read(names[2], &mut call);
        let given = [stop.is_some(), freeze.is_some(), !call.0.is_empty()];
        if given.iter().filter(|given| **given).count() > 1 {
            let [stop, freeze, call] = names;
            args.error(format!("'{freeze}', '{stop}', and '{call}' are mutually exclusive"));
        }
        let (number, text) = config::shift_word(&call.0);
        (self.at, self.text) = match (stop, freeze, number.parse()) {
            (Some(at), _, _) => (at, format!("{own}.stop")),
            (_, Some(at), _) => (at, format!("{own}.freeze true")),
            (_, _, Ok(at)) => (at, text.to_string()),
            _ => {
                if given[2] {
                    args.error(format!("{} first word should be unsigned", names[2]));
                }
                Default::default()
            }
        };
    }

    fn resolve(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if !self.text.is_empty() {
            let call = cx.handler_call(&self.text, true);
            self.call = Some(call.map_err(|error| cx.call_error(&error))?);
        }
        Ok(())
    }

    /// The call due at a number.
    fn due(&mut self, number: u64) -> Option<HandlerCall> {
        if number < self.at {
            return None;
        }
        self.text.clear();
        self.call.take()
    }

    /// The handler `name` of a limit: `N HANDLER [VALUE]`, or nothing.
    fn handler(name: &'static str, limit: fn(&mut AggregateCounter) -> &mut Self) -> Handler {
        let text = move |e: &mut AggregateCounter, _: &str, _: &mut Context<'_>| {
            let Self { at, text, .. } = limit(e);
            Ok(if text.is_empty() { String::new() } else { format!("{at} {text}") })
        };
        Handler::read_with(name, text).writes(move |e: &mut AggregateCounter, value, cx| {
            let (number, text) = config::shift_word(value);
            *limit(e) = match (number, number.parse()) {
                ("", _) => Self::default(),
                (_, Ok(at)) => Self { at, text: text.into(), call: Some(cx.handler_call(text, true)?) },
                _ => {
                    let text = format!("argument to '{name}' should be 'N HANDLER [VALUE]'");
                    return Err(HandlerError::failed(text));
                }
            };
            Ok(())
        })
    }
}

impl AggregateCounter {
    /// Makes a call, which may use this element meanwhile.
    fn make_call(&mut self, call: Option<HandlerCall>, cx: &mut Context<'_>) {
        if let Some(call) = call {
            cx.write_lending(self, &call);
        }
    }

    fn amount(&self, packet: &Packet) -> u64 {
        let notes = packet.notes();
        if !self.bytes {
            let more = if self.multipacket { notes.u32(Annotations::EXTRA_PACKETS) } else { 0 };
            return 1 + u64::from(more);
        }
        let extra = if self.extra_length { notes.u32(Annotations::EXTRA_LENGTH) } else { 0 };
        let ip = packet.network_data().filter(|_| self.ip_bytes).map(<[u8]>::len);
        ip.unwrap_or(packet.len()) as u64 + u64::from(extra)
    }

    /// Counts a packet; returns whether it was counted.
    fn update(&mut self, packet: &Packet, frozen: bool, cx: &mut Context<'_>) -> bool {
        let aggregate = packet.notes().u32(Annotations::AGGREGATE);
        if self.active && !self.counts.contains_key(&aggregate) && !frozen && !self.frozen {
            let call = self.aggregates.due(self.counts.len() as u64);
            self.make_call(call, cx);
        }
        let full = self.counts.len() >= MOST;
        let known = self.counts.contains_key(&aggregate);
        let amount = self.amount(packet);
        if !self.active || (!known && (frozen || self.frozen || full)) {
            return false;
        }
        if amount > 0 {
            let count = self.counts.entry(aggregate).or_default();
            *count = count.saturating_add(amount);
            self.sum = self.sum.saturating_add(amount);
        }
        let call = self.total.due(self.sum);
        self.make_call(call, cx);
        true
    }

    fn text(&self, form: &str) -> Vec<u8> {
        let mut out = format!("!IPAggregate 1.0\n{}", self.banner);
        if !self.banner.is_empty() && !self.banner.ends_with('\n') {
            out.push('\n');
        }
        out += &format!("!num_nonzero {}\n", self.counts.len());
        match form {
            "write_file" => out += "!packed_le\n",
            "write_ip_file" => out += "!ip\n",
            _ => {}
        }
        let mut out = out.into_bytes();
        for (aggregate, count) in &self.counts {
            let line = match form {
                "write_file" => {
                    out.extend(aggregate.to_le_bytes());
                    out.extend(u32::try_from(*count).unwrap_or(u32::MAX).to_le_bytes());
                    continue;
                }
                "write_ip_file" => format!("{} {count}\n", Ipv4Addr::from_bits(*aggregate)),
                "write_pdf_file" => format!("{aggregate} {:.12}\n", *count as f64 / self.sum as f64),
                _ => format!("{aggregate} {count}\n"),
            };
            out.extend(line.bytes());
        }
        out
    }

    fn reaggregate(&mut self) {
        let mut counts = BTreeMap::new();
        for count in self.counts.values() {
            *counts.entry(u32::try_from(*count).unwrap_or(u32::MAX)).or_default() += 1u64;
        }
        self.sum = self.counts.len() as u64;
        self.counts = counts;
    }
}

impl Element for AggregateCounter {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        (self.multipacket, self.extra_length, self.active) = (true, true, true);
        args.read("BYTES", &mut self.bytes);
        args.read("IP_BYTES", &mut self.ip_bytes);
        args.read("MULTIPACKET", &mut self.multipacket);
        args.read("EXTRA_LENGTH", &mut self.extra_length);
        args.read("BANNER", &mut self.banner);
        self.aggregates.read(args, ["AGGREGATE_STOP", "AGGREGATE_FREEZE", "AGGREGATE_CALL"], cx.name());
        self.total.read(args, ["COUNT_STOP", "COUNT_FREEZE", "COUNT_CALL"], cx.name());
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.aggregates.resolve(cx)?;
        self.total.resolve(cx)
    }

    fn push(&mut self, port: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let second = cx.noutputs() > 1;
        burst.filter_map(|packet| {
            if self.update(&packet, port == 1, cx) || !second {
                return Some(packet);
            }
            cx.push(1, packet);
            None
        });
    }

    fn pull(&mut self, port: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        cx.lend(self, |cx| cx.pull(port, max, burst));
        for packet in burst.iter() {
            self.update(packet, port == 1, cx);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        let file = |name| {
            Handler::write(name, move |e: &mut Self, value, cx| {
                let (path, text) = (value.trim(), e.text(name));
                let written = Output::create(path).and_then(|mut file| {
                    file.write(&text, cx)?;
                    file.flush()
                });
                written.map_err(|error| HandlerError::failed(format!("{path}: {}", reason(&error))))
            })
        };
        let handlers = [
            Handler::read("count", |e: &Self| e.sum),
            Handler::read("nagg", |e: &Self| e.counts.len()),
            Handler::field("freeze", |e: &mut Self| &mut e.frozen).error("type mismatch"),
            Handler::field("active", |e: &mut Self| &mut e.active).error("type mismatch"),
            Handler::read("banner", |e: &Self| e.banner.clone()).writes(|e: &mut Self, value, _| {
                e.banner = value.to_string();
                Ok(())
            }),
            Limit::handler("aggregate_call", |e| &mut e.aggregates),
            Limit::handler("count_call", |e| &mut e.total),
        ];
        let files = ["write_file", "write_text_file", "write_ascii_file", "write_ip_file", "write_pdf_file"]
            .map(file);
        let buttons = [
            Handler::button("stop", |e: &mut Self, cx| {
                e.active = false;
                cx.stop();
            }),
            Handler::button("clear", |e: &mut Self, _| (e.counts, e.sum) = (BTreeMap::new(), 0)),
            Handler::button("reaggregate_counts", |e: &mut Self, _| e.reaggregate()),
            Handler::button("counts_pdf", |e: &mut Self, _| e.reaggregate()),
        ];
        handlers.into_iter().chain(files).chain(buttons).collect()
    }
}
