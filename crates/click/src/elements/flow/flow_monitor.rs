//! `FlowMonitor(CAPACITY, IDLE_TIMEOUT, ACTIVE_TIMEOUT, DOMAIN)`: counts packets and bytes of each IPv4 flow, and
//! reports flows as IPFIX messages (RFC 7011).
//!
//! Ports: one input, one output, push or pull; a second output, push, gets the messages: payloads of UDP, each with
//! its template, for `UDPIPEncap`. A flow is addresses, ports and protocol, one way; without ports, as in ICMP and
//! in fragments but the first, the addresses and the protocol. Packets need a noted IPv4 header; others pass
//! uncounted.
//!
//! Arguments:
//! - `CAPACITY`: flows at most; 1048576. When there are more, of sixteen the least lately seen is reported and
//!   forgotten, which counts as an eviction.
//! - `IDLE_TIMEOUT`: a flow without packets for so long has ended; 15 seconds. So has a TCP connection 1 second after
//!   FIN or RST.
//! - `ACTIVE_TIMEOUT`: a flow that goes on is reported so often; 30 minutes.
//! - `DOMAIN`: the observation domain that messages name; 0.
//!
//! Reports come up to a quarter of IDLE_TIMEOUT late, at most a second.
//!
//! Handlers: `count` (flows now), `flows` (ever seen), `packets`, `bytes`, `other` (packets uncounted), `evictions`,
//! `records` (reported), `capacity` (read); `table` (read, with how many lines, 100 by default): addresses, ports,
//! protocol, packets, bytes since the last report; `flush` (write): reports and forgets all.
use super::connection::{Connection, Headers};
use super::ipfix::{self, End, RECORDS, Record};
use super::table::{FlowTable, USUAL};
use crate::arg::{Args, Nanoseconds};
use crate::{Class, Context, Element, Failed, Handler, HandlerError, PACKETS, PacketBurst, SECOND, Timer};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt::Write;
use core::net::Ipv4Addr;

/// Facts.
pub static CLASS: Class =
    Class::new("FlowMonitor", || Box::<FlowMonitor>::default()).ports("1/1-2").processing("a/ah");

/// How often a part of the table is looked at.
const PERIOD: u64 = SECOND / 50;
/// Lines of a table. Attack: a handler that would print millions while packets wait.
const LINES: usize = 10_000;
const FIN: u8 = 1;
const RST: u8 = 4;

/// What is counted of a flow since its last report.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    packets: u64,
    bytes: u64,
    first: u64,
    flags: u8,
    tos: u8,
}

/// See the module.
#[derive(Debug)]
pub struct FlowMonitor {
    flows: FlowTable<Connection, Counts>,
    idle: u64,
    active: u64,
    domain: u32,
    seen: u64,
    packets: u64,
    bytes: u64,
    other: u64,
    records: u64,
    waiting: Vec<Record>,
    timer: Option<Timer>,
    /// Flows last seen up to this moment are asked for.
    flushed: Option<u64>,
}

impl Default for FlowMonitor {
    fn default() -> Self {
        Self {
            flows: FlowTable::default(),
            idle: 15 * SECOND,
            active: 1800 * SECOND,
            domain: 0,
            seen: 0,
            packets: 0,
            bytes: 0,
            other: 0,
            records: 0,
            waiting: Vec::with_capacity(RECORDS),
            timer: None,
            flushed: None,
        }
    }
}

impl FlowMonitor {
    /// Counts a packet.
    #[inline]
    fn count(&mut self, headers: Headers, hash: u64, now: u64, cx: &mut Context<'_>) {
        let Headers { connection, length, tos, flags } = headers;
        let number = match self.flows.find(hash, connection) {
            Some(number) => number,
            None => {
                self.seen += 1;
                let counts = Counts { first: now, tos, ..Counts::default() };
                let (number, evicted) = self.flows.add(hash, connection, counts, now);
                if let Some((connection, counts)) = evicted {
                    self.report(connection, counts, now, End::Resources, cx);
                }
                number
            }
        };
        self.packets += 1;
        self.bytes += u64::from(length);
        if let Some(counts) = self.flows.touch(number, now) {
            counts.packets += 1;
            counts.bytes += u64::from(length);
            counts.flags |= flags;
        }
    }

    fn report(&mut self, connection: Connection, counts: Counts, last: u64, end: End, cx: &mut Context<'_>) {
        if counts.packets == 0 {
            return;
        }
        self.records += 1;
        if cx.noutputs() < 2 {
            return;
        }
        let Counts { packets, bytes, first, flags, tos } = counts;
        // Times are made those of a clock when the message is.
        self.waiting.push(Record {
            connection,
            tos,
            flags,
            packets,
            bytes,
            start: first,
            end: last,
            reason: end,
        });
        if self.waiting.len() >= RECORDS {
            self.send(cx);
        }
    }

    fn send(&mut self, cx: &mut Context<'_>) {
        if self.waiting.is_empty() {
            return;
        }
        let (wall, now) = (cx.now(), cx.coarse_now());
        for record in &mut self.waiting {
            for time in [&mut record.start, &mut record.end] {
                *time = wall.saturating_sub(now.saturating_sub(*time));
            }
        }
        // The number of records sent before (RFC 7011, 3.1), those of this message not counted.
        let sequence = (self.records - self.waiting.len() as u64) as u32;
        let message = ipfix::message(&self.waiting, self.domain, sequence, wall);
        self.waiting.clear();
        if let Some(packet) = cx.packet(&message) {
            cx.push(1, packet);
        }
    }

    /// Looks at the next `steps` slots for flows to report.
    fn sweep(&mut self, mut steps: usize, now: u64, cx: &mut Context<'_>) {
        let (idle, active, flushed) = (self.idle, self.active, self.flushed);
        let mut found: (Option<End>, u64) = (None, 0);
        while let Some(number) = self.flows.next_old(&mut steps, |counts, seen| {
            let silent = now.saturating_sub(seen);
            let ended = counts.flags & (FIN | RST) != 0 && silent >= SECOND;
            let end = match () {
                () if flushed.is_some_and(|flushed| seen <= flushed) => Some(End::Forced),
                () if silent >= idle => Some(End::Idle),
                () if ended => Some(End::Detected),
                () if now.saturating_sub(counts.first) >= active => Some(End::Active),
                () => None,
            };
            found = (end, seen);
            end.is_some()
        }) {
            let (Some(end), last) = found else { continue };
            let (connection, counts) = if end == End::Active {
                let Some((connection, counts)) = self.flows.get(number) else { continue };
                let reported = (*connection, *counts);
                if let Some(counts) = self.flows.get_mut(number) {
                    *counts = Counts { first: now, tos: counts.tos, ..Counts::default() };
                }
                reported
            } else {
                let Some(gone) = self.flows.remove(number) else { continue };
                gone
            };
            self.report(connection, counts, last, end, cx);
        }
    }

    fn table(&self, lines: usize) -> String {
        let mut out = String::new();
        for (connection, counts) in self.flows.iter().take(lines.min(LINES)) {
            let ends = connection.ends;
            let (from, to) = (Ipv4Addr::from_bits(ends.source), Ipv4Addr::from_bits(ends.destination));
            let (protocol, Counts { packets, bytes, .. }) = (connection.protocol, counts);
            let (from_port, to_port) = (ends.source_port, ends.destination_port);
            let _ = writeln!(out, "{from} {from_port} {to} {to_port} {protocol} {packets} {bytes}");
        }
        out
    }
}

impl Element for FlowMonitor {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut capacity = USUAL;
        let (mut idle, mut active) = (Nanoseconds(self.idle), Nanoseconds(self.active));
        args.read_p("CAPACITY", &mut capacity);
        args.read("IDLE_TIMEOUT", &mut idle);
        args.read("ACTIVE_TIMEOUT", &mut active);
        args.read("DOMAIN", &mut self.domain);
        args.complete()?;
        if capacity == 0 {
            return Err(cx.error("CAPACITY must be > 0"));
        }
        let seed = u64::from(cx.random()) << 32 | u64::from(cx.random());
        self.flows = FlowTable::new(capacity, seed);
        (self.idle, self.active) = (idle.0, active.0);
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let timer = cx.new_timer();
        cx.set_timer_after(timer, PERIOD);
        self.timer = Some(timer);
        Ok(())
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let now = cx.coarse_now();
        let mut found = [const { None }; PACKETS];
        for (packet, place) in burst.iter().zip(&mut found) {
            *place = Headers::of(packet).map(|headers| (headers, self.flows.approach(headers.connection)));
        }
        for (_, hash) in found.iter().flatten() {
            self.flows.near(*hash);
        }
        for place in found.iter().take(burst.len()) {
            match place {
                Some((headers, hash)) => self.count(*headers, *hash, now, cx),
                None => self.other += 1,
            }
        }
    }

    fn run_timer(&mut self, timer: Timer, cx: &mut Context<'_>) {
        let now = cx.steady();
        // So that the whole table is seen in a quarter of the timeout, and in a second at most.
        let round = (self.idle / 4).clamp(PERIOD, SECOND);
        let slots = self.flows.slots() as u64;
        let steps = (slots * PERIOD).div_ceil(round) as usize;
        self.sweep(steps, now, cx);
        if self.flushed.is_some() && self.flows.len() == 0 {
            self.flushed = None;
        }
        self.send(cx);
        cx.set_timer_again(timer, PERIOD);
    }

    fn handlers(&self) -> Vec<Handler> {
        let numbers = ["count", "flows", "packets", "bytes", "other", "evictions", "records", "capacity"];
        let mut handlers: Vec<Handler> = numbers.map(Handler::read).into();
        handlers.push(Handler::read("table").parameters().expensive());
        handlers.push(Handler::write("flush").button());
        handlers
    }

    fn read(&mut self, name: &str, parameter: &str, cx: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(match name {
            "count" => self.flows.len().to_string(),
            "flows" => self.seen.to_string(),
            "packets" => self.packets.to_string(),
            "bytes" => self.bytes.to_string(),
            "other" => self.other.to_string(),
            "evictions" => self.flows.evictions().to_string(),
            "records" => self.records.to_string(),
            "capacity" => self.flows.capacity().to_string(),
            "table" if parameter.is_empty() => self.table(100),
            "table" => {
                let lines = cx.parse::<u32>(parameter);
                self.table(lines.map_err(|error| HandlerError::failed(error.to_string()))? as usize)
            }
            _ => return Err(HandlerError::missing(name)),
        })
    }

    fn write(&mut self, name: &str, _: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        if name != "flush" {
            return Err(HandlerError::missing(name));
        }
        self.flushed = Some(cx.coarse_now());
        Ok(())
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        let from: &mut dyn core::any::Any = from;
        if let Some(from) = from.downcast_mut::<Self>() {
            core::mem::swap(&mut self.flows, &mut from.flows);
            core::mem::swap(&mut self.waiting, &mut from.waiting);
            (self.seen, self.packets, self.bytes) = (from.seen, from.packets, from.bytes);
            (self.other, self.records) = (from.other, from.records);
        }
    }
}
