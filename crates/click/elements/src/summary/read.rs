//! Reading a dump's lines and records.
use super::field::{Field, Value};
use super::make::Maker;
use super::names;
use super::parse::{self, Around};
use core::net::Ipv4Addr;
use core::ops::Range;
use ringway_click::prelude::*;
use ringway_click::sort;
use ringway_click_lang::config;
use ringway_wire::{Header, Protocol};

/// The latest version supported.
const VERSION: (u32, u32) = (1, 3);
/// Maximum number of fields of a record. Attack: a `!data` line of millions of names, each of which costs time for
/// every line.
const MOST_FIELDS: usize = 256;
/// Maximum length of a binary record. Attack: a record that claims 2 GB, which the reader would buffer.
const LONGEST_RECORD: u32 = 1 << 20;

/// Default addresses and ports of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Source address.
    pub source: Ipv4Addr,
    /// Source port.
    pub source_port: u16,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// Destination port.
    pub destination_port: u16,
}

/// Allocates a packet of this length.
pub type Make<'a> = dyn FnMut(usize) -> Option<Packet> + 'a;

/// The result of reading a line or record.
#[derive(Debug)]
pub enum Item {
    /// No output: a comment, or a directive that was applied.
    Nothing,
    /// A packet.
    Packet(Packet),
    /// The rest of the dump is in binary format.
    Binary,
    /// A warning; reading continues.
    Warning(String),
    /// An error; reading continues.
    Error(String),
}

/// Length and format of a binary record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordLength {
    /// Number of bytes after the length field.
    pub bytes: usize,
    /// Whether the record is a line of text.
    pub text: bool,
}

/// Parses the length field at the start of a binary record.
///
/// # Errors
/// A message, if the record is too short or too long.
pub fn record_length(word: [u8; 4]) -> Result<RecordLength, &'static str> {
    let word = u32::from_be_bytes(word);
    match word & 0x7fff_ffff {
        0..4 => Err("binary record too short"),
        LONGEST_RECORD.. => Err("binary record too long"),
        length => Ok(RecordLength { bytes: length as usize - 4, text: word >> 31 == 1 }),
    }
}

/// Reads a dump.
#[derive(Debug)]
pub struct Reader {
    fields: Vec<Field>,
    /// Indexes of fields, in the order in which they are written into a packet.
    order: Vec<usize>,
    /// Default IP protocol of packets.
    pub protocol: u8,
    /// Whether packets get checksums, and data up to their full length.
    pub checksums: bool,
    flow: Option<Flow>,
    aggregate: Option<u32>,
    minor_version: u32,
    /// Whether a malformed packet line was reported; further ones are not.
    complained: bool,
    maker: Maker,
    scratch: Vec<u8>,
    words: Vec<Range<usize>>,
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            fields: Vec::new(),
            order: Vec::new(),
            protocol: Protocol::TCP.0,
            checksums: false,
            flow: None,
            aggregate: None,
            minor_version: VERSION.1,
            complained: false,
            maker: Maker::default(),
            scratch: Vec::new(),
            words: Vec::new(),
        }
    }
}

impl Reader {
    /// Reads the first line of a dump, which should be its banner. Returns whether it was only the banner; if not, the
    /// caller passes it to [`Reader::line`].
    pub fn first_line(&mut self, line: &str) -> (bool, Item) {
        if let Some(version) = line.strip_prefix("!IPSummaryDump") {
            let number = |text: &str| text.parse::<u32>().ok();
            let parts = version.trim_ascii().split_once('.');
            let Some((major, minor)) = parts.and_then(|(major, minor)| number(major).zip(number(minor)))
            else {
                return (true, Item::Nothing);
            };
            if major == VERSION.0 && minor <= VERSION.1 {
                self.minor_version = minor;
                return (true, Item::Nothing);
            }
            let text = format!("unexpected IPSummaryDump version {major}.{minor}");
            return (true, Item::Warning(text));
        }
        let known = ["!creator", "!data", "!contents", "!proto", "!flowid"];
        if self.fields.is_empty() && !known.iter().any(|known| line.starts_with(known)) {
            let text = "missing banner line; is this an IP summary dump?";
            return (false, Item::Warning(text.into()));
        }
        (false, Item::Nothing)
    }

    /// Sets the fields, given by names separated by spaces.
    pub fn set_fields(&mut self, names: &str) -> Item {
        self.fields.clear();
        let mut unknown = Item::Nothing;
        for word in config::split_words(names).iter().take(MOST_FIELDS) {
            let name = config::unquote_text(word);
            let field = match Field::find(&name) {
                Some(field) if field.is_readable() => field,
                Some(_) => {
                    unknown = Item::Warning(format!("content type '{name}' ignored on input"));
                    Field::Nothing
                }
                None => {
                    unknown = Item::Warning(format!("unknown content type '{name}'"));
                    Field::Nothing
                }
            };
            self.fields.push(field);
        }
        self.order = (0..self.fields.len()).collect();
        sort::by_number(&mut self.order, |place| self.fields[*place].order().into());
        if self.fields.is_empty() { Item::Error("no contents specified".into()) } else { unknown }
    }

    /// Sets the default addresses and ports: `SRC SPORT DST DPORT [PROTO]`, `-` for an unknown one.
    pub fn set_flow(&mut self, text: &str) -> Item {
        let words = config::split_words(text);
        let address = |at: usize| match words.get(at)?.as_str() {
            "-" => Some(Ipv4Addr::UNSPECIFIED),
            text => text.parse().ok(),
        };
        let port = |at: usize| match words.get(at)?.as_str() {
            "-" => Some(0),
            text => config::integer(text).and_then(|port| u16::try_from(port).ok()),
        };
        self.flow = match (address(0), port(1), address(2), port(3)) {
            (Some(source), Some(source_port), Some(destination), Some(destination_port)) => {
                Some(Flow { source, source_port, destination, destination_port })
            }
            _ => None,
        };
        if self.flow.is_none() {
            return Item::Error("bad !flowid specification".into());
        }
        match words.get(4) {
            Some(protocol) => self.set_protocol(protocol, "!flowid"),
            None => Item::Nothing,
        }
    }

    fn set_protocol(&mut self, text: &str, what: &str) -> Item {
        let words = config::split_words(text);
        let [word] = words.as_slice() else { return Item::Error(format!("bad {what}")) };
        match names::protocol(word) {
            Some(protocol) => {
                self.protocol = protocol.0;
                Item::Nothing
            }
            None => Item::Error(format!("bad protocol in {what}")),
        }
    }

    /// Reads a line, without its line end.
    pub fn line(&mut self, line: &str, make: &mut Make<'_>) -> Item {
        match line.as_bytes().first() {
            None | Some(b'#') => Item::Nothing,
            Some(b'!') => self.directive(line),
            Some(_) => {
                self.maker.begin(Protocol(self.protocol), self.flow);
                self.split(line);
                let found = self.put_words(line);
                self.finish(found, line.trim_ascii().is_empty(), make)
            }
        }
    }

    /// Parses a binary record, without its length field.
    pub fn record(&mut self, record: &[u8], make: &mut Make<'_>) -> Item {
        self.maker.begin(Protocol(self.protocol), self.flow);
        let found = self.put_packed(record);
        self.finish(found, false, make)
    }

    fn directive(&mut self, line: &str) -> Item {
        let (word, rest) = line.split_once(|c: char| c.is_ascii_whitespace()).unwrap_or((line, ""));
        match word {
            "!data" | "!contents" => self.set_fields(rest),
            "!flowid" => self.set_flow(rest),
            "!proto" => self.set_protocol(rest, "!proto"),
            "!aggregate" => {
                let number = config::integer(rest.trim_ascii()).and_then(|number| u32::try_from(number).ok());
                self.aggregate = number;
                match number {
                    Some(_) => Item::Nothing,
                    None => Item::Error("bad !aggregate specification".into()),
                }
            }
            "!binary" => Item::Binary,
            _ => Item::Nothing,
        }
    }

    /// Splits a line into words at spaces; a word in double quotes is kept whole.
    fn split(&mut self, line: &str) {
        self.words.clear();
        let bytes = line.as_bytes();
        let mut at = 0;
        while at < bytes.len() && self.words.len() < self.fields.len() {
            let begin = at;
            while at < bytes.len() && !bytes[at].is_ascii_whitespace() {
                at = if bytes[at] == b'"' { skip_quoted(bytes, at) } else { at + 1 };
            }
            self.words.push(begin..at);
            while at < bytes.len() && bytes[at].is_ascii_whitespace() {
                at += 1;
            }
        }
    }

    fn put_words(&mut self, line: &str) -> usize {
        let mut found = 0;
        for place in &self.order {
            let field = self.fields[*place];
            let word = self.words.get(*place).and_then(|range| line.get(range.clone())).unwrap_or("");
            if matches!(word, "" | "-") || field == Field::Nothing {
                continue;
            }
            let around = Around { minor_version: self.minor_version, icmp_type: self.maker.icmp_type };
            if let Some(value) = parse::text(field, word, around, &mut self.scratch) {
                self.maker.put(field, value);
                found += 1;
            }
        }
        found
    }

    fn put_packed(&mut self, record: &[u8]) -> usize {
        let mut rest = record;
        let mut values: Vec<Option<Value<'_>>> = Vec::with_capacity(self.fields.len());
        for field in &self.fields {
            let value = parse::packed(*field, &mut rest);
            if value.is_none() {
                rest = &[];
            }
            values.push(value);
        }
        let mut found = 0;
        for place in &self.order {
            let field = self.fields[*place];
            if let Some(value) = values[*place].filter(|_| field != Field::Nothing) {
                self.maker.put(field, value);
                found += 1;
            }
        }
        found
    }

    fn finish(&mut self, found: usize, blank: bool, make: &mut Make<'_>) -> Item {
        if found == 0 {
            if self.complained || blank {
                return Item::Nothing;
            }
            self.complained = true;
            let none = self.fields.is_empty();
            let text = if none { "no '!data' provided" } else { "packet parse error" };
            return Item::Error(text.into());
        }
        if let Some(aggregate) = self.aggregate
            && !self.fields.contains(&Field::Aggregate)
        {
            self.maker.notes.set_u32(ringway_click::Annotations::AGGREGATE, aggregate);
        }
        self.maker.end(self.checksums);
        let maker = &self.maker;
        let link = maker.link.as_ref().map_or(&[][..], Header::bytes);
        let Some(mut packet) = make(link.len() + maker.network.len()) else {
            return Item::Error("out of memory".into());
        };
        let (front, back) = packet.data_mut().split_at_mut(link.len());
        front.copy_from_slice(link);
        back.copy_from_slice(&maker.network);
        *packet.notes_mut() = maker.notes.clone();
        packet.set_timestamp(maker.timestamp);
        if !link.is_empty() {
            packet.set_mac_header(0);
        }
        if maker.has_ip() {
            packet.set_network_header(link.len() as isize, maker.header);
        }
        Item::Packet(packet)
    }
}

/// The offset after a string in double quotes.
fn skip_quoted(bytes: &[u8], mut at: usize) -> usize {
    at += 1;
    while at < bytes.len() && bytes[at] != b'"' {
        at += if bytes[at] == b'\\' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}
