//! Frames described by their fields, in the words of `ovs-ofctl`: `tcp,nw_dst=10.0.0.2,tp_dst=80`.
//!
//! [`Described::parse`] reads a description, `build.rs` makes the frame of it. Fields left out are zero, as in
//! `ovs-appctl ofproto/trace`, except that lengths and checksums are computed, the time to live is 64, and ARP and ICMP
//! are requests. [`Described::read`] also takes a frame in hexadecimal.

mod build;
mod hex;
#[cfg(test)]
mod tests;

pub use hex::hex;

use crate::MacAddress;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Longest description in bytes. Attack: a description without end.
pub const LONGEST: usize = 4096;
/// Length of the longest frame: an IP packet of 64 KB, an Ethernet header and two tags.
const LARGEST: u128 = 65_535 + 14 + 8;

/// Why a description is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {what}")]
pub struct FieldsError {
    /// Where, in characters from 1.
    pub column: usize,
    /// What is wrong, and what to do.
    pub what: String,
}

/// A described frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its bytes.
    pub frame: Vec<u8>,
    /// The value of `in_port` and its column, if it is there.
    pub in_port: Option<(String, usize)>,
}

/// A field of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    DlSrc,
    DlDst,
    DlType,
    Vlan,
    Priority,
    NwSrc,
    NwDst,
    Ip6Src,
    Ip6Dst,
    Protocol,
    Tos,
    Ttl,
    TpSrc,
    TpDst,
    TcpFlags,
    IcmpType,
    IcmpCode,
    Icmp6Type,
    Icmp6Code,
    NdTarget,
    ArpOp,
    ArpSpa,
    ArpTpa,
    ArpSha,
    ArpTha,
    Length,
}

const FIELDS: usize = Field::Length as usize + 1;

/// What a value looks like.
#[derive(Clone, Copy)]
enum Kind {
    Mac,
    Ipv4,
    Ipv6,
    /// A number up to this one.
    Number(u128),
    /// Flags of TCP: names joined by `+`, or a number.
    Flags,
}

/// The frames that have a field.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Any,
    Ip,
    Ipv4,
    Ipv6,
    Arp,
    Ports,
    Tcp,
    Icmp,
    Icmp6,
}

/// A field's names, the field, its values, and the frames that have it.
type Row = (&'static str, Field, Kind, Place);

const BYTE: Kind = Kind::Number(0xff);
const WORD: Kind = Kind::Number(0xffff);

const ROWS: [Row; FIELDS] = [
    ("dl_src eth_src", Field::DlSrc, Kind::Mac, Place::Any),
    ("dl_dst eth_dst", Field::DlDst, Kind::Mac, Place::Any),
    ("dl_type eth_type", Field::DlType, WORD, Place::Any),
    ("dl_vlan vlan_vid", Field::Vlan, Kind::Number(0xfff), Place::Any),
    ("dl_vlan_pcp vlan_pcp", Field::Priority, Kind::Number(7), Place::Any),
    ("nw_src ip_src", Field::NwSrc, Kind::Ipv4, Place::Ipv4),
    ("nw_dst ip_dst", Field::NwDst, Kind::Ipv4, Place::Ipv4),
    ("ipv6_src", Field::Ip6Src, Kind::Ipv6, Place::Ipv6),
    ("ipv6_dst", Field::Ip6Dst, Kind::Ipv6, Place::Ipv6),
    ("nw_proto ip_proto", Field::Protocol, BYTE, Place::Ip),
    ("nw_tos", Field::Tos, BYTE, Place::Ip),
    ("nw_ttl", Field::Ttl, BYTE, Place::Ip),
    ("tp_src tcp_src udp_src", Field::TpSrc, WORD, Place::Ports),
    ("tp_dst tcp_dst udp_dst", Field::TpDst, WORD, Place::Ports),
    ("tcp_flags", Field::TcpFlags, Kind::Flags, Place::Tcp),
    ("icmp_type", Field::IcmpType, BYTE, Place::Icmp),
    ("icmp_code", Field::IcmpCode, BYTE, Place::Icmp),
    ("icmpv6_type", Field::Icmp6Type, BYTE, Place::Icmp6),
    ("icmpv6_code", Field::Icmp6Code, BYTE, Place::Icmp6),
    ("nd_target", Field::NdTarget, Kind::Ipv6, Place::Icmp6),
    ("arp_op", Field::ArpOp, WORD, Place::Arp),
    ("arp_spa", Field::ArpSpa, Kind::Ipv4, Place::Arp),
    ("arp_tpa", Field::ArpTpa, Kind::Ipv4, Place::Arp),
    ("arp_sha", Field::ArpSha, Kind::Mac, Place::Arp),
    ("arp_tha", Field::ArpTha, Kind::Mac, Place::Arp),
    ("len", Field::Length, Kind::Number(LARGEST), Place::Any),
];

/// Words without a value: an EtherType, and a protocol.
const PROTOCOLS: [(&str, u16, Option<u8>); 9] = [
    ("ip", build::IPV4, None),
    ("ipv6", build::IPV6, None),
    ("arp", build::ARP, None),
    ("icmp", build::IPV4, Some(build::ICMP)),
    ("icmp6", build::IPV6, Some(build::ICMP6)),
    ("tcp", build::IPV4, Some(build::TCP)),
    ("tcp6", build::IPV6, Some(build::TCP)),
    ("udp", build::IPV4, Some(build::UDP)),
    ("udp6", build::IPV6, Some(build::UDP)),
];

/// The bits of TCP's flags, from the lowest.
const FLAGS: [&str; 9] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"];

/// The fields that are given, each with its column.
#[derive(Default)]
struct Values([Option<(u128, usize)>; FIELDS]);

impl Values {
    fn get(&self, field: Field) -> Option<u128> {
        self.0[field as usize].map(|(value, _)| value)
    }

    fn set(&mut self, field: Field, value: u128, (word, column): (&str, usize)) -> Result<(), FieldsError> {
        let place = &mut self.0[field as usize];
        if let Some((former, _)) = *place
            && former != value
        {
            let what = format!("`{word}` contradicts what is before it; a frame has one value of each field");
            return Err(FieldsError { column, what });
        }
        // The first one, for messages.
        place.get_or_insert((value, column));
        Ok(())
    }
}

impl Described {
    /// Reads a description, or a frame in hexadecimal digits.
    ///
    /// # Errors
    /// As of [`Described::parse`]; or what is no hexadecimal digit, and where.
    pub fn read(text: &str) -> Result<Described, FieldsError> {
        let trimmed = text.trim();
        let is_word = PROTOCOLS.iter().any(|(name, ..)| *name == trimmed);
        let has_digits = trimmed.chars().next().is_some_and(|first| first.is_ascii_hexdigit());
        if has_digits && !is_word && !trimmed.contains([',', '=']) {
            return Ok(Described { frame: hex::frame(text)?, in_port: None });
        }
        Described::parse(text)
    }

    /// Reads a description.
    ///
    /// # Errors
    /// A word is unknown, a value is wrong, or a field is not one of the frame's protocols.
    pub fn parse(text: &str) -> Result<Described, FieldsError> {
        if text.len() > LONGEST {
            let what = format!("the description has more than {LONGEST} bytes");
            return Err(FieldsError { column: 1, what });
        }
        let (mut values, mut in_port, mut column) = (Values::default(), None, 1);
        for item in text.split(',') {
            let start = column + item.chars().take_while(|letter| letter.is_whitespace()).count();
            column += item.chars().count() + 1;
            let item = item.trim();
            let (word, value) = match item.split_once('=') {
                Some((word, value)) => (word.trim_end(), Some(value.trim_start())),
                None => (item, None),
            };
            let value_column = start + item.chars().count() - value.map_or(0, |text| text.chars().count());
            if word == "in_port" {
                let port = value.filter(|value| !value.is_empty()).ok_or_else(|| needs_value(word, start))?;
                in_port = Some((port.to_string(), value_column));
                continue;
            }
            read(&mut values, (word, start), value.map(|value| (value, value_column)))?;
        }
        check(&values)?;
        Ok(Described { frame: build::frame(&values), in_port })
    }
}

fn needs_value(word: &str, column: usize) -> FieldsError {
    FieldsError { column, what: format!("`{word}` needs a value, as in {word}=VALUE") }
}

/// Reads one word with its value.
fn read(
    values: &mut Values,
    (word, column): (&str, usize),
    value: Option<(&str, usize)>,
) -> Result<(), FieldsError> {
    if let Some((_, ethertype, protocol)) = PROTOCOLS.iter().find(|(name, ..)| *name == word) {
        if let Some((_, column)) = value {
            return Err(FieldsError {
                column,
                what: format!("`{word}` takes no value; separate fields by commas"),
            });
        }
        values.set(Field::DlType, u128::from(*ethertype), (word, column))?;
        return match protocol {
            Some(protocol) => values.set(Field::Protocol, u128::from(*protocol), (word, column)),
            None => Ok(()),
        };
    }
    let row = ROWS.iter().find(|(names, ..)| names.split(' ').any(|name| name == word));
    let Some((_, field, kind, _)) = row else {
        let what = match word.escape_debug().to_string() {
            empty if empty.is_empty() => {
                "a word is missing, such as `tcp` or `dl_dst=02:00:00:00:00:02`".into()
            }
            word => format!("unknown word `{word}`; the fields are those of `man ovs-fields`"),
        };
        return Err(FieldsError { column, what });
    };
    let (value, at) =
        value.filter(|(value, _)| !value.is_empty()).ok_or_else(|| needs_value(word, column))?;
    let number = kind.read(value).map_err(|what| FieldsError { column: at, what })?;
    values.set(*field, number, (word, column))
}

impl Kind {
    fn read(self, text: &str) -> Result<u128, String> {
        let shown = || text.escape_debug();
        if text.contains('/') && !matches!(self, Kind::Flags) {
            return Err(format!("`{}` has a mask; a frame has one value, so leave the mask out", shown()));
        }
        let found = match self {
            Kind::Mac => text.parse::<MacAddress>().ok().map(|mac| u128::from(mac.to_u64())),
            Kind::Ipv4 => text.parse::<Ipv4Addr>().ok().map(|address| u128::from(address.to_bits())),
            Kind::Ipv6 => text.parse::<Ipv6Addr>().ok().map(Ipv6Addr::to_bits),
            Kind::Number(most) => number(text).filter(|number| *number <= most),
            Kind::Flags => flags(text),
        };
        found.ok_or_else(|| match self {
            Kind::Mac => format!("`{}` is not a MAC address, such as 02:00:00:00:00:01", shown()),
            Kind::Ipv4 => format!("`{}` is not an IPv4 address, such as 10.0.0.1", shown()),
            Kind::Ipv6 => format!("`{}` is not an IPv6 address, such as fd00::1", shown()),
            Kind::Number(most) => format!("`{}` is not a number from 0 to {most}", shown()),
            Kind::Flags => {
                format!(
                    "`{}` is not a list of TCP flags, such as syn+ack; there are {}",
                    shown(),
                    FLAGS.join(", ")
                )
            }
        })
    }
}

fn number(text: &str) -> Option<u128> {
    let digits = |text: &str, radix: u32| {
        let all = !text.is_empty() && text.chars().all(|digit| digit.is_digit(radix));
        all.then(|| u128::from_str_radix(text, radix).ok()).flatten()
    };
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => digits(hex, 16),
        None => digits(text, 10),
    }
}

/// `syn+ack`, and ovs-ofctl's `+syn-ack`, or a number.
fn flags(text: &str) -> Option<u128> {
    if let Some(number) = number(text) {
        return (number <= 0x1ff).then_some(number);
    }
    let mut bits = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let is_set = !rest.starts_with('-');
        rest = rest.strip_prefix(['+', '-']).unwrap_or(rest);
        let end = rest.find(['+', '-']).unwrap_or(rest.len());
        let bit = FLAGS.iter().position(|flag| *flag == &rest[..end])?;
        bits |= u128::from(is_set) << bit;
        rest = &rest[end..];
    }
    Some(bits)
}

/// Checks that the frame has each field that is given.
fn check(values: &Values) -> Result<(), FieldsError> {
    let ethertype = values.get(Field::DlType).map_or(0, |value| value as u16);
    let protocol = values.get(Field::Protocol).map_or(0, |value| value as u8);
    let (is_v4, is_v6) = (ethertype == build::IPV4, ethertype == build::IPV6);
    for (names, field, _, place) in ROWS {
        let Some((_, column)) = values.0[field as usize] else { continue };
        let (is_there, needed) = match place {
            Place::Any => (true, ""),
            Place::Ip => (is_v4 || is_v6, "ip or ipv6"),
            // As in ovs-ofctl, these are ARP's addresses too.
            Place::Ipv4 => (is_v4 || ethertype == build::ARP, "ip, tcp, udp, icmp or arp"),
            Place::Ipv6 => (is_v6, "ipv6, tcp6, udp6 or icmp6"),
            Place::Arp => (ethertype == build::ARP, "arp"),
            Place::Ports => {
                ((is_v4 || is_v6) && matches!(protocol, build::TCP | build::UDP), "tcp, udp, tcp6 or udp6")
            }
            Place::Tcp => ((is_v4 || is_v6) && protocol == build::TCP, "tcp or tcp6"),
            Place::Icmp => (is_v4 && protocol == build::ICMP, "icmp"),
            Place::Icmp6 => (is_v6 && protocol == build::ICMP6, "icmp6"),
        };
        if !is_there {
            let name = names.split(' ').next().unwrap_or_default();
            let what = format!("`{name}` needs {needed}");
            return Err(FieldsError { column, what });
        }
    }
    Ok(())
}
