//! Parsing a field's text.
use super::field::{Field, Stored, Value};
use super::{ip_options, names, tcp_options, write};
use alloc::vec::Vec;
use ringway_click_lang::config;
use ringway_wire::ipv4::{DONT_FRAGMENT, FRAGMENT_OFFSET, MORE_FRAGMENTS};

/// Context required to parse a field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Around {
    /// Before version 1.1, fragment offsets were in units of 8 bytes.
    pub(super) minor_version: u32,
    /// The ICMP type, if the record contains it.
    pub(super) icmp_type: Option<u8>,
}

/// Parses a field; `scratch` holds bytes that the text does not contain literally.
pub(super) fn text<'a>(
    field: Field,
    text: &str,
    around: Around,
    scratch: &'a mut Vec<u8>,
) -> Option<Value<'a>> {
    match field {
        Field::IpOptions => ip_options::parse(text, scratch)?,
        Field::TcpOptions | Field::TcpOtherOptions | Field::TcpSack => tcp_options::parse(text, scratch)?,
        Field::EtherSource | Field::EtherDestination => ethernet(text, scratch)?,
        Field::Payload => {
            let (_, rest) = config::parse_string(text)?;
            if !rest.trim_ascii().is_empty() {
                return None;
            }
            *scratch = config::unquote(text);
        }
        _ => return number(field, text, around).map(Value::Number),
    }
    Some(Value::Bytes(scratch))
}

fn ethernet(text: &str, out: &mut Vec<u8>) -> Option<()> {
    out.clear();
    for part in text.split(['-', ':']) {
        out.push(u8::from_str_radix(part, 16).ok()?);
    }
    (out.len() == 6).then_some(())
}

fn unsigned(text: &str) -> Option<u64> {
    config::integer(text).and_then(|number| u64::try_from(number).ok())
}

fn number(field: Field, text: &str, around: Around) -> Option<u64> {
    match field {
        Field::Timestamp | Field::NanoTimestamp | Field::FirstTimestamp | Field::FirstNanoTimestamp => {
            time(text).map(|time| time as u64)
        }
        Field::Link | Field::Paint | Field::Direction => match text {
            ">" | "L" => Some(0),
            "<" | "R" | "X" => Some(1),
            _ => unsigned(text),
        },
        Field::EtherType => u16::from_str_radix(text, 16).ok().map(u64::from),
        Field::IpSource | Field::IpDestination => {
            text.parse::<core::net::Ipv4Addr>().ok().map(|address| address.to_bits().into())
        }
        Field::IpFragment | Field::IpFragmentOffset => fragment(text, around.minor_version),
        Field::IpProtocol => names::protocol(text).map(|protocol| protocol.0.into()),
        Field::IpEcn => match text {
            "no" | "0" => Some(0),
            "ect1" | "ECT(1)" | "1" => Some(1),
            "ect2" | "ECT(0)" | "2" => Some(2),
            "ce" | "CE" | "3" => Some(3),
            _ => None,
        },
        Field::TcpFlags => flags(text),
        Field::IcmpType | Field::IcmpTypeName => names::icmp_type(text).map(u64::from),
        Field::IcmpCode | Field::IcmpCodeName => names::icmp_code(around.icmp_type, text).map(u64::from),
        _ => {
            let most = match field.stored() {
                Stored::Bytes(size @ 1..8) => (1 << (8 * size)) - 1,
                _ => u64::MAX,
            };
            unsigned(text).filter(|number| *number <= most)
        }
    }
}

/// Parses seconds with a fraction; returns nanoseconds.
pub(super) fn time(text: &str) -> Option<i64> {
    let (negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) || whole.len() + fraction.len() == 0 {
        return None;
    }
    let seconds: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut nanoseconds = 0;
    for place in 0..9 {
        nanoseconds = nanoseconds * 10 + i64::from(fraction.as_bytes().get(place).map_or(0, |d| d - b'0'));
    }
    let time = seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds)?;
    Some(if negative { -time } else { time })
}

fn fragment(text: &str, minor_version: u32) -> Option<u64> {
    match text {
        "." => return Some(0),
        "!" => return Some(DONT_FRAGMENT.into()),
        "F" => return Some(MORE_FRAGMENTS.into()),
        // Any offset other than 0.
        "f" => return Some(100),
        _ => {}
    }
    let end = text.find(['+', '!']).unwrap_or(text.len());
    let (offset, marks) = text.split_at(end);
    let offset = unsigned(offset).filter(|offset| *offset < 1 << 16)?;
    let mut word = if minor_version > 0 { offset >> 3 } else { offset } & u64::from(FRAGMENT_OFFSET);
    for mark in marks.chars() {
        word |= match mark {
            '+' => u64::from(MORE_FRAGMENTS),
            '!' => u64::from(DONT_FRAGMENT),
            _ => return None,
        };
    }
    Some(word)
}

fn flags(text: &str) -> Option<u64> {
    if text == "." {
        return Some(0);
    }
    if text.starts_with(|c: char| c.is_ascii_digit()) {
        return unsigned(text).filter(|number| *number < 0x1000);
    }
    text.chars().try_fold(0, |all, letter| {
        let letter = match letter {
            'W' | 'Y' => 'C',
            'X' => 'E',
            letter => letter,
        };
        write::FLAGS.find(letter).map(|bit| all | 1 << bit)
    })
}

/// Parses a field at the start of a binary record.
pub(super) fn packed<'a>(field: Field, bytes: &mut &'a [u8]) -> Option<Value<'a>> {
    let size = match field.stored() {
        Stored::Bytes(size) => size,
        Stored::Micro | Stored::Nano => 8,
        Stored::Counted => {
            let size = usize::from(*bytes.first()?);
            *bytes = &bytes[1..];
            size
        }
        Stored::Never => return None,
    };
    let (taken, rest) = bytes.split_at_checked(size)?;
    *bytes = rest;
    let number = |bytes: &[u8]| bytes.iter().take(8).fold(0, |all, byte| all << 8 | u64::from(*byte));
    Some(match field.stored() {
        Stored::Bytes(6 | 16) | Stored::Counted => Value::Bytes(taken),
        Stored::Micro | Stored::Nano => {
            let unit = if field.stored() == Stored::Micro { 1000 } else { 1 };
            let (seconds, rest) = taken.split_at(4);
            let seconds = i64::from(number(seconds) as i32);
            Value::Number((seconds * 1_000_000_000 + number(rest) as i64 * unit) as u64)
        }
        _ if field == Field::IpFragment => match taken {
            b"F" => Value::Number(MORE_FRAGMENTS.into()),
            b"f" => Value::Number(100),
            b"!" => Value::Number(DONT_FRAGMENT.into()),
            _ => Value::Number(0),
        },
        _ => Value::Number(number(taken)),
    })
}
