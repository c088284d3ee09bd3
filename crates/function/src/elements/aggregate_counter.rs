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
//! Handlers: `count`, `nagg` (read): the sum, the number of aggregates; `freeze`, `active`, `banner` (read, write);
//! `write_file`, `write_text_file`, `write_ip_file`, `write_pdf_file` (write): a file, `-` for standard output, in
//! packed form, as numbers, with addresses, with parts of the sum; `stop`, `clear` (write); `reaggregate_counts`
//! (write): counts how many aggregates have which count.
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

/// Action when a number is reached.
#[derive(Debug, Default)]
enum Then {
    #[default]
    Nothing,
    Stop,
    Freeze,
    Call(String, Option<HandlerCall>),
}

#[derive(Debug, Default)]
struct Limit {
    at: u64,
    then: Then,
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
    fn read(&mut self, args: &mut Args, names: [&str; 3]) {
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
        *self = match (stop, freeze, number.parse()) {
            (Some(at), _, _) => Self { at, then: Then::Stop },
            (_, Some(at), _) => Self { at, then: Then::Freeze },
            (_, _, Ok(at)) => Self { at, then: Then::Call(text.to_string(), None) },
            _ => {
                if given[2] {
                    args.error(format!("{} first word should be unsigned", names[2]));
                }
                Self::default()
            }
        };
    }

    fn resolve(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if let Then::Call(text, call) = &mut self.then {
            *call = Some(cx.handler_call(text, true).map_err(|error| cx.call_error(&error))?);
        }
        Ok(())
    }

    /// The action due at a number, once.
    fn due(&mut self, number: u64) -> Then {
        if number >= self.at { std::mem::take(&mut self.then) } else { Then::Nothing }
    }
}

impl AggregateCounter {
    fn happen(&mut self, then: Then, cx: &mut Context<'_>) {
        match then {
            Then::Stop => {
                self.active = false;
                cx.stop();
            }
            Then::Freeze => self.frozen = true,
            Then::Call(_, Some(call)) => cx.write_lending(self, &call),
            Then::Nothing | Then::Call(_, None) => {}
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
            let then = self.aggregates.due(self.counts.len() as u64);
            self.happen(then, cx);
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
        let then = self.total.due(self.sum);
        self.happen(then, cx);
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
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        (self.multipacket, self.extra_length, self.active) = (true, true, true);
        args.read("BYTES", &mut self.bytes);
        args.read("IP_BYTES", &mut self.ip_bytes);
        args.read("MULTIPACKET", &mut self.multipacket);
        args.read("EXTRA_LENGTH", &mut self.extra_length);
        args.read("BANNER", &mut self.banner);
        self.aggregates.read(args, ["AGGREGATE_STOP", "AGGREGATE_FREEZE", "AGGREGATE_CALL"]);
        self.total.read(args, ["COUNT_STOP", "COUNT_FREEZE", "COUNT_CALL"]);
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
        ];
        let files = ["write_file", "write_text_file", "write_ip_file", "write_pdf_file"].map(file);
        let buttons = [
            Handler::button("stop", |e: &mut Self, cx| e.happen(Then::Stop, cx)),
            Handler::button("clear", |e: &mut Self, _| (e.counts, e.sum) = (BTreeMap::new(), 0)),
            Handler::button("reaggregate_counts", |e: &mut Self, _| e.reaggregate()),
        ];
        handlers.into_iter().chain(files).chain(buttons).collect()
    }
}
