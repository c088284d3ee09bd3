//! Values of fields, and pieces of a flow's text with their columns.

use crate::Ports;
use crate::key::{FRAGMENT, LATER, TAGGED, ones};
use core::fmt::Write as _;
use ringway_wire::MacAddress;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Most bytes of one line of text. Attack: a client of the API that sends a line without end.
pub const LONGEST: usize = 64 << 10;

/// Ports whose names have the most bytes: 64, as all names of a fabric, and quotes.
pub(crate) struct Longest;

impl Ports for Longest {
    fn number(&self, _word: &str) -> Option<u16> {
        None
    }

    fn name(&self, _number: u16) -> Option<String> {
        Some("7".repeat(64))
    }
}

/// What is wrong, and what to do; its column is known elsewhere.
pub type Problem = String;

/// Why a text is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("column {column}: {what}")]
pub struct FlowError {
    /// Where, in characters from 1.
    pub column: usize,
    /// What is wrong, and what to do.
    pub what: Problem,
}

impl FlowError {
    pub(crate) fn new(column: usize, what: impl Into<Problem>) -> FlowError {
        FlowError { column, what: what.into() }
    }
}

/// A piece of a text, and the column of its first character.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<'t> {
    pub(crate) text: &'t str,
    pub(crate) column: usize,
}

impl<'t> Piece<'t> {
    pub(crate) fn new(text: &'t str) -> Piece<'t> {
        Piece { text, column: 1 }
    }

    pub(crate) fn error(self, what: impl Into<Problem>) -> FlowError {
        FlowError::new(self.column, what)
    }

    /// Splits at a byte of the text, which is a character's.
    pub(crate) fn split_at(self, at: usize) -> (Piece<'t>, Piece<'t>) {
        let (before, behind) = self.text.split_at(at);
        (Piece { text: before, ..self }, Piece { text: behind, column: self.column + before.chars().count() })
    }

    /// Without white space at its ends.
    pub(crate) fn trim(self) -> Piece<'t> {
        let text = self.text.trim_start();
        let (_, rest) = self.split_at(self.text.len() - text.len());
        Piece { text: rest.text.trim_end(), ..rest }
    }

    /// What is before and behind the first `separator`.
    pub(crate) fn split_once(self, separator: &str) -> Option<(Piece<'t>, Piece<'t>)> {
        let (before, rest) = self.split_at(self.text.find(separator)?);
        Some((before, rest.split_at(separator.len()).1))
    }

    /// The items of a list, which commas or white space separate; parentheses and quotes hold an item together.
    pub(crate) fn items(self) -> impl Iterator<Item = Piece<'t>> {
        let mut rest = self;
        std::iter::from_fn(move || {
            let is_separator = |letter: char| letter == ',' || letter.is_whitespace();
            let start = rest.text.find(|letter| !is_separator(letter))?;
            rest = rest.split_at(start).1;
            let (mut depth, mut is_quoted, mut end) = (0_usize, false, rest.text.len());
            for (at, letter) in rest.text.char_indices() {
                match letter {
                    '"' => is_quoted = !is_quoted,
                    _ if is_quoted => {}
                    '(' => depth += 1,
                    ')' => depth = depth.saturating_sub(1),
                    _ if depth == 0 && is_separator(letter) => {
                        end = at;
                        break;
                    }
                    _ => {}
                }
            }
            let (item, behind) = rest.split_at(end);
            rest = behind;
            Some(item)
        })
    }

    /// Its text for a message.
    pub(crate) fn shown(self) -> String {
        shown(self.text)
    }

    /// A number from 0 to `most`.
    pub(crate) fn number(self, most: u64) -> Result<u64, FlowError> {
        number(self.text, u128::from(most)).map(|number| number as u64).map_err(|what| self.error(what))
    }
}

/// A text for a message: escaped, and its beginning if it is long.
pub(crate) fn shown(text: &str) -> String {
    let short: String = text.chars().take(60).collect();
    let more = if short.len() < text.len() { "..." } else { "" };
    format!("{}{more}", short.escape_debug())
}

/// What a field's values look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A port's name, or its number.
    Port,
    /// A MAC address.
    Mac,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// A number, shown as a decimal one.
    Number,
    /// A number of 8 bits in a field of 16.
    Byte,
    /// A number, shown as a hexadecimal one, but for 0.
    Hexadecimal,
    /// A number, shown with this many hexadecimal digits.
    Digits(usize),
    /// A port of TCP, UDP or SCTP.
    TransportPort,
    /// A VLAN's number with the bit 0x1000.
    Vlan,
    /// Flags of TCP.
    Flags,
    /// What fragments a packet may be.
    Fragment,
}

/// The bits of TCP's flags, from the lowest.
const FLAGS: [&str; 9] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"];

/// The words for fragments: value and mask.
const FRAGMENTS: [(&str, u8, u8); 5] = [
    ("no", 0, FRAGMENT | LATER),
    ("yes", FRAGMENT, FRAGMENT),
    ("first", FRAGMENT, FRAGMENT | LATER),
    ("later", FRAGMENT | LATER, FRAGMENT | LATER),
    ("not_later", 0, LATER),
];

impl Form {
    /// Reads a value of a field whose greatest one is `all`, and its mask: `all` if the text has none.
    ///
    /// # Errors
    /// It is no such value.
    pub fn read(self, text: &str, all: u128, ports: &dyn Ports) -> Result<(u128, u128), Problem> {
        let (value, mask) = match text.split_once('/') {
            Some((value, mask)) if !matches!(self, Form::Port | Form::Fragment) => (value, Some(mask)),
            _ => (text, None),
        };
        let (value, mask) = match self {
            Form::Port => (u128::from(port(text, ports)?), all),
            Form::Fragment => {
                let row = FRAGMENTS.iter().find(|(word, ..)| *word == text).ok_or_else(|| {
                    format!("`{}` is none of no, yes, first, later, not_later", shown(text))
                })?;
                (row.1.into(), row.2.into())
            }
            Form::Flags => flags(text, all)?,
            Form::Mac => (mac(value)?, mask.map_or(Ok(all), mac)?),
            Form::Ipv4 => (ipv4(value)?, mask.map_or(Ok(all), |mask| prefix(mask, 32, ipv4))?),
            Form::Ipv6 => (ipv6(value)?, mask.map_or(Ok(all), |mask| prefix(mask, 128, ipv6))?),
            Form::Vlan => {
                let (value, mask) = (number(value, all)?, mask.map_or(Ok(all), |mask| number(mask, all))?);
                let is_present = value & mask & u128::from(TAGGED) != 0;
                let is_absent = value & mask == 0 && mask & u128::from(TAGGED) != 0;
                if !is_present && !is_absent {
                    return Err(format!(
                        "`{}` lacks the bit 0x1000, which says that there is a tag; write vlan_vid={}, \
                         or dl_vlan",
                        shown(text),
                        value | u128::from(TAGGED)
                    ));
                }
                (value, mask)
            }
            Form::Number | Form::Byte | Form::Hexadecimal | Form::Digits(_) | Form::TransportPort => {
                (number(value, all)?, mask.map_or(Ok(all), |mask| number(mask, all))?)
            }
        };
        Ok((value & mask, mask))
    }

    /// A value as it is read again.
    pub fn show(self, value: u128, mask: u128, all: u128, ports: &dyn Ports) -> String {
        let is_exact = mask == all;
        match self {
            Form::Port => show_port(value as u16, ports),
            Form::Fragment => {
                let is_it = |row: &&(&str, u8, u8)| (u128::from(row.1), u128::from(row.2)) == (value, mask);
                FRAGMENTS
                    .iter()
                    .find(is_it)
                    .map_or_else(|| format!("{value}/{mask}"), |row| row.0.to_string())
            }
            Form::Flags => show_flags(value, mask, all),
            Form::Mac if is_exact => show_mac(value),
            Form::Mac => format!("{}/{}", show_mac(value), show_mac(mask)),
            Form::Ipv4 => {
                let show = |value: u128| Ipv4Addr::from_bits(value as u32).to_string();
                show_prefix(show, value, mask, 32)
            }
            Form::Ipv6 => show_prefix(|value| Ipv6Addr::from_bits(value).to_string(), value, mask, 128),
            Form::Hexadecimal if is_exact => hexadecimal(value),
            Form::Hexadecimal => format!("{}/{}", hexadecimal(value), hexadecimal(mask)),
            Form::Digits(count) if is_exact => format!("0x{value:0count$x}"),
            Form::Digits(count) => format!("0x{value:0count$x}/0x{mask:0count$x}"),
            _ if is_exact => value.to_string(),
            _ => format!("{value:#x}/{mask:#x}"),
        }
    }
}

/// A number from 0 to `most`, decimal or hexadecimal.
pub(crate) fn number(text: &str, most: u128) -> Result<u128, Problem> {
    let digits = |text: &str, radix: u32| {
        let all = !text.is_empty() && text.chars().all(|digit| digit.is_digit(radix));
        all.then(|| u128::from_str_radix(text, radix).ok()).flatten()
    };
    let found = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => digits(hex, 16),
        None => digits(text, 10),
    };
    let limit = || if most > 0xffff { format!("{most:#x}") } else { most.to_string() };
    found
        .filter(|number| *number <= most)
        .ok_or_else(|| format!("`{}` is not a number from 0 to {}", shown(text), limit()))
}

/// A number as C's `%#x` shows it.
fn hexadecimal(value: u128) -> String {
    if value == 0 { "0".to_string() } else { format!("{value:#x}") }
}

/// A port's number.
pub(crate) fn port(text: &str, ports: &dyn Ports) -> Result<u16, Problem> {
    let word = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    ports.number(word).ok_or_else(|| format!("there is no port `{}`", shown(word)))
}

/// A port's name or number, as it is read again: quoted if it would be taken for another word.
pub(crate) fn show_port(number: u16, ports: &dyn Ports) -> String {
    const WORDS: [&str; 9] =
        ["in_port", "all", "flood", "normal", "local", "controller", "table", "none", "any"];
    let Some(name) = ports.name(number) else { return number.to_string() };
    let is_word = WORDS.iter().any(|word| name.eq_ignore_ascii_case(word));
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-' | '.');
    let is_number = name.starts_with(|first: char| first.is_ascii_digit());
    match is_word || is_number || !name.chars().all(is_plain) {
        true => format!("\"{name}\""),
        false => name,
    }
}

fn mac(text: &str) -> Result<u128, Problem> {
    let found = text.parse::<MacAddress>().map(|mac| u128::from(mac.to_u64()));
    found.map_err(|_| format!("`{}` is not a MAC address, such as 02:00:00:00:00:01", shown(text)))
}

fn show_mac(value: u128) -> String {
    MacAddress::from_u64(value as u64).to_string()
}

fn ipv4(text: &str) -> Result<u128, Problem> {
    let found = text.parse::<Ipv4Addr>().map(|address| u128::from(address.to_bits()));
    found.map_err(|_| format!("`{}` is not an IPv4 address, such as 10.0.0.1", shown(text)))
}

fn ipv6(text: &str) -> Result<u128, Problem> {
    let found = text.parse::<Ipv6Addr>().map(Ipv6Addr::to_bits);
    found.map_err(|_| format!("`{}` is not an IPv6 address, such as fd00::1", shown(text)))
}

/// A mask of an address: a length, or an address.
fn prefix(text: &str, bits: u8, read: impl Fn(&str) -> Result<u128, Problem>) -> Result<u128, Problem> {
    match number(text, bits.into()) {
        Ok(length) => Ok(of_length(length as u8, bits)),
        Err(_) => read(text),
    }
}

/// The mask of an address of so many bits with a prefix of this length.
fn of_length(length: u8, bits: u8) -> u128 {
    ones(bits) ^ ones(bits.saturating_sub(length))
}

fn show_prefix(show: impl Fn(u128) -> String, value: u128, mask: u128, bits: u8) -> String {
    let length = (mask << (128 - u32::from(bits))).leading_ones() as u8;
    match length {
        _ if length == bits => show(value),
        _ if of_length(length, bits) == mask => format!("{}/{length}", show(value)),
        _ => format!("{}/{}", show(value), show(mask)),
    }
}

/// `syn|ack`, `+syn-ack`, a number, or a number with a mask.
fn flags(text: &str, all: u128) -> Result<(u128, u128), Problem> {
    let bit = |word: &str| {
        FLAGS.iter().position(|flag| *flag == word).map(|bit| 1 << bit).ok_or_else(|| {
            let known = FLAGS.join(", ");
            format!("`{}` is not a flag of TCP; they are {known}, as in +syn-ack or syn|ack", shown(word))
        })
    };
    if text.starts_with(['+', '-']) {
        let (mut value, mut mask, mut rest) = (0, 0, text);
        while !rest.is_empty() {
            let is_set = rest.starts_with('+');
            rest = &rest[1..];
            let end = rest.find(['+', '-']).unwrap_or(rest.len());
            let bit: u128 = bit(&rest[..end])?;
            (value, mask) = (value | if is_set { bit } else { 0 }, mask | bit);
            rest = &rest[end..];
        }
        return Ok((value, mask));
    }
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        let (value, mask) = text.split_once('/').map_or((text, None), |(value, mask)| (value, Some(mask)));
        return Ok((number(value, all)?, mask.map_or(Ok(all), |mask| number(mask, all))?));
    }
    let mut value = 0;
    for word in text.split('|') {
        value |= bit(word)?;
    }
    Ok((value, all))
}

fn show_flags(value: u128, mask: u128, all: u128) -> String {
    let named = ones(FLAGS.len() as u8);
    let has = |bits: u128, bit: usize| bits >> bit & 1 != 0;
    if value == 0 && mask == all {
        return "0".to_string();
    }
    if mask == all && value & !named == 0 {
        let set = FLAGS.iter().enumerate().filter(|(bit, _)| has(value, *bit)).map(|(_, flag)| *flag);
        return set.collect::<Vec<_>>().join("|");
    }
    if mask & !named != 0 {
        return format!("{value:#x}/{mask:#x}");
    }
    let mut text = String::new();
    for (bit, flag) in FLAGS.iter().enumerate().filter(|(bit, _)| has(mask, *bit)) {
        // Writing to a string does not fail.
        let _ = write!(text, "{}{flag}", if has(value, bit) { '+' } else { '-' });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Numbers;

    fn both(form: Form, all: u128, text: &str) -> String {
        let (value, mask) = form.read(text, all, &Numbers).unwrap();
        form.show(value, mask, all, &Numbers)
    }

    #[test]
    fn values_are_shown_as_they_are_read() {
        for text in ["10.0.0.1", "10.0.0.0/8", "0.0.0.0/0", "10.0.2.0/255.0.255.0"] {
            assert_eq!(both(Form::Ipv4, ones(32), text), text);
        }
        assert_eq!(both(Form::Ipv4, ones(32), "10.1.2.3/255.255.0.0"), "10.1.0.0/16");
        for text in ["fd00::1", "fd00::/16", "::1/::ffff"] {
            assert_eq!(both(Form::Ipv6, u128::MAX, text), text);
        }
        for text in ["02:00:00:00:00:01", "01:00:00:00:00:00/01:00:00:00:00:00"] {
            assert_eq!(both(Form::Mac, ones(48), text), text);
        }
        for text in ["+syn-ack", "syn|ack", "0", "0x1000/0x1000"] {
            assert_eq!(both(Form::Flags, ones(13), text), text);
        }
        for text in ["no", "yes", "first", "later", "not_later"] {
            assert_eq!(both(Form::Fragment, 3, text), text);
        }
        assert_eq!(both(Form::TransportPort, 0xffff, "80"), "80");
        assert_eq!(both(Form::TransportPort, 0xffff, "0x100/0xff00"), "0x100/0xff00");
        assert_eq!(both(Form::Hexadecimal, ones(32), "5/15"), "0x5/0xf");
    }

    #[test]
    fn wrong_values_are_named() {
        let refused = |form: Form, text: &str| form.read(text, 0xffff, &Numbers).unwrap_err();
        assert_eq!(refused(Form::TransportPort, "65536"), "`65536` is not a number from 0 to 65535");
        assert_eq!(refused(Form::Port, "x"), "there is no port `x`");
        assert!(refused(Form::Flags, "+syn-foo").contains("`foo`"));
        assert!(refused(Form::Flags, "+").contains("``"));
        assert!(refused(Form::Vlan, "5").contains("vlan_vid=4101"));
        assert!(refused(Form::Fragment, "maybe").contains("not_later"));
        assert!(refused(Form::Number, "0x").contains("`0x`"));
        assert!(refused(Form::Mac, "1").contains("MAC"));
    }

    #[test]
    fn items_and_their_columns() {
        let items: Vec<_> =
            Piece::new(" a,b:(c,d) ,,é e").items().map(|item| (item.text, item.column)).collect();
        assert_eq!(items, [("a", 2), ("b:(c,d)", 4), ("é", 14), ("e", 16)]);
    }
}
