//! Runs the transcripts in `tests/transcripts/`, in virtual time.
//!
//! A transcript is a list of lines; `#` begins a comment. The stack is 10.0.0.1, its peer 10.0.0.2. Sequence
//! and acknowledgment numbers are relative to the SYNs', so the first byte of a stream is 1.
//!
//! - `set NAME VALUE` changes a setting, before anything else; times are in milliseconds. `timestamps` are off
//!   unless set; with `tso` the device segments, so that a line can be a frame of several segments; with `ipv6` the
//!   stack is fd00::1, and its peer fd00::2.
//! - `listen`, `accept`, `connect [COUNT]` (with bytes to send), `send COUNT`, `send_more COUNT` (`MSG_MORE`),
//!   `end_record` (`MSG_EOR`), `recv COUNT`, `eof`, `shutdown`, `close`, `abort`, `option NAME VALUE`: calls on the
//!   socket.
//! - `state NAME`, `error NAME`, `FIELD VALUE` (of `TCP_INFO`; times in milliseconds), `neighbors COUNT`,
//!   `overflows COUNT` (of listeners): what must be true now.
//! - `silent N`: host 10.0.0.N answers no ARP request; the stack's requests for it are lines of the transcript.
//! - `+TIME < SEGMENT`: the peer sends a segment that much later than the previous event.
//! - `+TIME < icmp MTU START`: a router drops the segment that begins at START, since it is larger than MTU (RFC 1191,
//!   RFC 8201).
//! - `+TIME < unreachable CODE START`: it drops it, since the destination is unreachable (RFC 792).
//! - `+TIME < echo LENGTH from N`: host 10.0.0.N sends an ICMP echo request; `+TIME < fragment ID START:END of
//!   LENGTH`: the peer sends these bytes of one, with that identification; `+TIME < arp N`: host N asks for the
//!   stack's address.
//! - `+TIME > SEGMENT`: the stack sends this segment, exactly then; `+TIME > echo LENGTH to N`, `+TIME > arp N`,
//!   `+TIME > is-at N`: an echo reply, an ARP request for N, an ARP reply to N.
//! - `+TIME none`: the stack has sent nothing else until then.
//! - `+TIME asleep`: nobody calls the stack until then.
//!
//! A segment is its flags (`S`, `F`, `R`, `P`, `.` for ACK, `E`, `W`), `start:end`, and any of `ack N`, `win N`,
//! `mss N`, `wscale N`, `sackOK`, `sack A:B,C:D`, `ts VAL,ECR`, `ce`, `ect`, `fo COOKIE` (Fast Open, with `request`,
//! hexadecimal digits, or `cookie` for the stack's; with `exp-` before it in the experimental option), `port N` (the
//! peer's; without it that of the segment before). What a line doesn't say is not compared, but a segment without
//! `sack` has none.
#![allow(clippy::unwrap_used, clippy::panic)]

mod packets;

use ringway_frame::{Needs, Offload};
use ringway_netstack::congestion::Algorithm;
use ringway_netstack::{Frames, MS, Settings, SocketId, SocketOptions, Stack, TcpInfo};
use ringway_wire::icmp::{LinkOption, Neighbor, v4, v6};
use ringway_wire::tcp::Flags;
use ringway_wire::{
    EtherType, Ethernet, Header, Icmp, Ipv4, Ipv6, Protocol, Sum, Tcp, U16, U32, U128, ip, ipv4, ipv6,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;
use std::net::{IpAddr, Ipv6Addr};

const OURS: [u8; 6] = [2, 0, 0, 0, 0, 1];
const PEER: [u8; 6] = [2, 0, 0, 0, 0, 2];
const PEER_ISS: u32 = 5000;
const FLAGS: &[(char, Flags)] = &[
    ('S', Flags::SYN),
    ('F', Flags::FIN),
    ('R', Flags::RST),
    ('P', Flags::PSH),
    ('.', Flags::ACK),
    ('E', Flags::ECE),
    ('W', Flags::CWR),
];

/// A segment as text describes it.
#[derive(Clone, Debug, Default)]
struct Described {
    flags: Flags,
    start: u32,
    end: u32,
    ack: Option<u32>,
    win: Option<u16>,
    mss: Option<u16>,
    wscale: Option<u8>,
    sack_ok: bool,
    sack: Vec<(u32, u32)>,
    ts: Option<(u32, u32)>,
    ce: bool,
    ect: bool,
    fo: Option<String>,
    port: Option<u16>,
    /// A packet that is no segment.
    other: String,
}

fn pair<T: std::str::FromStr>(text: &str, by: char) -> (T, T)
where
    T::Err: std::fmt::Debug,
{
    let (a, b) = text.split_once(by).unwrap_or_else(|| panic!("{text}: two numbers, separated by {by}"));
    (a.parse().unwrap(), b.parse().unwrap())
}

impl Described {
    fn parse(text: &str) -> Described {
        let mut words = text.split_whitespace();
        let letters = words.next().unwrap();
        if packets::WORDS.contains(&letters) {
            return Described::other(text.to_string());
        }
        let of = |letter: char| FLAGS.iter().find(|(known, _)| *known == letter).unwrap().1;
        let flags = letters.chars().map(of).fold(Flags(0), Flags::with);
        let (start, end) = pair(words.next().unwrap(), ':');
        let mut segment = Described { flags, start, end, ..Described::default() };
        while let Some(word) = words.next() {
            let mut value = || words.next().unwrap_or_else(|| panic!("{word} needs a value"));
            match word {
                "ack" => segment.ack = value().parse().ok(),
                "win" => segment.win = value().parse().ok(),
                "mss" => segment.mss = value().parse().ok(),
                "wscale" => segment.wscale = value().parse().ok(),
                "sackOK" => segment.sack_ok = true,
                "sack" => segment.sack = value().split(',').map(|block| pair(block, ':')).collect(),
                "ts" => segment.ts = Some(pair(value(), ',')),
                "ce" => segment.ce = true,
                "ect" => segment.ect = true,
                "fo" => segment.fo = Some(value().to_string()),
                "port" => segment.port = value().parse().ok(),
                _ => panic!("unknown word {word}"),
            }
        }
        segment
    }

    fn other(other: String) -> Described {
        Described { other, ..Described::default() }
    }

    fn show(&self) -> String {
        if !self.other.is_empty() {
            return self.other.clone();
        }
        let mut text: String =
            FLAGS.iter().filter(|(_, flag)| self.flags.has(*flag)).map(|(letter, _)| *letter).collect();
        write!(text, " {}:{}", self.start, self.end).unwrap();
        self.ack.iter().for_each(|ack| write!(text, " ack {ack}").unwrap());
        self.win.iter().for_each(|win| write!(text, " win {win}").unwrap());
        self.mss.iter().for_each(|mss| write!(text, " mss {mss}").unwrap());
        self.wscale.iter().for_each(|shift| write!(text, " wscale {shift}").unwrap());
        text += if self.sack_ok { " sackOK" } else { "" };
        let blocks: Vec<String> = self.sack.iter().map(|(a, b)| format!("{a}:{b}")).collect();
        text += &if blocks.is_empty() { String::new() } else { format!(" sack {}", blocks.join(",")) };
        self.ts.iter().for_each(|(val, ecr)| write!(text, " ts {val},{ecr}").unwrap());
        text += if self.ect { " ect" } else { "" };
        self.fo.iter().for_each(|cookie| write!(text, " fo {cookie}").unwrap());
        self.port.iter().for_each(|port| write!(text, " port {port}").unwrap());
        text
    }

    /// Whether a sent segment is what a line says.
    fn covers(&self, sent: &Described) -> bool {
        let given = |line: Option<u64>, value: Option<u64>| line.is_none() || line == value;
        let same_fo = match self.fo.as_deref() {
            None => true,
            Some(any @ ("cookie" | "exp-cookie")) => sent
                .fo
                .as_deref()
                .is_some_and(|fo| !fo.ends_with("request") && fo.starts_with("exp-") == (any != "cookie")),
            fo => fo == sent.fo.as_deref(),
        };
        same_fo
            && self.other == sent.other
            && given(self.port.map(u64::from), sent.port.map(u64::from))
            && self.flags == sent.flags
            && (self.start, self.end, &self.sack) == (sent.start, sent.end, &sent.sack)
            && given(self.ack.map(u64::from), sent.ack.map(u64::from))
            && given(self.win.map(u64::from), sent.win.map(u64::from))
            && given(self.mss.map(u64::from), sent.mss.map(u64::from))
            && given(self.wscale.map(u64::from), sent.wscale.map(u64::from))
            && (self.ts.is_none() || self.ts == sent.ts)
            && (!self.sack_ok || sent.sack_ok)
            && (!self.ect || sent.ect)
    }
}

struct Run {
    stack: Stack,
    now: u64,
    sent: VecDeque<(u64, Described)>,
    history: String,
    listener: Option<SocketId>,
    socket: Option<SocketId>,
    options: SocketOptions,
    /// The stack's initial sequence numbers, by the peer's port.
    our_iss: BTreeMap<u16, u32>,
    ports: (u16, u16),
    silent: BTreeSet<u8>,
    last_ts: u32,
    sent_bytes: u64,
    read_bytes: u64,
    /// The Fast Open cookie that the stack gave.
    cookie: Vec<u8>,
    is_v6: bool,
}

/// An address of the network: the stack's ends with 1, its peer's with 2.
fn address(is_v6: bool, last: u8) -> IpAddr {
    if is_v6 { Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last.into()).into() } else { [10, 0, 0, last].into() }
}

/// An IP packet between the two, with the header's checksum but not the payload's; and the sum of its pseudo header.
fn packet(hosts: [IpAddr; 2], protocol: Protocol, tos: u8, len: usize) -> (Vec<u8>, Sum) {
    match hosts {
        [IpAddr::V4(source), IpAddr::V4(destination)] => {
            let mut ip = Ipv4 {
                tos,
                total_length: U16::new((Ipv4::LEN + len) as u16),
                ttl: 64,
                protocol,
                source: U32::new(source.to_bits()),
                destination: U32::new(destination.to_bits()),
                ..Ipv4::EMPTY
            };
            ip.fill_checksum(&[]);
            (ip.bytes().to_vec(), ip.pseudo_header(len as u16))
        }
        [IpAddr::V6(source), IpAddr::V6(destination)] => {
            let mut ip = Ipv6 {
                payload_length: U16::new(len as u16),
                next_header: protocol,
                hop_limit: if protocol == Protocol::ICMPV6 { 255 } else { 64 },
                source: U128::new(source.to_bits()),
                destination: U128::new(destination.to_bits()),
                ..Ipv6::EMPTY
            };
            ip.set_traffic_class(tos);
            (ip.bytes().to_vec(), ip.pseudo_header(protocol, len as u32))
        }
        _ => panic!("addresses of two families"),
    }
}

impl Run {
    fn new(settings: &Settings, offloads: Needs, is_v6: bool) -> Run {
        Run {
            stack: crate::common::host(1, settings.clone(), offloads),
            now: 0,
            sent: VecDeque::new(),
            history: String::new(),
            listener: None,
            socket: None,
            options: SocketOptions::default(),
            our_iss: BTreeMap::new(),
            ports: (80, 40_000),
            silent: BTreeSet::new(),
            last_ts: 0,
            sent_bytes: 0,
            read_bytes: 0,
            cookie: Vec::new(),
            is_v6,
        }
    }

    /// Collects what the stack sends now; answers requests for its peer's link-layer address.
    fn collect(&mut self) {
        loop {
            let mut frames = Frames::default();
            self.stack.expire(self.now);
            self.stack.transmit(self.now, 0, &mut frames);
            if frames.is_empty() {
                return;
            }
            for (frame, offload) in frames.iter() {
                let (ethernet, payload) = Ethernet::split(frame).unwrap();
                if ethernet.ethertype == EtherType::ARP {
                    self.stack_sent_arp(payload);
                } else if self.is_v6 && payload[6] == Protocol::ICMPV6.0 {
                    self.advertise();
                } else if !self.is_v6 && payload[9] == Protocol::ICMP.0 {
                    let reply = packets::echo_reply(payload);
                    self.note_sent(reply);
                } else {
                    let segment = self.describe(payload, offload);
                    self.note_sent(segment);
                }
            }
        }
    }

    fn note_sent(&mut self, segment: Described) {
        writeln!(self.history, "  {:>9.3} ms > {}", self.now as f64 / 1e6, segment.show()).unwrap();
        self.sent.push_back((self.now, segment));
    }

    /// The initial sequence number of the connection whose segment was sent or received last.
    fn iss(&self) -> u32 {
        self.our_iss.get(&self.ports.1).copied().unwrap_or(0)
    }

    /// Answers a neighbour solicitation.
    fn advertise(&mut self) {
        let [own, peer] = [1, 2].map(|last| address(true, last));
        let IpAddr::V6(target) = peer else { return };
        let mut icmp = Icmp { kind: v6::NEIGHBOR_ADVERTISEMENT, ..Icmp::default() };
        icmp.set_rest(Neighbor::SOLICITED | Neighbor::OVERRIDE);
        let link = LinkOption { kind: LinkOption::TARGET, length: 1, address: PEER.into() };
        let mut message = [icmp.bytes(), U128::new(target.to_bits()).bytes(), link.bytes()].concat();
        let (header, sum) = packet([peer, own], Protocol::ICMPV6, 0, message.len());
        Icmp::fill_checksum(&mut message, sum).unwrap();
        self.receive(EtherType::IPV6, &[header, message].concat());
    }

    fn receive_ip(&mut self, header: &[u8], payload: &[u8]) {
        let ethertype = if self.is_v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        self.receive(ethertype, &[header, payload].concat());
    }

    fn receive(&mut self, ethertype: EtherType, payload: &[u8]) {
        let ethernet = Ethernet { destination: OURS.into(), source: PEER.into(), ethertype };
        let frame = [ethernet.bytes(), payload].concat();
        self.stack.receive(self.now, 0, &frame, Offload::default());
    }

    fn describe(&mut self, packet: &[u8], offload: Offload) -> Described {
        let (tos, mut sum, segment) = if self.is_v6 {
            let packet = ipv6::Packet::parse(packet).unwrap();
            let sum = packet.header.pseudo_header(Protocol::TCP, packet.payload.len() as u32);
            (packet.header.traffic_class(), sum, packet.payload)
        } else {
            let packet = ipv4::Packet::parse(packet).unwrap();
            assert!(packet.header.is_checksum_valid(&[]), "wrong checksum of the IP header");
            let sum = packet.header.pseudo_header(packet.payload.len() as u16);
            (packet.header.tos, sum, packet.payload)
        };
        let (tcp, options, payload) = Tcp::parse(segment).unwrap();
        sum.add(segment);
        assert!(offload.needs_checksum() || sum.is_valid(), "wrong checksum");
        self.ports = (tcp.source_port.get(), tcp.destination_port.get());
        let seq = tcp.sequence_number.get();
        if tcp.flags.has(Flags::SYN) {
            self.our_iss.insert(self.ports.1, seq);
        }
        // A reset without a connection has the numbers of the segment that it answers.
        let start = seq.wrapping_sub(self.iss());
        let mut segment = Described {
            flags: tcp.flags,
            start,
            end: start.wrapping_add(payload.len() as u32),
            ack: tcp.flags.has(Flags::ACK).then(|| tcp.acknowledgment_number.get().wrapping_sub(PEER_ISS)),
            win: Some(tcp.window.get()),
            ect: tos & 3 == 2,
            port: Some(self.ports.1),
            ..Described::default()
        };
        let first = start.wrapping_sub(u32::from(!tcp.flags.has(Flags::SYN)));
        for (at, &byte) in payload.iter().enumerate() {
            let offset = u64::from(first) + at as u64;
            assert_eq!(byte, crate::common::byte(offset), "byte {offset} of the stream");
        }
        let word = |bytes: &[u8]| u32::from_be_bytes(bytes.try_into().unwrap());
        for option in ip::options(options).flatten() {
            match option[0] {
                2 => segment.mss = Some(word(&[&[0, 0], &option[2..]].concat()) as u16),
                3 => segment.wscale = Some(option[2]),
                4 => segment.sack_ok = true,
                34 => segment.fo = Some(self.cookie_of(&option[2..])),
                254 => segment.fo = Some(format!("exp-{}", self.cookie_of(&option[4..]))),
                5 => {
                    let offset = |bytes: &[u8]| word(bytes).wrapping_sub(PEER_ISS);
                    segment.sack = option[2..]
                        .chunks(8)
                        .map(|block| (offset(&block[..4]), offset(&block[4..])))
                        .collect();
                }
                8 => {
                    let val = word(&option[2..6]);
                    if self.last_ts == 0 {
                        self.last_ts = val.wrapping_sub((self.now / MS) as u32);
                    }
                    segment.ts = Some((val.wrapping_sub(self.last_ts), word(&option[6..])));
                }
                _ => {}
            }
        }
        segment
    }

    fn cookie_of(&mut self, bytes: &[u8]) -> String {
        if bytes.is_empty() {
            return "request".to_string();
        }
        self.cookie = bytes.to_vec();
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn peer_sends(&mut self, segment: &Described) {
        let mut options = Vec::new();
        let mut put = |bytes: &[u8]| options.extend_from_slice(bytes);
        segment.mss.iter().for_each(|mss| put(&[&[2, 4][..], &mss.to_be_bytes()].concat()));
        segment.wscale.iter().for_each(|shift| put(&[1, 3, 3, *shift]));
        if segment.sack_ok {
            put(&[1, 1, 4, 2]);
        }
        if let Some((val, ecr)) = segment.ts {
            put(&[&[1, 1, 8, 10][..], &val.to_be_bytes(), &(ecr.wrapping_add(self.last_ts)).to_be_bytes()]
                .concat());
        }
        if let Some(fo) = &segment.fo {
            let digits = fo.trim_start_matches("exp-");
            let cookie = match digits {
                "request" => Vec::new(),
                "cookie" => self.cookie.clone(),
                digits => u64::from_str_radix(digits, 16).unwrap().to_be_bytes().to_vec(),
            };
            match digits == fo {
                true => put(&[&[1, 1, 34, 2 + cookie.len() as u8][..], &cookie].concat()),
                false => put(&[&[254, 4 + cookie.len() as u8, 0xf9, 0x89][..], &cookie].concat()),
            }
        }
        self.ports.1 = segment.port.unwrap_or(self.ports.1);
        let iss = self.iss();
        if !segment.sack.is_empty() {
            put(&[1, 1, 5, 2 + 8 * segment.sack.len() as u8]);
            for (a, b) in &segment.sack {
                put(&[a.wrapping_add(iss).to_be_bytes(), b.wrapping_add(iss).to_be_bytes()].concat());
            }
        }
        let syn = u32::from(segment.flags.has(Flags::SYN));
        let payload: Vec<u8> = (segment.start..segment.end)
            .map(|at| crate::common::byte(u64::from(at.wrapping_add(syn).wrapping_sub(1))))
            .collect();
        let tcp = Tcp {
            source_port: U16::new(self.ports.1),
            destination_port: U16::new(self.ports.0),
            sequence_number: U32::new(segment.start.wrapping_add(PEER_ISS)),
            acknowledgment_number: U32::new(segment.ack.map_or(0, |ack| ack.wrapping_add(iss))),
            data_offset: ((20 + options.len()) / 4) as u8 * 16,
            flags: segment.flags,
            window: U16::new(segment.win.unwrap_or(65535)),
            ..Tcp::EMPTY
        };
        let mut bytes = [tcp.bytes(), &options, &payload].concat();
        let hosts = [2, 1].map(|last| address(self.is_v6, last));
        let tos = if segment.ce { 3 } else { 0 };
        let (header, sum) = packet(hosts, Protocol::TCP, tos, bytes.len());
        Tcp::fill_checksum(&mut bytes, sum).unwrap();
        writeln!(self.history, "  {:>9.3} ms < {}", self.now as f64 / 1e6, segment.show()).unwrap();
        self.receive_ip(&header, &bytes);
    }

    fn router_drops(&mut self, code: u8, mtu: u16, start: u32) {
        let quoted = Tcp {
            source_port: U16::new(self.ports.0),
            destination_port: U16::new(self.ports.1),
            sequence_number: U32::new(start.wrapping_add(self.iss())),
            ..Tcp::EMPTY
        };
        let [own, peer] = [1, 2].map(|last| address(self.is_v6, last));
        let (dropped, _) = packet([own, peer], Protocol::TCP, 0, 1400);
        let (protocol, mut icmp) = match (self.is_v6, mtu) {
            (false, _) => (Protocol::ICMP, Icmp { kind: v4::UNREACHABLE, code, ..Icmp::default() }),
            (true, 0) => (Protocol::ICMPV6, Icmp { kind: v6::UNREACHABLE, code, ..Icmp::default() }),
            (true, _) => (Protocol::ICMPV6, Icmp { kind: v6::PACKET_TOO_BIG, ..Icmp::default() }),
        };
        icmp.set_rest(mtu.into());
        let mut message = [icmp.bytes(), &dropped, &quoted.bytes()[..8]].concat();
        let (header, sum) = packet([peer, own], protocol, 0, message.len());
        Icmp::fill_checksum(&mut message, if self.is_v6 { sum } else { Sum::new() }).unwrap();
        self.receive_ip(&header, &message);
    }

    /// Goes on until a time, or until something was sent.
    fn advance(&mut self, until: u64, stop_at_segment: bool) {
        self.collect();
        while !(stop_at_segment && !self.sent.is_empty()) {
            match self.stack.next_deadline() {
                Some(next) if next <= until => self.now = self.now.max(next),
                _ => break,
            }
            self.collect();
        }
        if !(stop_at_segment && !self.sent.is_empty()) {
            self.now = until;
        }
    }

    fn timed(&mut self, after: u64, rest: &str) -> Result<(), String> {
        let start = self.now;
        let at = start + after;
        match rest.split_at(1) {
            ("<", segment) => {
                self.advance(at, false);
                self.nothing_sent()?;
                let (word, numbers) = segment.trim().split_once(' ').unwrap_or_default();
                match word {
                    "icmp" => {
                        let (mtu, start): (u32, u32) = pair(numbers, ' ');
                        self.router_drops(v4::NEEDS_FRAGMENTATION, mtu as u16, start);
                    }
                    "unreachable" => {
                        let (code, start): (u32, u32) = pair(numbers, ' ');
                        self.router_drops(code as u8, 0, start);
                    }
                    _ if packets::WORDS.contains(&word) => self.host_sends(word, numbers)?,
                    _ => self.peer_sends(&Described::parse(segment)),
                }
                self.collect();
            }
            (">", segment) => {
                let line = Described::parse(segment.trim());
                self.advance(at, true);
                let (when, sent) = self.sent.pop_front().ok_or("nothing was sent until then")?;
                if when != at || !line.covers(&sent) {
                    let late = (when as f64 - start as f64) / 1e6;
                    return Err(format!("+{late}ms > {} was sent", sent.show()));
                }
                self.now = at;
            }
            _ if rest == "asleep" => {
                self.now = at;
                self.collect();
            }
            _ if rest == "none" => {
                self.advance(at, false);
                self.nothing_sent()?;
            }
            _ => return Err("a timed line has <, >, none or asleep".to_string()),
        }
        Ok(())
    }

    fn nothing_sent(&self) -> Result<(), String> {
        match self.sent.front() {
            Some((when, sent)) => Err(format!("at {} ms {} was sent", *when as f64 / 1e6, sent.show())),
            None => Ok(()),
        }
    }

    fn set_option(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text.split_once(' ').ok_or("an option has a value")?;
        let number: u64 = value.parse().unwrap();
        match name {
            "tcp_nodelay" => self.options.tcp_nodelay = number != 0,
            "tcp_cork" => self.options.tcp_cork = number != 0,
            "so_keepalive" => self.options.so_keepalive = number != 0,
            "tcp_user_timeout" => self.options.tcp_user_timeout = number * MS,
            "tcp_fastopen_connect" => self.options.tcp_fastopen_connect = number != 0,
            "so_max_pacing_rate" => self.options.so_max_pacing_rate = number,
            _ => return Err("unknown option".to_string()),
        }
        match self.socket {
            Some(id) => self.stack.set_options(self.now, id, self.options).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    fn call(&mut self, name: &str, value: &str) -> Result<(), String> {
        let (now, number) = (self.now, value.parse::<u64>().unwrap_or(0));
        let socket = self.socket;
        let socket = || socket.ok_or("there is no connection");
        let equal = |what: String| if what == value { Ok(()) } else { Err(format!("it is {what}")) };
        let failed = |error: ringway_netstack::SocketError| error.to_string();
        match name {
            "listen" => {
                let backlog = number.max(1) as usize;
                let address = if self.is_v6 { "[::]:80" } else { "0.0.0.0:80" }.parse().unwrap();
                self.listener = Some(self.stack.listen(address, backlog).map_err(failed)?);
            }
            "accept" => {
                let listener = self.listener.ok_or("there is no listener")?;
                self.socket = Some(self.stack.accept(listener).map_err(failed)?.socket);
            }
            "connect" => {
                let [own, peer] = [1, 2].map(|last| address(self.is_v6, last));
                let id = self.stack.connect_from(now, (own, 40_000).into(), (peer, 80).into());
                let id = id.map_err(failed)?;
                self.stack.set_options(now, id, self.options).map_err(failed)?;
                self.socket = Some(id);
                let bytes: Vec<u8> = (0..number).map(crate::common::byte).collect();
                self.sent_bytes = self.stack.send(now, id, &bytes).unwrap_or(0) as u64;
            }
            "send" | "send_more" => {
                let bytes: Vec<u8> =
                    (self.sent_bytes..self.sent_bytes + number).map(crate::common::byte).collect();
                let send = if name == "send" { Stack::send } else { Stack::send_more };
                self.sent_bytes += send(&mut self.stack, now, socket()?, &bytes).map_err(failed)? as u64;
            }
            "end_record" => self.stack.end_record(socket()?).map_err(failed)?,
            "recv" => {
                let mut bytes = vec![0; number as usize];
                let count = self.stack.recv(now, socket()?, &mut bytes).map_err(failed)?;
                for byte in &bytes[..count] {
                    assert_eq!(*byte, crate::common::byte(self.read_bytes));
                    self.read_bytes += 1;
                }
                equal(count.to_string())?;
            }
            "eof" => match self.stack.recv(now, socket()?, &mut [0]) {
                Ok(0) => {}
                other => return Err(format!("{other:?}")),
            },
            "shutdown" => self.stack.shutdown(now, socket()?).map_err(failed)?,
            "close" => self.stack.close(now, socket()?).map_err(failed)?,
            "abort" => self.stack.abort(now, socket()?).map_err(failed)?,
            "option" => self.set_option(value)?,
            "silent" => _ = self.silent.insert(number as u8),
            "neighbors" => equal(self.stack.neighbor_entries().len().to_string())?,
            "overflows" => equal(self.stack.statistics().listen_overflows.to_string())?,
            "state" => equal(format!("{:?}", self.stack.info(socket()?).map_err(failed)?.tcpi_state))?,
            "error" => {
                let error = self.stack.error(socket()?).map_err(failed)?;
                equal(error.map_or("none".to_string(), |error| format!("{error:?}")))?;
            }
            field => {
                // Times are those of the last call.
                self.stack.expire(now);
                let info = self.stack.info(socket()?).map_err(failed)?;
                equal(figure(&info, field).ok_or("unknown command")?.to_string())?;
            }
        }
        self.collect();
        Ok(())
    }
}

/// A field of `TCP_INFO`.
fn figure(info: &TcpInfo, field: &str) -> Option<u64> {
    Some(match field {
        "cwnd" => info.tcpi_snd_cwnd,
        "ssthresh" => info.tcpi_snd_ssthresh,
        "unacked" => info.tcpi_unacked,
        "delivered" => info.tcpi_delivered,
        "reordering" => info.tcpi_reordering,
        "rto" => info.tcpi_rto / MS,
        "retransmits" => info.tcpi_retransmits.into(),
        "probes" => info.tcpi_probes.into(),
        "total_retrans" => info.tcpi_total_retrans,
        "bytes_retrans" => info.tcpi_bytes_retrans,
        "total_rto" => info.tcpi_total_rto,
        "total_rto_recoveries" => info.tcpi_total_rto_recoveries,
        "total_rto_time" => info.tcpi_total_rto_time / MS,
        "data_segs_in" => info.tcpi_data_segs_in,
        "rcv_ooopack" => info.tcpi_rcv_ooopack,
        "rcv_wnd" => info.tcpi_rcv_wnd,
        "last_data_sent" => info.tcpi_last_data_sent / MS,
        "last_ack_recv" => info.tcpi_last_ack_recv / MS,
        "ecn_seen" => info.tcpi_options_ecn_seen.into(),
        "reord_seen" => info.tcpi_reord_seen,
        "busy_time" => info.tcpi_busy_time / MS,
        "rwnd_limited" => info.tcpi_rwnd_limited / MS,
        "sndbuf_limited" => info.tcpi_sndbuf_limited / MS,
        _ => return None,
    })
}

fn set(settings: &mut Settings, name: &str, value: &str) -> Result<(), String> {
    let number = || value.parse::<u64>().map_err(|error| error.to_string());
    match name {
        "timestamps" => settings.tcp_timestamps = number()? != 0,
        "tcp_sack" => settings.tcp_sack = number()? != 0,
        "tcp_dsack" => settings.tcp_dsack = number()? != 0,
        "tcp_ecn" => settings.tcp_ecn = number()? as u8,
        "tcp_early_retrans" => settings.tcp_early_retrans = number()? as u8,
        "tcp_frto" => settings.tcp_frto = number()? != 0,
        "tcp_syncookies" => settings.tcp_syncookies = number()? as u8,
        "tcp_syn_retries" => settings.tcp_syn_retries = number()? as u32,
        "tcp_retries2" => settings.tcp_retries2 = number()? as u32,
        "tcp_min_tso_segs" => settings.tcp_min_tso_segs = number()? as u32,
        "tcp_init_cwnd" => settings.tcp_init_cwnd = number()? as u32,
        "tcp_mtu_probing" => settings.tcp_mtu_probing = number()? as u8,
        "tcp_fastopen" => settings.tcp_fastopen = number()? as u32,
        "tcp_keepalive_time" => settings.tcp_keepalive_time = number()? * MS,
        "tcp_keepalive_intvl" => settings.tcp_keepalive_intvl = number()? * MS,
        "tcp_keepalive_probes" => settings.tcp_keepalive_probes = number()? as u32,
        "gc_thresh3" => settings.gc_thresh3 = number()? as usize,
        "ipfrag_time" => settings.ipfrag_time = number()? * MS,
        "ipfrag_high_thresh" => settings.ipfrag_high_thresh = number()? as usize,
        "tcp_rmem" => settings.tcp_rmem = [number()? as usize; 3],
        "tcp_wmem" => settings.tcp_wmem = [number()? as usize; 3],
        "tcp_congestion_control" => {
            settings.tcp_congestion_control = Algorithm::from_name(value).ok_or("unknown algorithm")?;
        }
        _ => return Err("unknown setting".to_string()),
    }
    Ok(())
}

fn time(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_alphabetic());
    let number: f64 = digits.parse().map_err(|_| format!("{text} is no time"))?;
    let unit = match &text[digits.len()..] {
        "us" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "" if number == 0.0 => 1.0,
        _ => return Err(format!("{text}: us, ms or s")),
    };
    Ok((number * unit) as u64)
}

fn run(text: &str) -> Result<(), String> {
    let timestamps = Settings { tcp_timestamps: false, ..Settings::default() };
    let mut settings = Settings { tcp_congestion_control: Algorithm::Reno, ..timestamps };
    let (mut offloads, mut is_v6) = (Needs::NONE, false);
    let mut run: Option<Run> = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        let done = match (first.strip_prefix('+'), &mut run) {
            (None, None) if line == "set tso 1" => {
                offloads = Needs::ALL;
                Ok(())
            }
            (None, None) if line == "set ipv6 1" => {
                is_v6 = true;
                Ok(())
            }
            (None, None) if first == "set" => {
                let (name, value) = rest.split_once(' ').unwrap_or((rest, ""));
                set(&mut settings, name, value)
            }
            (after, state) => {
                let state = state.get_or_insert_with(|| Run::new(&settings, offloads, is_v6));
                match after {
                    Some(after) => time(after).and_then(|after| state.timed(after, rest.trim())),
                    None => state.call(first, rest.trim()),
                }
            }
        };
        let history = || run.as_ref().map_or("", |run| &run.history);
        done.map_err(|error| format!("line {}: {line}: {error}\n{}", number + 1, history()))?;
    }
    run.map_or(Ok(()), |run| {
        run.nothing_sent().map_err(|error| format!("at the end: {error}\n{}", run.history))
    })
}

#[test]
fn every_transcript() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/transcripts");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    assert!(!paths.is_empty());
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/tcp-conformance.md");
    let page = std::fs::read_to_string(page).unwrap();
    for path in &paths {
        let name = path.file_stem().unwrap().display().to_string();
        assert!(page.contains(&format!("`{name}`")), "docs/tcp-conformance.md lacks `{name}`");
    }
    let results = paths.iter().filter_map(|path| {
        let error = run(&std::fs::read_to_string(path).unwrap()).err()?;
        Some(format!("{}: {error}", path.file_name().unwrap().display()))
    });
    let failures: Vec<String> = results.collect();
    assert!(
        failures.is_empty(),
        "{} of {} transcripts:\n{}",
        failures.len(),
        paths.len(),
        failures.join("\n")
    );
}
