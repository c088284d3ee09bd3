//! How rewriters handle packets of new flows.
use super::key::FlowKey;
use crate::rewriter::base::Used;
use core::fmt;
use core::net::Ipv4Addr;
use ringway_click::arg::{Arg, NameKind, Prefix, Scope};
use ringway_click::prelude::*;
use ringway_click_lang::config;
use ringway_click_lang::near::proposal;

/// New addresses and ports; 0 keeps the old one. One field, the source port or else the source address, may vary.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pattern {
    to: FlowKey,
    /// How far the source port or address may exceed that of `to`.
    range: u32,
    /// Whether the pattern rewrites ports.
    ports: bool,
    /// Candidates are tried in order instead of from a random one on.
    sequential: bool,
    /// The packet's own source port is tried first.
    keep_first: bool,
    next: u32,
}

fn mark<'a>(text: &'a str, pattern: &mut Pattern) -> &'a str {
    if let Some(text) = text.strip_suffix('#') {
        (pattern.sequential, pattern.keep_first) = (true, false);
        return text;
    }
    match text.strip_suffix('?') {
        Some(text) => {
            pattern.keep_first = false;
            text
        }
        None => text,
    }
}

/// The first words of input specifications; the name of a mapper is one too.
const SPECIFICATIONS: [&str; 8] =
    ["pass", "passthrough", "nochange", "keep", "drop", "discard", "pattern", "xpattern"];

/// A message, and the proposal that follows it.
fn followed(message: String, proposal: Option<String>) -> String {
    match proposal {
        Some(proposal) => format!("{message}; {proposal}"),
        None => message,
    }
}

/// Adds the nearest name of a kind to the message that `word` is not of that kind.
fn with_proposal(message: String, kind: NameKind, word: &str, scope: &Scope) -> String {
    followed(message, scope.names().proposal(kind, word, scope.element_name()))
}

impl Pattern {
    /// Parses `SADDR DADDR`, `SADDR DADDR SPORT`, `SADDR SPORT DADDR DPORT` or a name declared by IPRewriterPatterns.
    ///
    /// # Errors
    /// The error in words.
    pub fn parse(words: &[String], scope: &Scope) -> Result<Self, String> {
        let mut pattern = Self { keep_first: true, ports: words.len() >= 3, ..Self::default() };
        let (source, source_port, destination, destination_port) = match words {
            [name] => return Self::named(name, scope),
            [source, destination] => (source, None, destination, None),
            [source, destination, port] => (source, Some(port), destination, None),
            [source, port, destination, other] => (source, Some(port), destination, Some(other)),
            _ => return Err("syntax error".into()),
        };
        let address = |what: &str, word: &str| {
            with_proposal(format!("bad {what} address '{word}'"), NameKind::Ipv4, word, scope)
        };
        pattern.source(source, scope).ok_or_else(|| address("source", source))?;
        if let Some(port) = source_port {
            pattern.source_port(port, scope).ok_or_else(|| format!("bad source port '{port}'"))?;
        }
        if destination != "-" {
            let parsed = Ipv4Addr::parse(destination, scope).map_err(|_| address("destination", destination));
            pattern.to.destination = parsed?.to_bits();
        }
        if let Some(word) = destination_port.filter(|port| *port != "-") {
            let port = u16::parse(word, scope).ok().filter(|port| *port > 0);
            pattern.to.destination_port = port.ok_or_else(|| format!("bad destination port '{word}'"))?;
        }
        Ok(pattern)
    }

    fn named(name: &str, scope: &Scope) -> Result<Self, String> {
        let text = scope.names().value(NameKind::Pattern, name, scope.element_name());
        let text = text.and_then(|text| String::from_utf8(text).ok());
        let words = text.map(|text| config::split_words(&text)).filter(|words| words.len() > 1);
        let unknown =
            || Err(with_proposal(format!("no such pattern '{name}'"), NameKind::Pattern, name, scope));
        words.map_or_else(unknown, |words| Self::parse(&words, scope))
    }

    fn source(&mut self, text: &str, scope: &Scope) -> Option<()> {
        if text == "-" {
            return Some(());
        }
        if let Ok(address) = Ipv4Addr::parse(text, scope) {
            self.to.source = address.to_bits();
            return Some(());
        }
        let text = mark(text, self);
        if let Some((first, last)) = text.split_once('-') {
            let first = Ipv4Addr::parse(first, scope).ok()?.to_bits();
            let last = Ipv4Addr::parse(last, scope).ok()?.to_bits();
            self.to.source = first;
            self.range = last.checked_sub(first)?;
            return Some(());
        }
        let prefix = Prefix::parse(text, scope).ok()?;
        let (address, mask, length) = (prefix.address.to_bits(), prefix.mask.to_bits(), prefix.length()?);
        (self.to.source, self.range) = match length {
            0 => return None,
            32 => (address, 0),
            31 => (address & mask, 1),
            // Excludes the network and broadcast addresses.
            _ => ((address & mask) | 1, !mask - 2),
        };
        Some(())
    }

    fn source_port(&mut self, text: &str, scope: &Scope) -> Option<()> {
        if text == "-" {
            return Some(());
        }
        if let Some(port) = u16::parse(text, scope).ok().filter(|port| *port > 0) {
            self.to.source_port = port;
            return Some(());
        }
        let (first, last) = mark(text, self).split_once('-')?;
        let (first, last) = (u16::parse(first, scope).ok()?, u16::parse(last, scope).ok()?);
        self.to.source_port = first;
        self.range = u32::from(last.checked_sub(first)?);
        Some(())
    }

    /// Rewrites a flow's key; `None` if every candidate is in use. With `ping` the ports are an identifier and, as the
    /// destination port, the identifier plus 1.
    pub fn rewrite(
        &mut self,
        key: FlowKey,
        ping: bool,
        used: Used<'_>,
        cx: &mut Context<'_>,
    ) -> Option<FlowKey> {
        let either = |new: u16, old: u16| if new == 0 { old } else { new };
        let either_address = |new: u32, old: u32| if new == 0 { old } else { new };
        let mut new = FlowKey {
            source: either_address(self.to.source, key.source),
            source_port: either(self.to.source_port, key.source_port),
            destination: either_address(self.to.destination, key.destination),
            destination_port: either(self.to.destination_port, key.destination_port),
        };
        let finish = |new: &mut FlowKey| {
            if ping {
                new.destination_port = new.source_port.wrapping_add(1);
            }
        };
        if self.range == 0 {
            finish(&mut new);
            return Some(new);
        }
        let base = if self.ports { u32::from(self.to.source_port) } else { self.to.source };
        let try_one = |value: u32, new: &mut FlowKey| {
            if self.ports {
                new.source_port = base.wrapping_add(value) as u16;
            } else {
                new.source = base.wrapping_add(value);
            }
            finish(new);
            !used(new.reverse())
        };
        let own = u32::from(key.source_port).wrapping_sub(base);
        if self.keep_first && self.ports && own <= self.range && try_one(own, &mut new) {
            self.next = own + 1;
            return Some(new);
        }
        let mut value = match self.sequential {
            true if self.next > self.range => 0,
            true => self.next,
            false => cx.random_between(0, self.range),
        };
        // Attack: flows that exhaust a large range, so that each further flow searches all of it.
        for _ in 0..=self.range.min(1 << 16) {
            if try_one(value, &mut new) {
                self.next = value + 1;
                return Some(new);
            }
            value = if value >= self.range { 0 } else { value + 1 };
        }
        None
    }
}

/// An address or port; `-` if it is kept.
struct Part<T>(T, bool);

impl<T: fmt::Display> fmt::Display for Part<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.1 { write!(f, "{}", self.0) } else { f.write_str("-") }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = self.to;
        let address = |bits: u32| Part(Ipv4Addr::from_bits(bits), bits != 0);
        let port = |port: u16| Part(port, port != 0);
        write!(f, "{}", address(to.source))?;
        if !self.ports && self.range > 0 {
            write!(f, "-{}", Ipv4Addr::from_bits(to.source.wrapping_add(self.range)))?;
        }
        if self.ports && self.range > 0 {
            write!(f, " {}-{}", to.source_port, u32::from(to.source_port) + self.range)?;
        } else if self.ports {
            write!(f, " {}", port(to.source_port))?;
        }
        write!(f, " {}", address(to.destination))?;
        if self.ports { write!(f, " {}", port(to.destination_port)) } else { Ok(()) }
    }
}

/// How an input handles packets of new flows.
#[derive(Clone, Debug, Default)]
pub enum Action {
    /// Drops the packets.
    #[default]
    Drop,
    /// Passes the packets without adding a flow.
    Pass(u16),
    /// Adds the packets' flow unchanged.
    Keep([u16; 2]),
    /// Rewrites the packets by a pattern.
    Rewrite(Pattern, [u16; 2]),
    /// Asks a mapper element.
    Mapper(ElementId),
}

/// Parses the two outputs at the end of a specification.
///
/// # Errors
/// The error in words.
pub fn parse_outputs(words: &[String], scope: &Scope, outputs: usize) -> Result<[u16; 2], String> {
    let [forward, reply] = words else { return Err("bad forward port".into()) };
    let forward = u16::parse(forward, scope).map_err(|_| "bad forward port")?;
    let reply = u16::parse(reply, scope).map_err(|_| "bad reply port")?;
    if usize::from(forward) >= outputs || usize::from(reply) >= outputs {
        return Err("output port out of range".into());
    }
    Ok([forward, reply])
}

/// Parses a pattern and two outputs.
///
/// # Errors
/// The error in words.
pub fn parse_pattern(text: &str, scope: &Scope, outputs: usize) -> Result<(Pattern, [u16; 2]), String> {
    let words = config::split_words(text);
    let Some((ports, pattern)) = words.len().checked_sub(2).map(|at| words.split_at(at)).map(|(a, b)| (b, a))
    else {
        return Err("syntax error".into());
    };
    if pattern.is_empty() {
        return Err("syntax error".into());
    }
    let pattern = Pattern::parse(pattern, scope)?;
    Ok((pattern, parse_outputs(ports, scope, outputs)?))
}

impl Action {
    /// Parses an input specification.
    ///
    /// # Errors
    /// A message with Click's text.
    pub fn parse(text: &str, scope: &Scope, outputs: usize) -> Result<Self, String> {
        let (word, rest) = config::shift_word(text);
        let rest = rest.trim_ascii();
        match word {
            "" => Err("empty argument".into()),
            "pass" | "passthrough" | "nochange" => {
                let output = if rest.is_empty() { Ok(0) } else { u16::parse(rest, scope) };
                let output = output.map_err(|_| "syntax error, expected 'nochange [OUTPUT]'")?;
                if usize::from(output) >= outputs {
                    return Err("output port out of range".into());
                }
                Ok(Self::Pass(output))
            }
            "keep" => parse_outputs(&config::split_words(rest), scope, outputs).map(Self::Keep),
            "drop" | "discard" if rest.is_empty() => Ok(Self::Drop),
            "drop" | "discard" => Err(format!("syntax error, expected '{word}'")),
            "pattern" | "xpattern" => {
                let (pattern, ports) = parse_pattern(rest, scope, outputs)?;
                Ok(Self::Rewrite(pattern, ports))
            }
            _ => match scope.find(word) {
                Some(element) if rest.is_empty() => Ok(Self::Mapper(element)),
                Some(_) => Err("syntax error, expected element name".into()),
                None => {
                    let near = proposal(word, SPECIFICATIONS);
                    Err(followed(format!("unknown specification '{word}'"), near))
                }
            },
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drop => f.write_str("<drop>"),
            Self::Pass(_) => f.write_str("<nochange>"),
            Self::Keep(_) => f.write_str("<keep>"),
            Self::Rewrite(pattern, _) => pattern.fmt(f),
            Self::Mapper(_) => f.write_str("<mapper>"),
        }
    }
}
