//! `IDSMatcher(PATTERN, ..., NOCASE, FLOWS)`: classifies packets by whether their payload contains one of many
//! patterns.
//!
//! Ports: one push input; output 0: packets without a match; output 1 (optional): packets with a match, otherwise
//! dropped. For IP packets with a marked header, the payload of TCP and UDP is searched; for other protocols, and
//! fragments without the transport header, all bytes after the IP headers; for all other packets the whole packet.
//!
//! Arguments:
//! - `PATTERN`: bytes, as a Click string: `"/cgi-bin/"`, `\<90 90 90>`. Once per pattern, by position or as keyword;
//!   at most 1048576 patterns and 64 MB.
//! - `NOCASE`: whether the case of ASCII letters does not matter; false by default.
//! - `FLOWS`: number of TCP connections, counted per direction, that are followed across segments, at most 1048576; 0
//!   by default. A pattern that is split over consecutive segments is then found too: the last segment goes to output
//!   1, the earlier ones were already sent. Per connection, the last bytes are kept: one less than the length of the
//!   longest pattern, at most 255; longer beginnings of a pattern are not found. Retransmitted segments have no
//!   effect. After a segment that arrives too early the connection starts over, so patterns split there are not found;
//!   neither are patterns split over IP fragments or UDP datagrams. If there are more connections, the least recently
//!   used of sixteen is removed.
//!
//! Handlers: `packets` (searched), `matches`, `drops` (matches without output 1), `patterns` (their number) (read);
//! `table` (read): for each pattern that was found, its index and the number of packets, where each packet counts for
//! one of its patterns; with FLOWS `split` (matches across segments), `flows`, `evictions`, `gaps` (read); `reset`
//! (write).
use super::patterns::Patterns;
use super::streams::Streams;
use crate::flow::connection::{Connection6, Headers};
use crate::flow::table::USUAL;
use crate::ip::transport::Transport;
use ringway_click::LINES;
use ringway_click::arg::Arg;
use ringway_click::prelude::*;
use ringway_wire::{Header, Protocol, Tcp, Udp, ipv6};

pub static CLASS: Class = Class::new("IDSMatcher", || Box::<IdsMatcher>::default())
    .ports("1/1-2")
    .processing("h")
    .metadata(Metadata::Keeps);

/// Maximum number of patterns, and of their bytes. Attack: a configuration that exhausts memory.
const MOST: usize = 1 << 20;
const MOST_BYTES: usize = 64 << 20;

#[derive(Debug, Default)]
pub struct IdsMatcher {
    patterns: Option<Patterns>,
    counts: Vec<u64>,
    packets: u64,
    matches: u64,
    drops: u64,
    split: u64,
    streams: Option<Streams>,
}

/// The part of a packet that is searched.
#[inline]
pub(super) fn text(packet: &Packet) -> &[u8] {
    let Some(ip) = packet.network_data() else { return packet.data() };
    let (protocol, later, payload) = match ip.first().map(|first| first >> 4) {
        Some(4) => {
            let Some(transport) = Transport::of(ip) else { return packet.data() };
            let Some(payload) = ip.get(transport.header..) else { return packet.data() };
            (transport.protocol, transport.later, payload.get(..transport.length).unwrap_or(payload))
        }
        Some(6) => match ip6_payload(ip) {
            Some(found) => found,
            None => return packet.data(),
        },
        _ => return packet.data(),
    };
    let header = match protocol {
        _ if later => 0,
        Protocol::TCP => Tcp::header_len_of(payload).unwrap_or(0).max(Tcp::LEN),
        Protocol::UDP => Udp::LEN,
        _ => 0,
    };
    payload.get(header..).unwrap_or_default()
}

/// The protocol of an IPv6 packet, whether the packet is a later fragment, and its payload.
fn ip6_payload(ip: &[u8]) -> Option<(Protocol, bool, &[u8])> {
    let packet = ipv6::Packet::parse(ip)?;
    let upper = packet.upper()?;
    let is_later = |part: ipv6::Extension<'_>| part.fragment().is_some_and(|fragment| fragment.offset() > 0);
    let later = upper.fragment && packet.extensions().flatten().any(is_later);
    Some((upper.protocol, later, upper.payload))
}

/// The headers of a TCP segment, and the segment.
pub(super) fn segment(packet: &Packet) -> Option<(Headers<Connection6>, &[u8])> {
    let ip = packet.network_data()?;
    let headers = match Headers::of(packet) {
        Some(Headers { connection, length, tos, flags, transport, has_ports }) => {
            Headers { connection: connection.into(), length, tos, flags, transport, has_ports }
        }
        None => Headers::of_ip6(packet)?,
    };
    // Bytes of the frame after the packet are not searched.
    let end = ip.len().min(headers.length as usize);
    let whole = headers.has_ports && headers.connection.protocol == Protocol::TCP;
    if whole { Some((headers, ip.get(headers.transport..end)?)) } else { None }
}

impl IdsMatcher {
    /// The pattern that a packet contains, or completes together with the preceding ones of its stream.
    #[inline]
    fn find(&mut self, packet: &Packet, now: u64) -> Option<usize> {
        let patterns = self.patterns.as_ref()?;
        let found = patterns.find(text(packet));
        let Some(streams) = &mut self.streams else { return found };
        let across = segment(packet).and_then(|(headers, segment)| streams.take(&headers, segment, now));
        found.or_else(|| {
            let split = patterns.find(across?);
            self.split += u64::from(split.is_some());
            split
        })
    }
}

impl Element for IdsMatcher {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut nocase, mut patterns): (bool, Vec<Vec<u8>>) = (false, Vec::new());
        let mut flows = 0u32;
        args.read("NOCASE", &mut nocase);
        args.read("FLOWS", &mut flows);
        args.read_all("PATTERN", &mut patterns);
        args.result()?;
        let scope = cx.scope();
        for (number, text) in args.take_rest().into_iter().enumerate() {
            if number % LINES == LINES - 1 {
                cx.breathe();
            }
            match Vec::<u8>::parse(&text, &scope) {
                Ok(pattern) => patterns.push(pattern),
                Err(error) => args.error(format!("PATTERN '{text}': {error}")),
            }
        }
        args.complete()?;
        let error = match () {
            () if patterns.is_empty() => "need at least one PATTERN",
            () if patterns.iter().any(Vec::is_empty) => "a PATTERN must not be empty",
            () if patterns.len() > MOST => "too many patterns",
            () if flows > USUAL => "FLOWS too large, bound 1048576",
            () if patterns.iter().map(Vec::len).sum::<usize>() > MOST_BYTES => "patterns too long",
            () => "",
        };
        if !error.is_empty() {
            return Err(cx.error(error));
        }
        self.counts = vec![0; patterns.len()];
        if flows > 0 {
            let longest = patterns.iter().map(Vec::len).max().unwrap_or(0);
            self.streams = Some(Streams::seeded(flows, longest, cx));
        }
        self.patterns = Some(Patterns::new(patterns, nocase).map_err(|error| cx.error(error.to_string()))?);
        Ok(())
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let (now, diverted) = (cx.coarse_now(), cx.noutputs() > 1);
        self.packets += burst.len() as u64;
        burst.filter_map(|packet| {
            let Some(found) = self.find(&packet, now) else { return Some(packet) };
            self.matches += 1;
            self.drops += u64::from(!diverted);
            if let Some(count) = self.counts.get_mut(found) {
                *count += 1;
            }
            cx.push(1, packet);
            None
        });
    }

    fn reseed(&mut self, cx: &mut Context<'_>) {
        self.streams.iter_mut().for_each(|streams| streams.reseed(cx));
    }

    fn handlers(&self) -> Vec<Handler> {
        let mut handlers = Vec::from([
            Handler::counter("packets", |e: &mut Self| &mut e.packets),
            Handler::counter("matches", |e: &mut Self| &mut e.matches),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
            Handler::read("patterns", |e: &Self| e.patterns.as_ref().map_or(0, Patterns::len)),
            Handler::read("table", |e: &Self| {
                let counts = e.counts.iter().enumerate().filter(|(_, count)| **count > 0);
                counts.map(|(number, count)| format!("{number} {count}\n")).collect::<String>()
            }),
        ]);
        if self.streams.is_some() {
            handlers.push(Handler::read("split", |e: &Self| e.split));
            handlers.extend(Streams::handlers(|e: &Self| e.streams.as_ref()));
        }
        handlers.push(Handler::button("reset", |e: &mut Self, _| {
            (e.packets, e.matches, e.drops, e.split) = (0, 0, 0, 0);
            e.counts.fill(0);
        }));
        handlers
    }
}
