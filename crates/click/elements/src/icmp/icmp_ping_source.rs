//! `ICMPPingSource(SRC, DST, INTERVAL, IDENTIFIER, DATA, LIMIT, ACTIVE, VERBOSE, STOP, MIRROR)`: sends ICMP echo
//! requests, and records the replies.
//!
//! Ports: optionally one push input for replies; one output, push or pull, for requests.
//!
//! Arguments:
//! - `SRC`, `DST`: addresses.
//! - `INTERVAL`: time between requests; a second by default.
//! - `IDENTIFIER`: of all requests; 0 by default.
//! - `DATA`: what they hold.
//! - `LIMIT`: requests in all; no limit if negative, as by default.
//! - `ACTIVE`: whether it sends; true by default.
//! - `VERBOSE`: prints a line for each reply; true by default.
//! - `STOP`: stops the driver an interval after LIMIT requests; false by default.
//! - `MIRROR`: sends the next request at once when a reply arrives, of the same length; false by default.
//!
//! If replies are taken and VERBOSE is true, the summary is printed at the end.
//!
//! Handlers: `active`, `src`, `dst`, `interval`, `limit` (read, write); `count`, `summary`, `rtt_min`, `rtt_avg`,
//! `rtt_max` (read); `reset_counts` (write).
use super::message::Message;
use crate::ip::transport::Transport;
use core::fmt;
use core::fmt::Write;
use ringway_click::arg::Nanoseconds;
use ringway_click::prelude::*;
use ringway_click::{HEADROOM, Note, NoteKind, Search, Timestamp};
use ringway_wire::icmp::v4::ECHO_REPLY;
use ringway_wire::{Header, Icmp, Ipv4, Protocol};

pub static CLASS: Class = Class::new("ICMPPingSource", || Box::<IcmpPingSource>::default())
    .ports("0-1/1")
    .processing("h/a")
    .flags("S1")
    .metadata(Metadata::Ignores);

/// Maximum number of requests without a reply.
const WINDOW: usize = 1024;

/// Time to live of requests.
const TTL: u8 = 200;

/// A request that was sent.
#[derive(Clone, Copy, Debug, Default)]
struct Request {
    /// When; 0 if there was none.
    at: u64,
    answered: bool,
}

/// Replies and their round-trip times in microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Trips {
    replies: u64,
    duplicates: u64,
    shortest: u64,
    longest: u64,
    total: u64,
    /// The sum of the squares.
    squares: u64,
}

impl Trips {
    fn add(&mut self, time: Option<u64>) {
        if let Some(time) = time {
            self.shortest = if self.replies == 0 { time } else { self.shortest.min(time) };
            self.longest = self.longest.max(time);
            self.total = self.total.saturating_add(time);
            self.squares = self.squares.saturating_add(time.saturating_mul(time));
        }
        self.replies += 1;
    }

    fn average(&self) -> u64 {
        self.total / self.replies.max(1)
    }

    fn deviation(&self) -> u64 {
        let mean = self.average();
        (self.squares / self.replies.max(1)).saturating_sub(mean.saturating_mul(mean)).isqrt()
    }

    fn text(&self, sent: u64) -> String {
        let Self { replies, duplicates, shortest, longest, .. } = *self;
        let mut text = format!("{sent} packets transmitted, {} received", replies - duplicates);
        if duplicates > 0 {
            let _ = write!(text, ", +{duplicates} duplicates");
        }
        if let Some(lost) = (sent.saturating_sub(replies - duplicates) * 100).checked_div(sent) {
            let _ = writeln!(text, ", {lost}% packet loss");
        }
        if replies > 0 {
            let times = [shortest, self.average(), longest, self.deviation()].map(Milliseconds);
            let [shortest, average, longest, deviation] = times;
            let _ = writeln!(text, "rtt min/avg/max/mdev = {shortest}/{average}/{longest}/{deviation}");
        }
        text
    }
}

/// Microseconds as milliseconds.
#[derive(Clone, Copy)]
struct Milliseconds(u64);

impl fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// Microseconds as seconds.
#[derive(Clone, Copy)]
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000);
        write!(f, "{}s", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[derive(Debug, Default)]
pub struct IcmpPingSource {
    message: Message,
    data: Vec<u8>,
    interval: u64,
    limit: i64,
    active: bool,
    verbose: bool,
    stop: bool,
    count: u64,
    mirror: bool,
    /// The last requests, by sequence number.
    sent: Vec<Request>,
    trips: Trips,
    timer: Option<Timer>,
    note: Option<Note>,
}

impl Element for IcmpPingSource {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut interval = Nanoseconds(SECOND);
        (self.limit, self.active, self.verbose) = (-1, true, true);
        self.message.encap.ttl = TTL;
        self.message.read_addresses(args);
        args.read("INTERVAL", &mut interval);
        args.read("IDENTIFIER", &mut self.message.id);
        args.read("DATA", &mut self.data);
        args.read("LIMIT", &mut self.limit);
        args.read("ACTIVE", &mut self.active);
        args.read("VERBOSE", &mut self.verbose);
        args.read("STOP", &mut self.stop);
        args.read("MIRROR", &mut self.mirror);
        args.complete()?;
        if self.mirror && !cx.output_is_push(0) {
            return Err(cx.error("MIRROR invalid on pull element"));
        }
        if self.data.len() > 0xffff - 28 {
            return Err(cx.error("DATA too long"));
        }
        self.interval = interval.0.max(1000);
        self.sent = vec![Request::default(); WINDOW];
        self.note = Some(cx.new_note(NoteKind::Empty, Search::Stop));
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        if cx.output_is_push(0) {
            let timer = cx.new_timer();
            self.timer = Some(timer);
            self.schedule(cx);
        }
        Ok(())
    }

    fn run_timer(&mut self, timer: Timer, cx: &mut Context<'_>) {
        if !self.may_send() {
            if self.stop && self.active {
                cx.stop();
            }
            return;
        }
        if let Some(packet) = self.request(None, cx) {
            cx.lend(self, |cx| cx.push(0, packet));
        }
        cx.set_timer_again(timer, self.interval);
    }

    fn pull(&mut self, _: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for _ in 0..max {
            if !self.may_send() {
                if let Some(note) = self.note {
                    cx.sleep(note);
                }
                if core::mem::take(&mut self.stop) {
                    cx.stop();
                }
                return;
            }
            if let Some(packet) = self.request(None, cx) {
                burst.push(packet);
            }
        }
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.drain() {
            let Some(data) = self.reply(&packet, cx).filter(|_| self.mirror) else { continue };
            let data = packet.network_data().and_then(|all| all.get(data..)).unwrap_or(&[]);
            if let Some(request) = self.request(Some(data), cx) {
                cx.push(0, request);
            }
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        let [source, destination] = Message::handlers(|e: &mut Self| &mut e.message);
        [
            Handler::read("count", |e: &Self| e.count),
            Handler::read("summary", |e: &Self| e.trips.text(e.count)),
            Handler::read("rtt_min", |e: &Self| Seconds(e.trips.shortest)),
            Handler::read("rtt_avg", |e: &Self| Seconds(e.trips.average())),
            Handler::read("rtt_max", |e: &Self| Seconds(e.trips.longest)),
            Handler::field("active", |e: &mut Self| &mut e.active).checkbox(),
            source,
            destination,
            Handler::read("interval", |e: &Self| Timestamp(e.interval)).calm().writes(
                |e: &mut Self, value, cx| {
                    e.interval = cx.parse::<Nanoseconds>(value)?.0.max(1000);
                    Ok(())
                },
            ),
            Handler::field("limit", |e: &mut Self| &mut e.limit).calm(),
            Handler::button("reset_counts", |e: &mut Self, _| {
                (e.count, e.trips) = (0, Trips::default());
                e.sent.fill(Request::default());
            }),
        ]
        .map(|handler| handler.then(Self::schedule))
        .into()
    }

    fn cleanup(&mut self, cx: &mut Context<'_>) {
        if self.verbose && cx.ninputs() > 0 {
            let name = cx.declaration();
            self.trips.text(self.count).lines().for_each(|line| cx.chatter(format_args!("{name}: {line}")));
        }
    }
}

impl IcmpPingSource {
    fn may_send(&self) -> bool {
        self.active && u64::try_from(self.limit).map_or(true, |limit| self.count < limit)
    }

    fn schedule(&mut self, cx: &mut Context<'_>) {
        if !self.may_send() {
            return;
        }
        match (self.timer, self.note) {
            (Some(timer), _) if !cx.is_timer_set(timer) => cx.set_timer_after(timer, self.interval),
            (None, Some(note)) => cx.wake(note),
            _ => {}
        }
    }

    /// The next request, with this data.
    fn request(&mut self, data: Option<&[u8]>, cx: &mut Context<'_>) -> Option<Packet> {
        let data = data.unwrap_or(&self.data);
        let mut packet = cx.make_packet(HEADROOM + 28, data.len(), 0)?;
        packet.data_mut().copy_from_slice(data);
        let at = cx.now();
        // Sequence numbers and identifications from 1 to 0xffff.
        self.message.sequence = (self.count % 0xffff) as u16 + 1;
        self.message.encap.id = self.message.sequence;
        self.sent[usize::from(self.message.sequence) % WINDOW] = Request { at, answered: false };
        self.message.wrap(&mut packet);
        packet.set_timestamp(at);
        self.count += 1;
        Some(packet)
    }

    /// Takes note of a reply; returns where its data begins in the IP packet.
    fn reply(&mut self, packet: &Packet, cx: &mut Context<'_>) -> Option<usize> {
        let data = packet.network_data()?;
        let (transport, (ip, _, message)) = (Transport::of(data)?, Ipv4::parse(data)?);
        let icmp = Icmp::of(message).filter(|_| transport.protocol == Protocol::ICMP && !transport.later)?;
        if icmp.kind != ECHO_REPLY || icmp.identifier != self.message.id {
            return None;
        }
        let sequence = icmp.sequence_number.get();
        let request = &mut self.sent[usize::from(sequence) % WINDOW];
        let payload = transport.header + Icmp::LEN;
        if request.at == 0 {
            return Some(payload);
        }
        self.trips.duplicates += u64::from(core::mem::replace(&mut request.answered, true));
        let arrived = Some(packet.timestamp()).filter(|arrived| *arrived > 0);
        let trip = arrived.map(|arrived| arrived.saturating_sub(request.at) / 1000);
        self.trips.add(trip);
        if self.verbose {
            let name = cx.declaration();
            let (from, length, ttl) = (ip.source_addr(), data.len().saturating_sub(payload), ip.ttl);
            let time = Milliseconds(trip.unwrap_or(0));
            cx.chatter(format_args!(
                "{name}: {length} bytes from {from}: icmp_seq={sequence} ttl={ttl} time={time} ms"
            ));
        }
        Some(payload)
    }
}
