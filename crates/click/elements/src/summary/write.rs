//! Writing a dump's records.
use super::field::{Field, Stored, Value};
use super::names;
use super::tcp_options::{self, OptionSet};
use super::view::View;
use super::{Time, ip_options};
use core::fmt::{self, Write};
use core::net::Ipv4Addr;
use md5::{Digest, Md5};
use ringway_click::prelude::*;
use ringway_click_lang::config;
use ringway_wire::ipv4::{DONT_FRAGMENT, FRAGMENT_OFFSET, MORE_FRAGMENTS};
use ringway_wire::{MacAddress, Protocol};

/// Letters of TCP's flags, the lowest bit first.
pub(super) const FLAGS: &str = "FSRPAUECN";

/// Format of the records.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    /// The fields, in order.
    pub fields: Vec<Field>,
    /// Binary format.
    pub binary: bool,
    /// Writes a `!bad` line before each packet with malformed headers.
    pub bad_packets: bool,
    /// Treats packets shorter than their header's length as malformed.
    pub careful: bool,
    /// Lengths include bytes that were not captured.
    pub extra_length: bool,
}

impl Writer {
    /// Parses field names separated by spaces.
    ///
    /// # Errors
    /// A message for each invalid name, with Click's text.
    pub fn new(names: &str, binary: bool) -> Result<Self, Vec<String>> {
        let (mut fields, mut errors) = (Vec::new(), Vec::new());
        for word in config::split_words(names) {
            let name = config::unquote_text(&word);
            match Field::find(&name) {
                Some(field) if binary && !field.is_binary() => {
                    errors.push(alloc::format!("cannot use field {name} with BINARY"));
                }
                Some(field) => fields.push(field),
                None => errors.push(alloc::format!("unknown content type '{name}'")),
            }
        }
        if fields.is_empty() && errors.is_empty() {
            errors.push("no contents specified".into());
        }
        if errors.is_empty() {
            Ok(Self { fields, binary, careful: true, extra_length: true, ..Self::default() })
        } else {
            Err(errors)
        }
    }

    /// The `!data` line, without its line end.
    pub fn heading(&self) -> String {
        let mut line = String::from("!data");
        for field in &self.fields {
            let name =
                if *field == Field::NanoTimestamp && !self.binary { "timestamp" } else { field.name() };
            line.push(' ');
            line.push_str(name);
        }
        line
    }

    /// Appends a line other than a packet's to a dump.
    pub fn line(&self, line: &str, out: &mut Vec<u8>) {
        if self.binary {
            out.extend(((line.len() as u32 + 1) | 0x8000_0000).to_be_bytes());
        }
        out.extend_from_slice(line.as_bytes());
        out.push(b'\n');
    }

    /// Appends a packet's record to a dump.
    pub fn packet(&self, packet: &mut Packet, out: &mut Vec<u8>) {
        let begin = out.len();
        let mut view = View::new(packet, self.careful, self.extra_length);
        if self.binary {
            out.extend([0; 4]);
            for field in &self.fields {
                let value = view.value(*field);
                store(*field, value, out);
            }
            let length = (out.len() - begin) as u32;
            if let Some(place) = out.get_mut(begin..begin + 4) {
                place.copy_from_slice(&length.to_be_bytes());
            }
        } else {
            for (index, field) in self.fields.iter().enumerate() {
                if index > 0 {
                    out.push(b' ');
                }
                match view.value(*field) {
                    Some(value) => drop(print(*field, value, &mut Text(out))),
                    None => out.push(b'-'),
                }
            }
            out.push(b'\n');
        }
        let (bad, extra) = (view.bad.take(), view.extra);
        if let Some(bad) = bad.filter(|_| self.bad_packets) {
            let mut line = Vec::new();
            self.line(&bad, &mut line);
            out.splice(begin..begin, line);
        }
        packet.notes_mut().set_u32(Annotations::EXTRA_LENGTH, extra);
    }
}

/// Writes text to a byte vector.
struct Text<'a>(&'a mut Vec<u8>);

impl Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

fn option_set(field: Field) -> OptionSet {
    match field {
        Field::TcpSack => OptionSet::Sack,
        Field::TcpOtherOptions => OptionSet::NoTimestamps,
        _ => OptionSet::All,
    }
}

fn print(field: Field, value: Value<'_>, out: &mut Text<'_>) -> fmt::Result {
    match value {
        Value::Number(number) => print_number(field, number, out),
        Value::Bytes(bytes) => match field {
            Field::IpOptions => ip_options::unparse(bytes, out),
            Field::TcpOptions | Field::TcpOtherOptions | Field::TcpSack => {
                tcp_options::unparse(bytes, option_set(field), out)
            }
            Field::Payload => out.write_str(&config::quote(bytes)),
            Field::PayloadMd5 => digest_text(&Md5::digest(bytes), out),
            Field::PayloadMd5Hex => Md5::digest(bytes).iter().try_for_each(|byte| write!(out, "{byte:02x}")),
            _ => match bytes.first_chunk() {
                Some(address) => {
                    let text = alloc::format!("{}", MacAddress(*address));
                    out.write_str(&text.replace(':', "-").to_uppercase())
                }
                None => out.write_char('-'),
            },
        },
    }
}

fn print_number(field: Field, number: u64, out: &mut Text<'_>) -> fmt::Result {
    match field {
        Field::Timestamp | Field::NanoTimestamp | Field::FirstTimestamp | Field::FirstNanoTimestamp => {
            write!(out, "{}", Time(number as i64))
        }
        Field::Direction if number < 2 => out.write_char(if number == 0 { '>' } else { '<' }),
        Field::EtherType => write!(out, "{number:04X}"),
        Field::IpSource | Field::IpDestination => write!(out, "{}", Ipv4Addr::from_bits(number as u32)),
        Field::IpFragment => out.write_char(char::from(number as u8)),
        Field::IpFragmentOffset => {
            let more = if number & u64::from(MORE_FRAGMENTS) > 0 { "+" } else { "" };
            let whole = if number & u64::from(DONT_FRAGMENT) > 0 { "!" } else { "" };
            write!(out, "{}{more}{whole}", (number & u64::from(FRAGMENT_OFFSET)) * 8)
        }
        Field::IpProtocol => match Protocol(number as u8) {
            Protocol::ICMP => out.write_char('I'),
            Protocol::TCP => out.write_char('T'),
            Protocol::UDP => out.write_char('U'),
            _ => write!(out, "{number}"),
        },
        Field::IpEcn => out.write_str(["no", "ect1", "ect2", "ce"].get(number as usize).unwrap_or(&"-")),
        Field::TcpFlags => flags(number, out),
        Field::IcmpTypeName => name(names::icmp_type_name(number as u8), number, out),
        Field::IcmpCodeName => {
            name(names::icmp_code_name((number >> 8) as u8, number as u8), number & 0xff, out)
        }
        _ => write!(out, "{number}"),
    }
}

fn name(name: Option<&str>, number: u64, out: &mut Text<'_>) -> fmt::Result {
    match name {
        Some(name) => out.write_str(name),
        None => write!(out, "{number}"),
    }
}

fn flags(number: u64, out: &mut Text<'_>) -> fmt::Result {
    if number & 0x1ff == 0 {
        return out.write_char('.');
    }
    FLAGS
        .chars()
        .enumerate()
        .filter(|(bit, _)| number >> bit & 1 == 1)
        .try_for_each(|(_, letter)| out.write_char(letter))
}

/// A digest as 22 characters of 6 bits each, the lowest bits first.
fn digest_text(digest: &[u8], out: &mut Text<'_>) -> fmt::Result {
    const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@";
    let number = digest.first_chunk().map_or(0, |bytes| u128::from_le_bytes(*bytes));
    (0..22).try_for_each(|place| {
        out.write_char(char::from(LETTERS[usize::try_from(number >> (6 * place) & 63).unwrap_or(0)]))
    })
}

fn store(field: Field, value: Option<Value<'_>>, out: &mut Vec<u8>) {
    let number = match value {
        Some(Value::Number(number)) => number,
        _ => 0,
    };
    let bytes = match value {
        Some(Value::Bytes(bytes)) => bytes,
        _ => &[],
    };
    match (field.stored(), field) {
        (Stored::Micro | Stored::Nano, _) => {
            let unit = if field.stored() == Stored::Micro { 1000 } else { 1 };
            let time = number as i64;
            out.extend((time.div_euclid(1_000_000_000) as u32).to_be_bytes());
            out.extend((time.rem_euclid(1_000_000_000) as u32 / unit).to_be_bytes());
        }
        (Stored::Counted, _) => {
            let at = out.len();
            out.push(0);
            match field {
                Field::IpOptions => out.extend_from_slice(bytes),
                _ => tcp_options::filter(bytes, option_set(field), out),
            }
            let length = out.len() - at - 1;
            out[at] = length as u8;
        }
        (Stored::Bytes(16), _) => match value {
            Some(_) => out.extend(Md5::digest(bytes)),
            None => out.extend([0; 16]),
        },
        (Stored::Bytes(6), _) => out.extend(bytes.first_chunk::<6>().copied().unwrap_or_default()),
        (Stored::Bytes(size), _) => out.extend_from_slice(&number.to_be_bytes()[8 - size.min(8)..]),
        (Stored::Never, _) => {}
    }
}
