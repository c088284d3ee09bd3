//! Fields of IPv4 packets by name or position: `ip src/8`, `tcp[13]`, `transp{4:2}`, `ip[8:2] & 0x3f0`.
use crate::ip::names::{parse_protocol, protocol_name};
use core::fmt;
use ringway_click::arg::{Scope, parse_int};
use ringway_click::prelude::*;
use ringway_wire::{self as wire, Ipv4, Tcp, tcp, udp};

/// The header relative to which a field's offset is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    Ip,
    /// The header after IPv4's, of any protocol.
    Transport,
    /// TCP's or UDP's header after IPv4's.
    TcpOrUdp,
    /// This protocol's header after IPv4's.
    Protocol(wire::Protocol),
    /// The payload of TCP or UDP.
    Payload,
}

impl Header {
    fn parse(word: &str, scope: &Scope) -> Option<Self> {
        Some(match word {
            "ip" => Self::Ip,
            "transp" => Self::Transport,
            "tcpudp" => Self::TcpOrUdp,
            "payload" | "data" => Self::Payload,
            _ => Self::Protocol(parse_protocol(word, scope).ok()?),
        })
    }

    /// Its offset in an IPv4 packet.
    fn start(self, ip: &[u8]) -> Option<usize> {
        use wire::Protocol;
        let (ip, _, transport) = Ipv4::parse(ip)?;
        let (length, protocol) = (ip.header_len(), ip.protocol);
        if self == Self::Ip {
            return Some(0);
        }
        let there = !ip.is_later_fragment()
            && match self {
                Self::TcpOrUdp => matches!(protocol, Protocol::TCP | Protocol::UDP),
                Self::Protocol(own) => protocol == own,
                _ => true,
            };
        match (self, protocol) {
            _ if !there => None,
            (Self::Payload, Protocol::TCP) => {
                Some(length + Tcp::header_len_of(transport)?.max(tcp::HEADER_LEN))
            }
            (Self::Payload, Protocol::UDP) => Some(length + udp::HEADER_LEN),
            (Self::Payload, _) => None,
            _ => Some(length),
        }
    }
}

/// A field: bits of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IpField {
    pub(super) header: Header,
    /// Index of the first bit.
    pub(super) offset: u32,
    /// Number of bits.
    pub(super) length: u32,
}

/// Fields by header and name, with first bit and number of bits.
const FIELDS: &[(&str, &str, u32, u32)] = &[
    ("ip", "vers", 0, 4),
    ("ip", "hl", 4, 4),
    ("ip", "tos", 8, 8),
    ("ip", "dscp", 8, 6),
    ("ip", "ecn", 14, 2),
    ("ip", "len", 16, 16),
    ("ip", "id", 32, 16),
    ("ip", "off", 48, 16),
    ("ip", "rf", 48, 1),
    ("ip", "df", 49, 1),
    ("ip", "mf", 50, 1),
    ("ip", "fragoff", 51, 13),
    ("ip", "ttl", 64, 8),
    ("ip", "proto", 72, 8),
    ("ip", "sum", 80, 16),
    ("ip", "src", 96, 32),
    ("ip", "dst", 128, 32),
    ("tcpudp", "sport", 0, 16),
    ("tcpudp", "dport", 16, 16),
    ("udp", "sport", 0, 16),
    ("udp", "dport", 16, 16),
    ("udp", "len", 32, 16),
    ("udp", "sum", 48, 16),
    ("tcp", "sport", 0, 16),
    ("tcp", "dport", 16, 16),
    ("tcp", "seq", 32, 32),
    ("tcp", "seqno", 32, 32),
    ("tcp", "ackno", 64, 32),
    ("tcp", "hl", 96, 4),
    ("tcp", "flags", 104, 8),
    ("tcp", "urg", 106, 1),
    ("tcp", "ack", 107, 1),
    ("tcp", "psh", 108, 1),
    ("tcp", "push", 108, 1),
    ("tcp", "rst", 109, 1),
    ("tcp", "syn", 110, 1),
    ("tcp", "fin", 111, 1),
    ("tcp", "win", 112, 16),
    ("tcp", "sum", 128, 16),
    ("tcp", "urp", 144, 16),
    ("icmp", "type", 0, 8),
    ("icmp", "code", 8, 8),
    ("icmp", "sum", 16, 16),
];

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Ip => "ip",
            Self::Payload => "payload",
            Self::TcpOrUdp => "tcpudp",
            Self::Transport => "transp",
            Self::Protocol(number) => {
                return match protocol_name(number.0) {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{}", number.0),
                };
            }
        };
        f.write_str(name)
    }
}

impl fmt::Display for IpField {
    /// As Click prints it: by name, as the beginning of a named field, or by position.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = self.header.to_string();
        let unnamed = matches!(self.header, Header::Protocol(number) if protocol_name(number.0).is_none());
        write!(f, "{}{header} ", if unnamed { "ip proto " } else { "" })?;
        let Self { offset, length, .. } = *self;
        let name = |at, bits| {
            let is_this = |row: &&(&str, &str, u32, u32)| row.0 == header && (row.2, row.3) == (at, bits);
            FIELDS.iter().find(is_this).map(|row| row.1)
        };
        if let Some(name) = name(offset, length) {
            return f.write_str(name);
        }
        let around = [8, 16, 32].into_iter().filter(|bits| offset / bits == (offset + length - 1) / bits);
        let mut around =
            around.filter_map(|bits| Some((name(offset & !(bits - 1), bits)?, offset & (bits - 1))));
        let (word, offset) = around.next().unwrap_or(("", offset));
        match (offset % 8, length % 8) {
            _ if !word.is_empty() && offset == 0 => write!(f, "{word}/{length}"),
            (0, _) if length == 8 => write!(f, "{word}[{}]", offset / 8),
            (0, 0) => write!(f, "{word}[{}:{}]", offset / 8, length / 8),
            _ if length == 1 => write!(f, "{word}{{{offset}}}"),
            _ => write!(f, "{word}{{{offset}:{length}}}"),
        }
    }
}

/// Maximum bit position. Attack: positions whose arithmetic overflows.
const MOST: u32 = 1 << 16;

const EXPECTED: &str = "expected 'HEADER [NAME] [{OFFSET:LENGTH}] [/PREFIX] [& MASK]'";
const BAD_PLACE: &str = "bad offset or length in TCP/IP field";
const BAD_MASK: &str = "bad prefix or mask in TCP/IP field";

/// A named field; `sport` and `dport`, alone or after `ip`, are those of TCP or UDP.
fn named(header: &str, name: &str) -> Option<(Header, u32, u32)> {
    let row = |header: &str| FIELDS.iter().find(|(own, field, ..)| *own == header && *field == name);
    let (own, _, offset, length) =
        *row(header).or_else(|| if header == "ip" { row("tcpudp") } else { None })?;
    let header = match own {
        "ip" => Header::Ip,
        "tcp" => Header::Protocol(wire::Protocol::TCP),
        "udp" => Header::Protocol(wire::Protocol::UDP),
        "icmp" => Header::Protocol(wire::Protocol::ICMP),
        _ => Header::TcpOrUdp,
    };
    Some((header, offset, length))
}

/// The position in brackets: the first bit and the number of bits, from units of `unit` bits.
fn place(text: &str, unit: u32) -> Option<(u32, u32)> {
    let number = |text: &str| parse_int::<u32>(text.trim(), 0, i128::from(MOST / unit)).ok();
    let (first, count) = match text.split_once([':', ',']) {
        Some((first, count)) => (number(first)?, number(count)?),
        None => match text.split_once('-') {
            Some((first, last)) => (number(first)?, (number(last)? + 1).checked_sub(number(first)?)?),
            None => (number(text)?, 1),
        },
    };
    (count > 0).then_some((first * unit, count * unit))
}

/// Splits at the first character of `marks`.
fn until<'a>(text: &'a str, marks: &[char]) -> (&'a str, &'a str) {
    text.split_at(text.find(marks).unwrap_or(text.len()))
}

impl IpField {
    /// Parses a field.
    ///
    /// # Errors
    /// An error message with Click's text.
    pub(super) fn parse(text: &str, scope: &Scope) -> Result<Self, &'static str> {
        let text = text.trim().trim_matches('"');
        let (names, mut rest) = until(text, &['[', '{', '/', '&']);
        let mut words = names.split_whitespace();
        let (header, mut name) = (words.next().ok_or(EXPECTED)?, words.next());
        let (header, protocol) = match (header, name) {
            ("ip", Some("proto")) if words.clone().next().is_some() => {
                (words.next().unwrap_or_default(), true)
            }
            ("sport" | "dport", None) => {
                name = Some(header);
                ("tcpudp", false)
            }
            _ => (header, false),
        };
        if protocol {
            name = words.next();
        }
        if words.next().is_some() {
            return Err("garbage after field specification");
        }
        let mut field = match name {
            Some(name) => Some(named(header, name).ok_or(EXPECTED)?),
            None => None,
        };
        if let Some((unit, close)) = [('[', (8, ']')), ('{', (1, '}'))]
            .into_iter()
            .find_map(|(open, rule)| rest.starts_with(open).then_some(rule))
        {
            let (inside, behind) = rest[1..].split_once(close).ok_or(EXPECTED)?;
            let (offset, length) = place(inside, unit).ok_or(BAD_PLACE)?;
            let whole = Header::parse(header, scope).ok_or(EXPECTED)?;
            field = Some(match field {
                Some((_, _, bits)) if offset + length > bits => return Err(BAD_PLACE),
                Some((own, first, _)) => (own, first + offset, length),
                None => (whole, offset, length),
            });
            rest = behind.trim();
        }
        let (header, offset, length) = field.ok_or(EXPECTED)?;
        Self { header, offset, length }.limited(rest)
    }

    /// The part of it selected by `/BITS` or `& MASK`.
    fn limited(mut self, mut rest: &str) -> Result<Self, &'static str> {
        if let Some(behind) = rest.strip_prefix('/') {
            let (bits, more) = until(behind, &['&']);
            let bits = parse_int::<u32>(bits.trim(), 1, self.length.into()).map_err(|_| BAD_MASK)?;
            (self.length, rest) = (bits, more);
        }
        if let Some(mask) = rest.strip_prefix('&') {
            let mask = parse_int::<u32>(mask.trim(), 1, u32::MAX.into()).map_err(|_| BAD_MASK)?;
            let (low, high) = (mask.trailing_zeros(), 32 - mask.leading_zeros());
            if mask.count_ones() != high - low || high > self.length {
                return Err(BAD_MASK);
            }
            (self.offset, self.length, rest) = (self.offset + self.length - high, high - low, "");
        }
        if rest.trim().is_empty() { Ok(self) } else { Err("garbage after field specification") }
    }

    /// The 32-bit word of a packet that contains the field.
    pub(super) fn word(&self, packet: &Packet) -> Option<u32> {
        let ip = packet.network_data()?;
        let at = self.header.start(ip)? + self.offset as usize / 32 * 4;
        Some(u32::from_be_bytes(*ip.get(at..)?.first_chunk()?))
    }
}
