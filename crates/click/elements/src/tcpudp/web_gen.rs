//! `WebGen(PREFIX, DST, RATE)`: requests random pages from a web server, each over a new TCP connection.
//!
//! Ports: one push input for IPv4 packets from the server, one push output for IPv4 packets to it.
//!
//! Arguments:
//! - `PREFIX`: source addresses, chosen at random.
//! - `DST`: the server's address; its port is 80.
//! - `RATE`: new connections per second.
//!
//! Handlers: `initiated`, `completed`, `timeouts`, `resets` (read): numbers of connections. Every five seconds, and at
//! the end, it prints these numbers since the last line. An unanswered segment is retransmitted after one second, at
//! most five times. There are at most 65536 concurrent connections.
use super::template::segment_packet;
use core::net::Ipv4Addr;
use ringway_click::arg::Prefix;
use ringway_click::prelude::*;
use ringway_click::{BEHIND, OrderedMap, OrderedSet};
use ringway_wire::tcp::Flags;
use ringway_wire::{Ipv4, Protocol, Tcp, ipv4};

pub static CLASS: Class = Class::new("WebGen", || Box::<WebGen>::default())
    .ports("1/1")
    .processing("h")
    .metadata(Metadata::Resolve);

/// Maximum number of concurrent connections. Attack: a server that never answers.
const MOST: usize = 1 << 16;
/// Maximum number of connections opened per run.
const BURST: u32 = 256;
const RESEND_AFTER: u64 = SECOND;
const RESENDS: u8 = 5;
const REPORT_AFTER: u64 = 5 * SECOND;
const TURN: u64 = SECOND / 1000;
const SERVER_PORT: u16 = 80;

/// Source address and port of a connection.
type Key = (u32, u16);

#[derive(Debug)]
struct Connection {
    initial: u32,
    /// The next expected sequence number; `None` before the server's SYN.
    expected: Option<u32>,
    /// Whether the server has acknowledged the request.
    acknowledged: bool,
    sent: u64,
    resends: u8,
    request: String,
}

/// Counts of connections.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    initiated: u64,
    completed: u64,
    timeouts: u64,
    resets: u64,
}

#[derive(Debug)]
pub struct WebGen {
    prefix: Prefix,
    server: Ipv4Addr,
    interval: u64,
    connections: OrderedMap<Key, Connection>,
    /// The retransmission time of each connection.
    due: OrderedSet<(u64, Key)>,
    /// The time at which the next connection is opened.
    next: u64,
    reported: u64,
    identification: u16,
    counts: Counts,
    reported_counts: Counts,
}

impl Default for WebGen {
    fn default() -> Self {
        Self {
            prefix: Prefix { address: Ipv4Addr::UNSPECIFIED, mask: Ipv4Addr::UNSPECIFIED },
            server: Ipv4Addr::UNSPECIFIED,
            interval: SECOND,
            connections: OrderedMap::new(),
            due: OrderedSet::new(),
            next: 0,
            reported: 0,
            identification: 0,
            counts: Counts::default(),
            reported_counts: Counts::default(),
        }
    }
}

impl WebGen {
    /// Emits a segment from a connection's address and port to the server.
    fn emit(&mut self, (source, port): Key, tcp: Tcp, payload: &[u8], cx: &mut Context<'_>) {
        self.identification = self.identification.wrapping_add(1);
        let ip = Ipv4 {
            identification: self.identification.into(),
            ttl: 250,
            source: source.into(),
            destination: self.server.to_bits().into(),
            ..Ipv4::EMPTY
        };
        let tcp = Tcp { source_port: port.into(), window: (60 * 1024).into(), ..tcp };
        if let Some(packet) = segment_packet(ip, tcp, payload, cx) {
            cx.push(0, packet);
        }
    }

    /// Sends the segment for the state of a connection: SYN, the request, or an acknowledgment.
    fn send(&mut self, key: Key, now: u64, cx: &mut Context<'_>) {
        let Some(connection) = self.connections.get_mut(key) else { return };
        connection.sent = now;
        let after = connection.initial.wrapping_add(1);
        let empty = Tcp { destination_port: SERVER_PORT.into(), ..Tcp::EMPTY };
        let Some(expected) = connection.expected else {
            let syn = Tcp { sequence_number: connection.initial.into(), flags: Flags::SYN, ..empty };
            return self.emit(key, syn, &[], cx);
        };
        let tcp = Tcp { acknowledgment_number: expected.into(), ..empty };
        if connection.acknowledged {
            // The request and the FIN behind it are acknowledged.
            let next = after.wrapping_add(connection.request.len() as u32 + 1);
            return self.emit(key, Tcp { sequence_number: next.into(), flags: Flags::ACK, ..tcp }, &[], cx);
        }
        let (flags, request) = (Flags::ACK.with(Flags::PSH).with(Flags::FIN), connection.request.clone());
        self.emit(key, Tcp { sequence_number: after.into(), flags, ..tcp }, request.as_bytes(), cx);
    }

    /// Opens a connection.
    fn begin(&mut self, now: u64, cx: &mut Context<'_>) {
        let (address, mask) = (self.prefix.address.to_bits(), self.prefix.mask.to_bits());
        let source = cx.random() & !mask | address & mask;
        let key = (source, cx.random_between(1024, 61_023) as u16);
        if self.connections.len() >= MOST || self.connections.contains_key(key) {
            return;
        }
        let [directory, file, class] = [9, 8, 2].map(|most| cx.random_between(0, most));
        let connection = Connection {
            initial: cx.random() & 0x0fff_ffff,
            expected: None,
            acknowledged: false,
            sent: now,
            resends: 0,
            request: format!("GET /spec/{directory}/{directory}-{class}-{file} HTTP/1.0\r\n\r\n"),
        };
        self.connections.insert(key, connection);
        self.due.insert((now + RESEND_AFTER, key));
        self.counts.initiated += 1;
        self.send(key, now, cx);
    }

    /// Retransmits unanswered segments, and ends connections after some retransmissions.
    fn resend(&mut self, now: u64, cx: &mut Context<'_>) {
        while let Some((_, key)) = self.due.first().filter(|(due, _)| *due <= now) {
            self.due.pop_first();
            let Some(connection) = self.connections.get_mut(key) else { continue };
            let due = connection.sent.saturating_add(RESEND_AFTER);
            if due > now {
                self.due.insert((due, key));
                continue;
            }
            if connection.resends >= RESENDS {
                self.connections.remove(key);
                self.counts.timeouts += 1;
                continue;
            }
            connection.resends += 1;
            self.due.insert((now + RESEND_AFTER, key));
            self.send(key, now, cx);
        }
    }

    /// Processes a segment from the server.
    fn receive(&mut self, packet: &Packet, cx: &mut Context<'_>) {
        let Some(packet) = ipv4::Packet::parse(packet.data()).filter(|packet| packet.whole) else { return };
        let ip = packet.header;
        let Some((tcp, _, payload)) = Tcp::parse(packet.payload) else { return };
        if ip.protocol != Protocol::TCP || ip.is_fragment() {
            return;
        }
        let key = (ip.destination.get(), tcp.destination_port.get());
        let (ack, has) = (tcp.acknowledgment_number, |flags| tcp.flags.has(flags));
        let from_server = ip.source == self.server.to_bits() && tcp.source_port == SERVER_PORT;
        let Some(connection) = self.connections.get_mut(key).filter(|_| from_server) else {
            if !has(Flags::RST) && ip.source == self.server.to_bits() {
                let (destination_port, acknowledgment_number) = (tcp.source_port, tcp.sequence_number);
                let reset = Tcp {
                    destination_port,
                    sequence_number: ack,
                    acknowledgment_number,
                    flags: Flags::RST,
                    ..Tcp::EMPTY
                };
                self.emit(key, reset, &[], cx);
            }
            return;
        };
        if has(Flags::RST) {
            self.connections.remove(key);
            self.counts.resets += 1;
            return;
        }
        let (now, after) = (cx.steady(), connection.initial.wrapping_add(1));
        let sequence = tcp.sequence_number.get();
        let Some(expected) = connection.expected else {
            if has(Flags::SYN) && has(Flags::ACK) && ack == after {
                connection.expected = Some(sequence.wrapping_add(1));
                connection.resends = 0;
                self.send(key, now, cx);
            }
            return;
        };
        if has(Flags::ACK) && ack == after.wrapping_add(connection.request.len() as u32 + 1) {
            connection.acknowledged = true;
        }
        let in_order = sequence == expected;
        let taken = if in_order { payload.len() as u32 + u32::from(has(Flags::FIN)) } else { 0 };
        connection.expected = Some(expected.wrapping_add(taken));
        if taken > 0 {
            connection.resends = 0;
        }
        if !payload.is_empty() || has(Flags::FIN) || has(Flags::SYN) {
            self.send(key, now, cx);
        }
        if in_order && has(Flags::FIN) {
            self.connections.remove(key);
            self.counts.completed += 1;
        }
    }

    /// Prints the numbers since the last report.
    fn report(&mut self, cx: &mut Context<'_>) {
        let (new, old) = (self.counts, core::mem::replace(&mut self.reported_counts, self.counts));
        cx.chatter(format_args!(
            "init: {}  comp: {:5}  tmo: {:5}  rst: {:5}",
            new.initiated - old.initiated,
            new.completed - old.completed,
            new.timeouts - old.timeouts,
            new.resets - old.resets
        ));
    }
}

impl Element for WebGen {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut rate = 1u32;
        args.read_mp("PREFIX", &mut self.prefix);
        args.read_mp("DST", &mut self.server);
        args.read_mp("RATE", &mut rate);
        args.complete()?;
        if rate == 0 {
            return Err(cx.error("RATE must be positive"));
        }
        self.interval = (SECOND / u64::from(rate)).max(1);
        Ok(())
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        let now = cx.steady();
        (self.next, self.reported) = (now, now);
        let timer = cx.new_timer();
        cx.set_timer(timer, now);
        Ok(())
    }

    fn run_timer(&mut self, timer: Timer, cx: &mut Context<'_>) {
        let now = cx.steady();
        // Connections that could not be opened in time are skipped.
        self.next = self.next.max(now.saturating_sub(BEHIND));
        for _ in 0..BURST {
            if self.next > now {
                break;
            }
            self.next += self.interval;
            self.begin(now, cx);
        }
        self.resend(now, cx);
        if now >= self.reported + REPORT_AFTER {
            self.reported = now;
            self.report(cx);
        }
        cx.set_timer_after(timer, TURN);
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.drain() {
            self.receive(&packet, cx);
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("initiated", |e: &Self| e.counts.initiated),
            Handler::read("completed", |e: &Self| e.counts.completed),
            Handler::read("timeouts", |e: &Self| e.counts.timeouts),
            Handler::read("resets", |e: &Self| e.counts.resets),
        ]
        .into()
    }

    fn cleanup(&mut self, cx: &mut Context<'_>) {
        self.report(cx);
    }
}
