//! The language of filters: expressions of conditions, as in tcpdump.
//!
//! ```text
//! expr   = orexpr | orexpr ? expr : expr
//! orexpr = term { (or | "||") term }
//! term   = factor { [and | "&&"] factor }
//! factor = (not | "!") factor | "(" expr ")" | true | false | condition
//! ```
use super::primitive::{Data, Field, FieldKind, Header, ICMP_TYPE, Primitive, Relation, Side, protocol_text};
use super::program::Expression;
use crate::ip::names::{self, ICMP, TCP, TCP_OR_UDP, UDP};
use core::net::Ipv4Addr;
use ringway_click::arg::{Arg, NameKind, Prefix, Scope, parse_int};
use ringway_click::prelude::*;
use ringway_wire::MacAddress;

/// Maximum nesting depth of expressions. Attack: a configuration of nothing but parentheses.
const DEPTH: u32 = 200;

/// Splits an expression into words.
pub(super) fn words(text: &str) -> Vec<String> {
    let bytes = text.as_bytes();
    let mut words = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte.is_ascii_whitespace() {
            at += 1;
            if at == bytes.len() {
                // As in Click, a space at the end is followed by an empty word: the pattern is not empty, but wrong.
                words.push(String::new());
            }
            continue;
        }
        let in_word = |byte: &u8| byte.is_ascii_alphanumeric() || b"-./@_:".contains(byte);
        let next = bytes.get(at + 1).copied();
        let length = match byte {
            b'&' | b'|' if next == Some(byte) => 2,
            b'<' | b'>' | b'!' | b'=' if next == Some(b'=') => 2,
            b'&' | b'|' | b'<' | b'>' | b'!' | b'=' => 1,
            b'(' | b')' | b'[' | b']' | b',' | b';' | b'?' => 1,
            _ => bytes[at..].iter().take_while(|byte| in_word(byte)).count().max(1),
        };
        words.push(String::from_utf8_lossy(&bytes[at..at + length]).into_owned());
        at += length;
    }
    words
}

fn type_word(word: &str) -> Option<FieldKind> {
    let field = |bit, bits| Some(FieldKind::Field(Field { protocol: None, bit, bits }));
    match word {
        "vers" => field(0, 4),
        "hl" => field(4, 4),
        "tos" => field(8, 8),
        "dscp" => field(8, 6),
        "len" => field(16, 16),
        "id" => field(32, 16),
        "ttl" => field(64, 8),
        "win" => Some(FieldKind::Field(Field { protocol: Some(TCP), bit: 112, bits: 16 })),
        "type" => Some(ICMP_TYPE),
        "host" => Some(FieldKind::Host),
        "net" => Some(FieldKind::Net),
        "port" => Some(FieldKind::Port),
        "proto" => Some(FieldKind::Protocol),
        "opt" => Some(FieldKind::TcpOption),
        "frag" => Some(FieldKind::Fragment),
        "unfrag" => Some(FieldKind::Unfragmented),
        "ect" => Some(FieldKind::EcnCapable),
        "ce" => Some(FieldKind::Congestion),
        _ => None,
    }
}

fn tcp_flag(word: &str) -> Option<u32> {
    let flags = ["fin", "syn", "rst", "psh", "ack", "urg"];
    flags.iter().position(|flag| *flag == word).map(|bit| 1 << bit)
}

/// The possible meanings of a name.
struct Meanings {
    all: Vec<Data>,
}

impl Meanings {
    /// The value of a name for `kind` and `protocol`, if these are known.
    fn of(
        word: &str,
        kind: Option<FieldKind>,
        protocol: Option<u32>,
        scope: &Scope,
    ) -> Result<Option<Data>, String> {
        let tcp = names::port(word, NameKind::TcpPort, scope).map(u32::from);
        let udp = names::port(word, NameKind::UdpPort, scope).map(u32::from);
        let candidates = [
            names::protocol(word, scope).map(|number| (Data::Protocol(number), FieldKind::Protocol, true)),
            tcp.map(|port| {
                (Data::Port(port), FieldKind::Port, matches!(protocol, None | Some(TCP | TCP_OR_UDP)))
            }),
            udp.map(|port| {
                (Data::Port(port), FieldKind::Port, matches!(protocol, None | Some(UDP | TCP_OR_UDP)))
            }),
            tcp_flag(word).map(|flag| {
                (
                    Data::TcpOption(flag),
                    FieldKind::TcpOption,
                    matches!(protocol, None | Some(TCP | TCP_OR_UDP)),
                )
            }),
            names::icmp_type(word)
                .map(|kind| (Data::IcmpType(kind.into()), ICMP_TYPE, matches!(protocol, None | Some(ICMP)))),
        ];
        let known: Vec<(Data, FieldKind, bool)> = candidates.into_iter().flatten().collect();
        let fits = |(_, own, fits): &&(Data, FieldKind, bool)| *fits && kind.is_none_or(|kind| kind == *own);
        let mut found = Self { all: known.iter().filter(fits).map(|(data, ..)| *data).collect() };
        found.all.dedup();
        match found.all[..] {
            _ if known.is_empty() => Ok(None),
            [only] => Ok(Some(only)),
            _ => {
                let wrong = if found.all.is_empty() { "meaningless" } else { "ambiguous" };
                let mut all: Vec<String> =
                    known.iter().map(|(_, kind, _)| format!("'{} {word}'", kind.text())).collect();
                all.dedup();
                let kind = kind.map_or(String::new(), |kind| kind.text() + " ");
                let protocol = protocol.map_or(String::new(), |protocol| protocol_text(protocol) + " ");
                Err(format!("'{kind}{protocol}{word}' is {wrong}; try {}", all.join(", ")))
            }
        }
    }
}

/// Reads an expression.
pub(super) struct Parser<'a> {
    words: &'a [String],
    at: usize,
    depth: u32,
    scope: &'a Scope,
    before: Primitive,
    errors: Vec<String>,
    warnings: Vec<String>,
}

impl<'a> Parser<'a> {
    /// Reads all of `words`: the expression, and warnings.
    ///
    /// # Errors
    /// Warnings and error messages.
    pub(super) fn read(
        words: &'a [String],
        scope: &'a Scope,
    ) -> Result<(Expression, Vec<String>), Vec<String>> {
        let (before, errors, warnings) = (Primitive::default(), Vec::new(), Vec::new());
        let mut parser = Self { words, at: 0, depth: 0, scope, before, errors, warnings };
        let expression = parser.choice();
        if parser.at < words.len() {
            parser.error(format!("garbage after expression at '{}'", words[parser.at]));
        }
        if parser.errors.is_empty() {
            return Ok((expression, parser.warnings));
        }
        let warnings = parser.warnings.iter().map(|warning| format!("warning: {warning}"));
        Err(warnings.chain(parser.errors).collect())
    }

    fn error(&mut self, text: impl Into<String>) {
        self.errors.push(text.into());
    }

    fn word(&self) -> &'a str {
        self.words.get(self.at).map_or("", String::as_str)
    }

    fn skip(&mut self, words: &[&str]) -> bool {
        let found = self.at < self.words.len() && words.contains(&self.word());
        self.at += usize::from(found);
        found
    }

    fn choice(&mut self) -> Expression {
        self.depth += 1;
        if self.depth > DEPTH {
            self.error("expression nested too deep");
            self.at = self.words.len();
            return Expression::always();
        }
        let mut all = Vec::from([self.any()]);
        while self.skip(&["?"]) {
            all.push(self.choice());
            if !self.skip(&[":"]) {
                self.error("missing ':' in ternary expression");
                break;
            }
            all.push(self.any());
        }
        self.depth -= 1;
        if all.len() == 1 { all.remove(0) } else { Expression::Choice(all) }
    }

    fn any(&mut self) -> Expression {
        let mut all = Vec::from([self.all()]);
        while self.skip(&["or", "||"]) {
            all.push(self.all());
        }
        Expression::Or(all)
    }

    fn all(&mut self) -> Expression {
        let (mut all, mut first) = (Vec::new(), true);
        loop {
            let needed = self.skip(&["and", "&&"]) || core::mem::take(&mut first);
            let at = self.at;
            all.extend(self.factor(false));
            if self.at == at {
                if needed {
                    self.error("missing expression");
                }
                return Expression::And(all);
            }
        }
    }

    fn factor(&mut self, negated: bool) -> Option<Expression> {
        let first = self.word();
        if self.skip(&["not", "!"]) {
            self.depth += 1;
            let at = self.at;
            let inner = if self.depth > DEPTH { None } else { self.factor(!negated) };
            self.depth -= 1;
            if self.at == at {
                self.error(format!("missing expression after '{first}'"));
            }
            return inner;
        }
        if self.skip(&["("]) {
            let at = self.at;
            let inner = self.choice();
            if self.at == at {
                self.error("missing expression after '('");
            } else if !self.skip(&[")"]) {
                self.error("missing ')'");
            }
            return Some(if negated { inner.not(false) } else { inner });
        }
        if self.at >= self.words.len() || matches!(first, ")" | "||" | "or" | "?" | ":") {
            return None;
        }
        if self.skip(&["true", "false"]) {
            let is = Expression::always();
            return Some(if (first == "true") == negated { is.not(false) } else { is });
        }
        self.condition(negated)
    }

    fn condition(&mut self, mut negated: bool) -> Option<Expression> {
        let first = self.at;
        let mut primitive = Primitive::default();
        while self.at < self.words.len() && self.qualifier(&mut primitive, &mut negated) {
            self.at += 1;
        }
        if self.at != first {
            self.before = Primitive::default();
        }
        if matches!(self.before.data, Data::Ether(_)) {
            primitive.header = Header::Ether;
        }
        // The last word is always data.
        let more = |parser: &Self| parser.at + 1 < parser.words.len();
        if self.at > first && more(self) && primitive.kind.is_none() && self.word() == "[" {
            self.brackets(&mut primitive);
        }
        if more(self) && self.word() == "&" {
            self.mask(&mut primitive);
        }
        if more(self) {
            self.relation(&mut primitive);
        }
        self.data(&mut primitive);
        if self.at == first {
            self.error(format!("empty term near '{}'", self.word()));
            return None;
        }
        match primitive.expression(&self.before) {
            Ok(expression) => {
                self.warnings.extend(primitive.warning());
                self.before = primitive;
                Some(if negated { expression.not(false) } else { expression })
            }
            Err(error) => {
                self.error(error);
                None
            }
        }
    }

    /// Parses a qualifier, which selects the compared field; returns whether the word is one.
    fn qualifier(&mut self, primitive: &mut Primitive, negated: &mut bool) -> bool {
        let word = self.word();
        if let Some(kind) = type_word(word) {
            if primitive.kind.replace(kind).is_some() {
                self.error("type specified twice");
            }
            if let FieldKind::Field(Field { protocol: Some(protocol), .. }) = kind {
                self.protocol(primitive, protocol);
            }
            return true;
        }
        match Meanings::of(word, None, None, self.scope) {
            Ok(Some(Data::Protocol(protocol))) => {
                self.protocol(primitive, protocol);
                return true;
            }
            Ok(None) => {}
            _ => return false,
        }
        match word {
            "src" => {
                let both = self.words.get(self.at + 1..self.at + 3).unwrap_or_default();
                let joined = both.get(1).is_some_and(|word| word == "dst" || word == "dest");
                let side = match both.first().map(String::as_str) {
                    Some("and" | "&&") if joined => Side::Both,
                    Some("or" | "||") if joined => Side::Either,
                    _ => Side::Source,
                };
                self.at += if side == Side::Source { 0 } else { 2 };
                self.side(primitive, side);
            }
            "dst" | "dest" => self.side(primitive, Side::Destination),
            "ip" | "ether" if primitive.header == Header::Unknown => {
                primitive.header = if word == "ip" { Header::Ip } else { Header::Ether };
            }
            "not" | "!" => *negated = !*negated,
            _ => return false,
        }
        true
    }

    fn side(&mut self, primitive: &mut Primitive, side: Side) {
        if primitive.side.replace(side).is_some() {
            self.error("'src' or 'dst' specified twice");
        }
    }

    fn protocol(&mut self, primitive: &mut Primitive, protocol: u32) {
        if primitive.protocol.replace(protocol).is_some_and(|old| old != protocol) {
            self.error("transport protocol specified twice");
        }
    }

    /// `[POS]`, `[POS:LEN]` or `[FROM,TO]`.
    fn brackets(&mut self, primitive: &mut Primitive) {
        let end = self.words[self.at..].iter().position(|word| word == "]");
        let Some(end) = end.map(|end| self.at + end) else {
            self.error("missing ']'");
            self.at += 1;
            return;
        };
        let text: String = self.words[self.at + 1..end].concat();
        self.at = end + 1;
        let number = |text: &str| parse_int::<i64>(text, 0, 1 << 12).ok();
        let place = match (text.split_once(':'), text.split_once(',')) {
            (Some((from, length)), _) => number(from).zip(number(length)),
            (None, Some((from, to))) => number(from).zip(number(to)).map(|(from, to)| (from, to - from + 1)),
            _ => number(&text).map(|at| (at, 1)),
        };
        let Some((at, length)) = place else {
            return self.error("syntax error after '[', expected '[POS]' or '[POS:LEN]'");
        };
        if !(1..=4).contains(&length) {
            self.error("LEN in '[POS:LEN]' out of range, should be between 1 and 4");
        } else if at / 4 != (at + length - 1) / 4 {
            self.error(format!("field [{at}:{length}] does not fit in a single word"));
        } else {
            let (bit, bits) = (at as u32 * 8, length as u32 * 8);
            primitive.kind = Some(FieldKind::Field(Field { protocol: primitive.protocol, bit, bits }));
        }
    }

    fn mask(&mut self, primitive: &mut Primitive) {
        let word = self.words.get(self.at + 1).map_or("", String::as_str);
        let found = if let Ok(number) = u32::parse(word, self.scope) {
            Data::Number(number)
        } else if let Some(address) = self.address(word, primitive) {
            Data::Host(address)
        } else if let Some(address) = self.ether_address(word, primitive) {
            Data::Ether(address)
        } else {
            return;
        };
        self.at += 2;
        match found {
            Data::Number(0) | Data::Host(0) => self.error("zero mask ignored"),
            _ => primitive.mask = found,
        }
    }

    fn relation(&mut self, primitive: &mut Primitive) {
        (primitive.relation, primitive.negated) = match self.word() {
            "=" | "==" => (Relation::Equal, false),
            "!=" => (Relation::Equal, true),
            ">" => (Relation::Greater, false),
            "<" => (Relation::Less, false),
            ">=" => (Relation::Less, true),
            "<=" => (Relation::Greater, true),
            _ => return,
        };
        self.at += 1;
    }

    fn address(&self, word: &str, primitive: &Primitive) -> Option<u32> {
        let allowed = primitive.header != Header::Ether;
        Ipv4Addr::parse(word, self.scope).ok().filter(|_| allowed).map(Ipv4Addr::to_bits)
    }

    fn prefix(&self, word: &str, primitive: &Primitive) -> Option<Data> {
        let allowed = primitive.header != Header::Ether;
        let prefix = Prefix::parse(word, self.scope).ok().filter(|_| allowed)?;
        Some(Data::Net(prefix.address.to_bits(), prefix.mask.to_bits()))
    }

    fn ether_address(&self, word: &str, primitive: &Primitive) -> Option<[u8; 6]> {
        let allowed = primitive.header != Header::Ip;
        MacAddress::parse(word, self.scope).ok().filter(|_| allowed).map(|address| address.0)
    }

    /// Parses the data to compare with, if any.
    fn data(&mut self, primitive: &mut Primitive) {
        let Some(word) = self.words.get(self.at) else { return };
        let meaning = match type_word(word) {
            Some(_) if primitive.kind.is_none() => Ok(None),
            _ => Meanings::of(word, primitive.kind, primitive.protocol, self.scope),
        };
        primitive.data = match meaning {
            Err(error) => return self.error(error),
            Ok(Some(data)) => data,
            Ok(None) => {
                if let Ok(number) = parse_int::<i64>(word, i128::from(i32::MIN), i128::from(u32::MAX)) {
                    Data::Number(number as u32)
                } else if let Some(address) = self.address(word, primitive) {
                    self.net(word, address, primitive)
                } else if let Some(net) = self.prefix(word, primitive) {
                    net
                } else if let Some(address) = self.ether_address(word, primitive) {
                    Data::Ether(address)
                } else {
                    if primitive.relation != Relation::Equal || primitive.negated {
                        self.error(format!("dangling operator near '{word}'"));
                    }
                    return;
                }
            }
        };
        self.at += 1;
    }

    /// Parses an address, or `ADDRESS mask MASK`, or a name that denotes both an address and a prefix where a prefix
    /// is meant.
    fn net(&mut self, word: &str, address: u32, primitive: &Primitive) -> Data {
        let mask = self.words.get(self.at + 1).filter(|next| *next == "mask");
        let mask = mask.and_then(|_| self.words.get(self.at + 2));
        if let Some(mask) = mask.and_then(|mask| Ipv4Addr::parse(mask, self.scope).ok()) {
            self.at += 2;
            return Data::Net(address, mask.to_bits());
        }
        let prefix = if primitive.kind == Some(FieldKind::Net) { self.prefix(word, primitive) } else { None };
        prefix.unwrap_or(Data::Host(address))
    }
}
