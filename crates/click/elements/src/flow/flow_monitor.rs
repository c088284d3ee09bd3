//! `FlowMonitor(CAPACITY, IDLE_TIMEOUT, ACTIVE_TIMEOUT, DOMAIN)`: counts packets and bytes of each IPv4 and IPv6 flow,
//! and exports flows as IPFIX messages (RFC 7011).
//!
//! Ports: one input, one output, push or pull; a second output, push, gets the messages: UDP payloads, each with its
//! template, for `UDPIPEncap`. A flow is identified by addresses, ports and protocol in one direction; without ports,
//! as for ICMP, for IPv4 fragments except the first and for all IPv6 fragments, by addresses and protocol. Packets
//! need a marked IP header; others pass uncounted.
//!
//! Arguments:
//! - `CAPACITY`: maximum number of flows per IP version; 1048576. If there are more, the least recently used of
//!   sixteen is exported and removed, which counts as an eviction.
//! - `IDLE_TIMEOUT`: time without packets after which a flow has ended; 15 seconds. A TCP connection ends 1 second
//!   after FIN or RST.
//! - `ACTIVE_TIMEOUT`: export interval of a flow that continues; 30 minutes.
//! - `DOMAIN`: the observation domain of the messages; 0.
//!
//! Exports are delayed by up to a quarter of IDLE_TIMEOUT, at most a second.
//!
//! Handlers: `count` (current flows), `flows` (total flows), `packets`, `bytes`, `other` (uncounted packets),
//! `evictions`, `records` (exported), `capacity` (read); `table` (read, with the number of lines, 100 by default):
//! addresses, ports, protocol, packets, bytes since the last export; `top` (read, with the number of lines, 10 by
//! default): the flows with the most bytes since their last export; `flush` (write): exports and removes all flows.
use super::connection::{Connection, Connection6, Ends, Headers};
use super::ipfix::{self, End, Record};
use super::table::{FlowTable, USUAL};
use alloc::collections::BinaryHeap;
use core::cmp::Reverse;
use core::fmt::Write;
use ringway_click::arg::Nanoseconds;
use ringway_click::prelude::*;
use ringway_click::{LINES, PACKETS, Pieces, Progress};
use ringway_wire::tcp::Flags;

pub static CLASS: Class =
    Class::new("FlowMonitor", || Box::<FlowMonitor>::default()).ports("1/1-2").processing("a/ah");

/// Interval at which a part of the table is scanned.
const PERIOD: u64 = SECOND / 50;
/// Lines of a table. Attack: a handler that would print millions while packets wait.
const MOST_LINES: usize = 10_000;
/// Lines of a sorted table, which are kept while it is sorted.
const MOST_TOP: usize = 1000;

/// Counts of a flow since its last report.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    packets: u64,
    bytes: u64,
    first: u64,
    flags: Flags,
    tos: u8,
}

/// When flows are reported, and under which name.
#[derive(Clone, Copy, Debug)]
struct Rules {
    idle: u64,
    active: u64,
    domain: u32,
    /// Flows last seen at or before this time are to be reported on request.
    flushed: Option<u64>,
}

impl Rules {
    /// The reason to report a flow, if it is due.
    fn end(&self, counts: &Counts, seen: u64, now: u64) -> Option<End> {
        let silent = now.saturating_sub(seen);
        let ended = counts.flags.has(Flags::FIN.with(Flags::RST)) && silent >= SECOND;
        match () {
            () if self.flushed.is_some_and(|flushed| seen <= flushed) => Some(End::Forced),
            () if silent >= self.idle => Some(End::Idle),
            () if ended => Some(End::Detected),
            () if now.saturating_sub(counts.first) >= self.active => Some(End::Active),
            () => None,
        }
    }
}

/// Totals over all flows.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    seen: u64,
    packets: u64,
    bytes: u64,
    other: u64,
    records: u64,
    /// Records sent in messages.
    sent: u64,
}

/// The flows of one IP version.
#[derive(Debug)]
struct Flows<C> {
    table: FlowTable<C, Counts>,
    waiting: Vec<Record<C>>,
}

impl<C: Ends> Default for Flows<C> {
    fn default() -> Self {
        Self { table: FlowTable::default(), waiting: Vec::with_capacity(ipfix::records::<C>()) }
    }
}

#[derive(Debug)]
pub struct FlowMonitor {
    flows: Flows<Connection>,
    flows6: Flows<Connection6>,
    rules: Rules,
    totals: Totals,
    timer: Option<Timer>,
}

impl Default for FlowMonitor {
    fn default() -> Self {
        let rules = Rules { idle: 15 * SECOND, active: 1800 * SECOND, domain: 0, flushed: None };
        let (flows, flows6) = (Flows::default(), Flows::default());
        Self { flows, flows6, rules, totals: Totals::default(), timer: None }
    }
}

impl<C: Ends> Flows<C> {
    /// Counts a packet.
    #[inline]
    fn count(
        &mut self,
        headers: &Headers<C>,
        hash: u64,
        now: u64,
        (rules, totals): (&Rules, &mut Totals),
        cx: &mut Context<'_>,
    ) {
        let Headers { connection, length, tos, flags, .. } = *headers;
        let number = match self.table.find(hash, connection) {
            Some(number) => number,
            None => {
                totals.seen += 1;
                let counts = Counts { first: now, tos, ..Counts::default() };
                let (number, evicted) = self.table.add(hash, connection, counts, now);
                if let Some((connection, counts)) = evicted {
                    self.report((connection, counts), now, End::Resources, (rules, totals), cx);
                }
                number
            }
        };
        totals.packets += 1;
        totals.bytes += u64::from(length);
        if let Some(counts) = self.table.touch(number, now) {
            counts.packets += 1;
            counts.bytes += u64::from(length);
            counts.flags = counts.flags.with(flags);
        }
    }

    fn report(
        &mut self,
        (connection, counts): (C, Counts),
        last: u64,
        end: End,
        (rules, totals): (&Rules, &mut Totals),
        cx: &mut Context<'_>,
    ) {
        if counts.packets == 0 {
            return;
        }
        totals.records += 1;
        if cx.noutputs() < 2 {
            return;
        }
        let Counts { packets, bytes, first, flags, tos } = counts;
        // Times are converted to wall-clock time when the message is built.
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
        if self.waiting.len() >= ipfix::records::<C>() {
            self.send(rules.domain, totals, cx);
        }
    }

    fn send(&mut self, domain: u32, totals: &mut Totals, cx: &mut Context<'_>) {
        if self.waiting.is_empty() {
            return;
        }
        let (wall, now) = (cx.now(), cx.coarse_now());
        for record in &mut self.waiting {
            for time in [&mut record.start, &mut record.end] {
                *time = wall.saturating_sub(now.saturating_sub(*time));
            }
        }
        // The sequence number is the count of records sent before this message (RFC 7011, 3.1).
        let message = ipfix::message(&self.waiting, domain, totals.sent as u32, wall);
        totals.sent += self.waiting.len() as u64;
        self.waiting.clear();
        if let Some(packet) = cx.packet(&message) {
            cx.push(1, packet);
        }
    }

    /// Reports due flows in a part of the table, of the size that is scanned every [`PERIOD`].
    fn sweep(&mut self, now: u64, (rules, totals): (&Rules, &mut Totals), cx: &mut Context<'_>) {
        // Scans the whole table within a quarter of the timeout, and within a second at most.
        let round = (rules.idle / 4).clamp(PERIOD, SECOND);
        let mut steps = (self.table.slots() as u64 * PERIOD).div_ceil(round) as usize;
        let mut found: (Option<End>, u64) = (None, 0);
        while let Some(number) = self.table.next_old(&mut steps, |counts, seen| {
            found = (rules.end(counts, seen, now), seen);
            found.0.is_some()
        }) {
            let (Some(end), last) = found else { continue };
            let flow = if end == End::Active {
                let Some((connection, counts)) = self.table.get(number) else { continue };
                let reported = (*connection, *counts);
                if let Some(counts) = self.table.get_mut(number) {
                    *counts = Counts { first: now, tos: counts.tos, ..Counts::default() };
                }
                reported
            } else {
                let Some(gone) = self.table.remove(number) else { continue };
                gone
            };
            self.report(flow, last, end, (rules, totals), cx);
        }
        self.send(rules.domain, totals, cx);
    }

    /// Writes lines for some flows starting at slot `from`; returns the slot to continue from.
    fn write(&self, from: u32, left: &mut usize, out: &mut String) -> Option<u32> {
        let (flows, next) = self.table.some(from, LINES);
        for (connection, Counts { packets, bytes, .. }) in flows.take(*left) {
            let _ = writeln!(out, "{} {packets} {bytes}", connection.text());
            *left -= 1;
        }
        next.filter(|_| *left > 0)
    }
}

impl<C: Ends> Flows<C> {
    /// Adds some flows from slot `from` on to the `most` with the most bytes; returns the slot to continue from.
    fn rank(&self, from: u32, most: usize, top: &mut Top) -> Option<u32> {
        let (flows, next) = self.table.some(from, LINES);
        for (connection, Counts { packets, bytes, .. }) in flows {
            let least = top.peek().map_or(0, |Reverse((least, _))| *least);
            if top.len() < most || *bytes > least {
                top.push(Reverse((*bytes, format!("{} {packets} {bytes}", connection.text()))));
            }
            if top.len() > most {
                top.pop();
            }
        }
        next
    }
}

/// Lines with their bytes; the least on top.
type Top = BinaryHeap<Reverse<(u64, String)>>;

/// Progress of looking for the flows with the most bytes: of those of IPv6, from a slot on.
#[derive(Default)]
struct Ranking(bool, u32, Top);

/// Progress of reading the table.
#[derive(Default)]
struct Reading {
    /// Lines still wanted; `None` at first.
    left: Option<usize>,
    /// Whether reading has reached the IPv6 flows.
    second: bool,
    from: u32,
}

impl FlowMonitor {
    fn table(&self, lines: usize, pieces: &mut Pieces) -> Progress {
        let mut reading: Reading = pieces.kept();
        let left = reading.left.get_or_insert(lines.min(MOST_LINES));
        let text = &mut pieces.text;
        let next = match reading.second {
            false => self.flows.write(reading.from, left, text),
            true => self.flows6.write(reading.from, left, text),
        };
        let done = *left == 0 || reading.second && next.is_none();
        reading.second |= next.is_none();
        reading.from = next.unwrap_or(0);
        if done { Progress::Done } else { pieces.keep(reading) }
    }

    fn top(&self, lines: usize, pieces: &mut Pieces) -> Progress {
        let Ranking(second, from, mut top) = pieces.kept();
        let most = lines.min(MOST_TOP);
        let next = match second {
            false => self.flows.rank(from, most, &mut top),
            true => self.flows6.rank(from, most, &mut top),
        };
        if let Some(from) = next {
            return pieces.keep(Ranking(second, from, top));
        }
        if !second {
            return pieces.keep(Ranking(true, 0, top));
        }
        for Reverse((_, line)) in top.into_sorted_vec() {
            let _ = writeln!(pieces.text, "{line}");
        }
        Progress::Done
    }

    /// Counts the packets that are not IPv4: those whose entry in `found` is empty.
    #[cold]
    fn count_others(
        &mut self,
        burst: &PacketBurst,
        found: &[Option<(Headers, u64)>],
        now: u64,
        cx: &mut Context<'_>,
    ) {
        for (packet, _) in burst.iter().zip(found).filter(|(_, found)| found.is_none()) {
            let Some(headers) = Headers::of_ip6(packet) else {
                self.totals.other += 1;
                continue;
            };
            let hash = self.flows6.table.approach(headers.connection);
            self.flows6.count(&headers, hash, now, (&self.rules, &mut self.totals), cx);
        }
    }
}

impl Element for FlowMonitor {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut capacity = USUAL;
        let (mut idle, mut active) = (Nanoseconds(self.rules.idle), Nanoseconds(self.rules.active));
        args.read_p("CAPACITY", &mut capacity);
        args.read("IDLE_TIMEOUT", &mut idle);
        args.read("ACTIVE_TIMEOUT", &mut active);
        args.read("DOMAIN", &mut self.rules.domain);
        args.complete()?;
        if capacity == 0 {
            return Err(cx.error("CAPACITY must be > 0"));
        }
        let seed = cx.own_seed();
        self.flows.table = FlowTable::new(capacity, seed);
        self.flows6.table = FlowTable::new(capacity, seed.rotate_left(17));
        (self.rules.idle, self.rules.active) = (idle.0, active.0);
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
        let mut others = false;
        for (packet, place) in burst.iter().zip(&mut found) {
            *place =
                Headers::of(packet).map(|headers| (headers, self.flows.table.approach(headers.connection)));
            others |= place.is_none();
        }
        for (_, hash) in found.iter().flatten() {
            self.flows.table.near(*hash);
        }
        for (headers, hash) in found.iter().take(burst.len()).flatten() {
            self.flows.count(headers, *hash, now, (&self.rules, &mut self.totals), cx);
        }
        if others {
            self.count_others(burst, &found, now, cx);
        }
    }

    fn run_timer(&mut self, timer: Timer, cx: &mut Context<'_>) {
        let now = cx.steady();
        self.flows.sweep(now, (&self.rules, &mut self.totals), cx);
        self.flows6.sweep(now, (&self.rules, &mut self.totals), cx);
        if self.flows.table.len() + self.flows6.table.len() == 0 {
            self.rules.flushed = None;
        }
        cx.set_timer_again(timer, PERIOD);
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("count", |e: &Self| e.flows.table.len() + e.flows6.table.len()),
            Handler::read("flows", |e: &Self| e.totals.seen),
            Handler::read("packets", |e: &Self| e.totals.packets),
            Handler::read("bytes", |e: &Self| e.totals.bytes),
            Handler::read("other", |e: &Self| e.totals.other),
            Handler::read("evictions", |e: &Self| e.flows.table.evictions() + e.flows6.table.evictions()),
            Handler::read("records", |e: &Self| e.totals.records),
            Handler::read("capacity", |e: &Self| e.flows.table.capacity()),
            Handler::read_in_pieces("table", |e: &mut Self, parameter, pieces, cx| {
                let lines = if parameter.is_empty() { 100 } else { cx.parse::<u32>(parameter)? };
                Ok(e.table(lines as usize, pieces))
            })
            .parameters()
            .expensive(),
            Handler::read_in_pieces("top", |e: &mut Self, parameter, pieces, cx| {
                let lines = if parameter.is_empty() { 10 } else { cx.parse::<u32>(parameter)? };
                Ok(e.top(lines as usize, pieces))
            })
            .parameters()
            .expensive(),
            Handler::button("flush", |e: &mut Self, cx| e.rules.flushed = Some(cx.coarse_now())),
        ]
        .into()
    }

    fn reseed(&mut self, cx: &mut Context<'_>) {
        let seed = cx.own_seed();
        self.flows.table.reseed(seed);
        self.flows6.table.reseed(seed.rotate_left(17));
    }

    fn take_state(&mut self, from: &mut dyn Element, _: &mut Context<'_>) {
        if let Some(from) = from.downcast_mut::<Self>() {
            core::mem::swap(&mut self.flows, &mut from.flows);
            core::mem::swap(&mut self.flows6, &mut from.flows6);
            self.totals = from.totals;
        }
    }
}
