//! Rules in the language of Snort's rule files, as far as they are understood.
use core::net::{Ipv4Addr, Ipv6Addr};
use ringway_click::prelude::*;
use ringway_wire::Protocol;

/// Options that say nothing about a packet.
const SILENT: [&str; 11] = [
    "gid",
    "classtype",
    "reference",
    "priority",
    "metadata",
    "fast_pattern",
    "rawbytes",
    "flow",
    "service",
    "threshold",
    "target",
];

/// A rule that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NoRule {
    /// The rule is wrong.
    Wrong(String),
    /// The rule needs something that is not supported.
    Unsupported(String),
}

fn wrong<T>(what: impl Into<String>) -> Result<T, NoRule> {
    Err(NoRule::Wrong(what.into()))
}

/// An address with a prefix length; IPv4 addresses are mapped to IPv6.
type Prefix = (u128, u32);

/// Addresses or ports: all, or those of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Set<T> {
    /// `None` is all.
    members: Option<Vec<T>>,
    inverted: bool,
}

impl<T> Set<T> {
    /// Parses `any`, a variable, a member or a list of members.
    fn parse(text: &str, member: impl Fn(&str) -> Option<T>) -> Result<Self, NoRule> {
        let (inverted, text) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest));
        if text == "any" || text.starts_with('$') {
            // Variables are not known here.
            return Ok(Self { members: None, inverted: false });
        }
        let list = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        let members: Option<Vec<T>> = list.split(',').map(|one| member(one.trim())).collect();
        match members {
            Some(members) => Ok(Self { members: Some(members), inverted }),
            None => wrong(format!("bad address or port '{text}'")),
        }
    }

    fn has(&self, is: impl Fn(&T) -> bool) -> bool {
        self.members.as_ref().is_none_or(|members| members.iter().any(is) != self.inverted)
    }
}

fn prefix(text: &str) -> Option<Prefix> {
    let (address, length) = text.split_once('/').map_or((text, None), |(a, b)| (a, Some(b)));
    let length: Option<u32> = match length {
        Some(length) => Some(length.parse().ok()?),
        None => None,
    };
    if let Ok(address) = address.parse::<Ipv4Addr>() {
        let length = length.unwrap_or(32);
        return (length <= 32).then(|| (address.to_ipv6_mapped().to_bits(), 96 + length));
    }
    let address = address.parse::<Ipv6Addr>().ok()?;
    let length = length.unwrap_or(128);
    (length <= 128).then_some((address.to_bits(), length))
}

fn ports(text: &str) -> Option<(u16, u16)> {
    let Some((first, last)) = text.split_once(':') else {
        let port = text.parse().ok()?;
        return Some((port, port));
    };
    let first = if first.is_empty() { 0 } else { first.parse().ok()? };
    let last = if last.is_empty() { u16::MAX } else { last.parse().ok()? };
    Some((first, last))
}

/// One side of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Side {
    addresses: Set<Prefix>,
    ports: Set<(u16, u16)>,
}

impl Side {
    fn parse(address: &str, port: &str) -> Result<Self, NoRule> {
        Ok(Self { addresses: Set::parse(address, prefix)?, ports: Set::parse(port, ports)? })
    }

    fn has(&self, address: u128, port: u16) -> bool {
        let same = |(own, length): &Prefix| (own ^ address).checked_shr(128 - length).unwrap_or(0) == 0;
        self.addresses.has(same) && self.ports.has(|(first, last)| (*first..=*last).contains(&port))
    }
}

/// Bytes that a payload must, or must not, contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) bytes: Box<[u8]>,
    pub(super) inverted: bool,
    nocase: bool,
    offset: usize,
    /// Number of bytes from the offset on that are searched.
    depth: Option<usize>,
}

impl Content {
    fn parse(text: &str) -> Result<Self, NoRule> {
        let (inverted, text) = text.strip_prefix('!').map_or((false, text), |rest| (true, rest.trim()));
        let Some(quoted) = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) else {
            return wrong("content must be in quotes");
        };
        let (mut bytes, mut hex, mut escaped, mut digits) = (Vec::new(), false, false, String::new());
        for byte in quoted.bytes() {
            match byte {
                _ if escaped => {
                    bytes.push(byte);
                    escaped = false;
                }
                b'\\' if !hex => escaped = true,
                b'|' => hex = !hex,
                b' ' if hex => {}
                _ if hex => {
                    digits.push(byte.into());
                    if digits.len() == 2 {
                        match u8::from_str_radix(&digits, 16) {
                            Ok(byte) => bytes.push(byte),
                            Err(_) => return wrong(format!("bad byte '{digits}'")),
                        }
                        digits.clear();
                    }
                }
                _ => bytes.push(byte),
            }
        }
        if hex || !digits.is_empty() || bytes.is_empty() {
            return wrong(format!("bad content {text}"));
        }
        Ok(Self { bytes: bytes.into(), inverted, ..Self::default() })
    }

    /// Whether a payload satisfies this condition.
    fn holds(&self, text: &[u8]) -> bool {
        let text = text.get(self.offset..).unwrap_or_default();
        let text = &text[..text.len().min(self.depth.unwrap_or(usize::MAX))];
        let same = |part: &[u8]| match self.nocase {
            true => part.eq_ignore_ascii_case(&self.bytes),
            false => *part == *self.bytes,
        };
        text.windows(self.bytes.len()).any(same) != self.inverted
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rule {
    /// Whether matching packets are dropped, not only reported.
    pub(super) drops: bool,
    /// `None` is every protocol.
    protocol: Option<Protocol>,
    sides: [Side; 2],
    both_ways: bool,
    pub(super) contents: Vec<Content>,
    pub(super) message: String,
    pub(super) sid: u32,
    pub(super) revision: u32,
}

/// The fields of a packet that rules look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields {
    pub(super) protocol: Protocol,
    pub(super) source: (u128, u16),
    pub(super) destination: (u128, u16),
}

impl Rule {
    /// Parses a line of a rule file.
    ///
    /// # Errors
    /// [`NoRule`].
    pub(super) fn parse(line: &str) -> Result<Self, NoRule> {
        let Some((head, options)) = line.split_once('(') else { return wrong("expected (OPTIONS)") };
        let Some(options) = options.trim_end().strip_suffix(')') else { return wrong("expected )") };
        // A list of a header may have spaces after its commas.
        let head = head.replace(", ", ",");
        let words: Vec<&str> = head.split_ascii_whitespace().collect();
        let [action, protocol, from, from_port, way, to, to_port] = words[..] else {
            return wrong("expected ACTION PROTOCOL ADDRESS PORT -> ADDRESS PORT");
        };
        let drops = match action {
            "alert" | "log" => false,
            "drop" | "block" | "reject" | "sdrop" => true,
            _ => return Err(NoRule::Unsupported(format!("action {action}"))),
        };
        let protocol = match protocol {
            "tcp" => Some(Protocol::TCP),
            "udp" => Some(Protocol::UDP),
            "icmp" => Some(Protocol::ICMP),
            "ip" => None,
            _ => return Err(NoRule::Unsupported(format!("protocol {protocol}"))),
        };
        if !matches!(way, "->" | "<>") {
            return wrong(format!("expected ->, not '{way}'"));
        }
        let sides = [Side::parse(from, from_port)?, Side::parse(to, to_port)?];
        let mut rule = Self { drops, protocol, sides, both_ways: way == "<>", ..Self::default() };
        for option in split(options) {
            rule.option(option)?;
        }
        if rule.contents.iter().all(|content| content.inverted) {
            return Err(NoRule::Unsupported("a rule without content".into()));
        }
        Ok(rule)
    }

    fn option(&mut self, option: &str) -> Result<(), NoRule> {
        let (name, value) = option.split_once(':').unwrap_or((option, ""));
        let (name, value) = (name.trim(), value.trim());
        let number = || value.parse::<u32>().or_else(|_| wrong(format!("bad {name} '{value}'")));
        match name {
            "msg" => self.message = value.trim_matches('"').replace("\\\"", "\"").replace("\\;", ";"),
            "sid" => self.sid = number()?,
            "rev" => self.revision = number()?,
            "content" => {
                // Snort 3 has a content's modifiers behind commas.
                let (content, modifiers) = match value.rfind('"').map(|end| value.split_at(end + 1)) {
                    Some((content, modifiers)) => (content, modifiers),
                    None => (value, ""),
                };
                self.contents.push(Content::parse(content)?);
                for modifier in modifiers.split(',').map(str::trim).filter(|text| !text.is_empty()) {
                    let (name, value) = modifier.split_once(' ').unwrap_or((modifier, ""));
                    self.modify(name, value.trim())?;
                }
            }
            "nocase" | "offset" | "depth" => self.modify(name, value)?,
            _ if SILENT.contains(&name) => {}
            _ => return Err(NoRule::Unsupported(name.to_string())),
        }
        Ok(())
    }

    /// A modifier of the last content.
    fn modify(&mut self, name: &str, value: &str) -> Result<(), NoRule> {
        let number = || value.parse::<u16>().or_else(|_| wrong(format!("bad {name} '{value}'")));
        let Some(content) = self.contents.last_mut() else { return wrong(format!("{name} without content")) };
        match name {
            "nocase" => content.nocase = true,
            "offset" => content.offset = number()?.into(),
            "depth" => content.depth = Some(number()?.into()),
            "fast_pattern" => {}
            _ => return Err(NoRule::Unsupported(name.to_string())),
        }
        if content.depth.is_some_and(|depth| depth < content.bytes.len()) {
            return wrong("depth is less than the content's length");
        }
        Ok(())
    }

    /// The content for which payloads are searched first: the longest one.
    pub(super) fn key(&self) -> &[u8] {
        let wanted = self.contents.iter().filter(|content| !content.inverted);
        wanted.max_by_key(|content| content.bytes.len()).map_or(&[], |content| &content.bytes)
    }

    /// Whether it counts bytes from the start of a payload, or needs to see all of it.
    pub(super) fn is_bound(&self) -> bool {
        self.contents.iter().any(|content| content.offset > 0 || content.depth.is_some() || content.inverted)
    }

    /// Whether a packet with this payload satisfies it.
    pub(super) fn holds(&self, fields: &Fields, text: &[u8]) -> bool {
        let Fields { protocol, source, destination } = *fields;
        let icmp = |protocol| if protocol == Protocol::ICMPV6 { Protocol::ICMP } else { protocol };
        if self.protocol.is_some_and(|own| own != icmp(protocol)) {
            return false;
        }
        let [one, two] = &self.sides;
        let way = |from: (u128, u16), to: (u128, u16)| one.has(from.0, from.1) && two.has(to.0, to.1);
        if !way(source, destination) && !(self.both_ways && way(destination, source)) {
            return false;
        }
        self.contents.iter().all(|content| content.holds(text))
    }
}

/// Splits options at semicolons that are neither in quotes nor escaped.
fn split(options: &str) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    let parts = options.split(move |letter| {
        let ends = letter == ';' && !quoted && !escaped;
        quoted ^= letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        ends
    });
    parts.map(str::trim).filter(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(source: u16, destination: u16) -> Fields {
        let address = |last| Ipv4Addr::new(10, 0, 0, last).to_ipv6_mapped().to_bits();
        Fields {
            protocol: Protocol::TCP,
            source: (address(1), source),
            destination: (address(2), destination),
        }
    }

    #[test]
    fn rules_are_read_and_matched() {
        let text = r#"alert tcp $EXTERNAL_NET any -> [10.0.0.2, 10.1.0.0/16]
            [80,8000:8080] (msg:"a \"b\"\; c";
            flow:to_server,established; content:"GET|20 2f|"; depth:5; content:"pass\;wd"; nocase; offset:5;
            content:!"ok"; classtype:web-application-attack; sid:1000001; rev:7;)"#;
        let rule = Rule::parse(&text.replace('\n', " ")).unwrap();
        assert_eq!(
            (&*rule.message, rule.sid, rule.revision, rule.drops),
            ("a \"b\"; c", 1_000_001, 7, false)
        );
        assert_eq!(rule.key(), b"pass;wd");
        assert!(rule.is_bound());
        assert!(rule.holds(&fields(1000, 80), b"GET /PASS;WD"));
        assert!(rule.holds(&fields(1000, 8001), b"GET /.pass;wd"));
        for (ports, text) in [
            ((1000, 81), &b"GET /PASS;WD"[..]),
            ((1000, 80), b"get /PASS;WD"),
            ((1000, 80), b" GET /PASS;WD"),
            ((1000, 80), b"GET /PASS;WD ok"),
            ((80, 1000), b"GET /PASS;WD"),
        ] {
            assert!(!rule.holds(&fields(ports.0, ports.1), text), "{ports:?}");
        }
        let both = Rule::parse("drop ip !10.0.0.1 any <> any 80 (content:\"a\", nocase; sid:2;)").unwrap();
        assert!(both.drops && both.holds(&fields(80, 1), b"A") && !both.holds(&fields(1, 80), b"A"));
    }

    #[test]
    fn rules_that_cannot_be_used_say_why() {
        for (text, why) in [
            ("alert tcp any any -> any any", "expected (OPTIONS)"),
            ("alert tcp any -> any any (content:\"a\";)", "expected ACTION PROTOCOL"),
            ("alert tcp any any -> any 1:x (content:\"a\";)", "bad address or port"),
            ("alert tcp any any -> any any (nocase;)", "nocase without content"),
            ("alert tcp any any -> any any (content:\"|4|\";)", "bad content"),
            ("alert tcp any any -> any any (content:\"abc\"; depth:2;)", "depth is less"),
        ] {
            let found = Rule::parse(text);
            assert!(matches!(&found, Err(NoRule::Wrong(what)) if what.contains(why)), "{text}: {found:?}");
        }
        for (text, what) in [
            ("alert tcp any any -> any any (content:\"a\"; pcre:\"/a;b/\";)", "pcre"),
            ("alert tcp any any -> any any (msg:\"none\";)", "a rule without content"),
            ("pass tcp any any -> any any (content:\"a\";)", "action pass"),
        ] {
            assert_eq!(Rule::parse(text), Err(NoRule::Unsupported(what.into())));
        }
    }
}
