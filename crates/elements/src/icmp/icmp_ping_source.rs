//! `ICMPPingSource(SRC, DST, INTERVAL, IDENTIFIER, DATA, LIMIT, ACTIVE, VERBOSE, STOP)`: sends ICMP echo requests, and
//! takes note of the replies.
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
//! - `STOP`: stops the driver after LIMIT requests; false by default.
//!
//! Handlers: `active`, `src`, `dst`, `interval`, `limit` (read, write); `count`, `summary`, `rtt_min`, `rtt_avg`,
//! `rtt_max` (read); `reset_counts` (write).
use super::message::Message;
use crate::ip::transport::Transport;
use crate::stamp::Stamp;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use ringway_click::arg::{Args, Nanoseconds};
use ringway_click::{
    Class, Context, Element, Failed, HEADROOM, Handler, Metadata, Note, NoteKind, Packet, PacketBurst,
    SECOND, Search, Timer,
};
use ringway_wire::icmp::v4::ECHO_REPLY;
use ringway_wire::{Header, Icmp, Ipv4, Protocol};

pub static CLASS: Class = Class::new("ICMPPingSource", || Box::<IcmpPingSource>::default())
    .ports("0-1/1")
    .processing("h/a")
    .flags("S1")
    .metadata(Metadata::Ignores);

/// Maximum number of requests without a reply.
const WINDOW: usize = 1024;

/// Sends requests.
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
    replies: u64,
    /// When each of the last requests was sent, by sequence number; 0 once its reply has arrived.
    sent: Vec<u64>,
    shortest: u64,
    longest: u64,
    total: u64,
    timer: Option<Timer>,
    note: Option<Note>,
}

impl Element for IcmpPingSource {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut interval = Nanoseconds(SECOND);
        (self.limit, self.active, self.verbose) = (-1, true, true);
        self.message.read_addresses(args);
        args.read("INTERVAL", &mut interval);
        args.read("IDENTIFIER", &mut self.message.id);
        args.read("DATA", &mut self.data);
        args.read("LIMIT", &mut self.limit);
        args.read("ACTIVE", &mut self.active);
        args.read("VERBOSE", &mut self.verbose);
        args.read("STOP", &mut self.stop);
        args.complete()?;
        if self.data.len() > 0xffff - 28 {
            return Err(cx.error("DATA too long"));
        }
        self.interval = interval.0.max(1000);
        self.sent = vec![0; WINDOW];
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
            return;
        }
        if let Some(packet) = self.request(cx) {
            cx.push(0, packet);
        }
        if self.may_send() {
            cx.set_timer_again(timer, self.interval);
        } else if self.stop {
            cx.stop();
        }
    }

    fn pull(&mut self, _: usize, max: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for _ in 0..max {
            if !self.may_send() {
                if let Some(note) = self.note {
                    cx.sleep(note);
                }
                return;
            }
            if let Some(packet) = self.request(cx) {
                burst.push(packet);
            }
        }
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.drain() {
            self.reply(&packet, cx);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        let [source, destination] = Message::handlers(|e: &mut Self| &mut e.message);
        [
            Handler::read("count", |e: &Self| e.count),
            Handler::read("summary", Self::summary),
            Handler::read("rtt_min", |e: &Self| Stamp(e.shortest)),
            Handler::read("rtt_avg", |e: &Self| Stamp(e.average())),
            Handler::read("rtt_max", |e: &Self| Stamp(e.longest)),
            Handler::field("active", |e: &mut Self| &mut e.active).checkbox(),
            source,
            destination,
            Handler::read("interval", |e: &Self| Stamp(e.interval)).calm().writes(
                |e: &mut Self, value, cx| {
                    e.interval = cx.parse::<Nanoseconds>(value)?.0.max(1000);
                    Ok(())
                },
            ),
            Handler::field("limit", |e: &mut Self| &mut e.limit).calm(),
            Handler::button("reset_counts", |e: &mut Self, _| {
                (e.count, e.replies, e.shortest, e.longest, e.total) = (0, 0, 0, 0, 0);
            }),
        ]
        .map(|handler| handler.then(Self::schedule))
        .into()
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

    fn request(&mut self, cx: &mut Context<'_>) -> Option<Packet> {
        let mut packet = cx.make_packet(HEADROOM + 28, self.data.len(), 0)?;
        packet.data_mut().copy_from_slice(&self.data);
        let now = cx.now();
        self.sent[usize::from(self.message.sequence) % WINDOW] = now;
        self.message.wrap(&mut packet);
        packet.notes_mut().timestamp = now;
        self.count += 1;
        Some(packet)
    }

    fn reply(&mut self, packet: &Packet, cx: &mut Context<'_>) {
        let Some(data) = packet.network_data() else { return };
        let (Some(transport), Some((ip, _, message))) = (Transport::of(data), Ipv4::parse(data)) else {
            return;
        };
        let ours = |icmp: &&Icmp| {
            let ours = transport.protocol == Protocol::ICMP && !transport.later;
            ours && icmp.kind == ECHO_REPLY && icmp.identifier == self.message.id
        };
        let Some(sequence) = Icmp::of(message).filter(ours).map(|icmp| icmp.sequence_number.get()) else {
            return;
        };
        let sent = core::mem::take(&mut self.sent[usize::from(sequence) % WINDOW]);
        if sent == 0 {
            return;
        }
        let trip = cx.now().saturating_sub(sent);
        self.shortest = if self.replies == 0 { trip } else { self.shortest.min(trip) };
        self.longest = self.longest.max(trip);
        self.total += trip;
        self.replies += 1;
        if self.verbose {
            let name = cx.declaration();
            let (from, length) = (ip.source_addr(), data.len());
            let (ttl, time) = (ip.ttl, Stamp(trip));
            cx.chatter(format_args!(
                "{name}: {length} bytes from {from}: icmp_seq={sequence} ttl={ttl} time={time}"
            ));
        }
    }

    /// The average round-trip time.
    fn average(&self) -> u64 {
        self.total / self.replies.max(1)
    }

    fn summary(&self) -> String {
        let (sent, received) = (self.count, self.replies);
        let lost = sent.saturating_sub(received) * 100 / sent.max(1);
        let times = format!("{}/{}/{}", Stamp(self.shortest), Stamp(self.average()), Stamp(self.longest));
        format!(
            "{sent} packets transmitted, {received} received, {lost}% packet loss\n\
             rtt min/avg/max = {times}\n"
        )
    }
}
