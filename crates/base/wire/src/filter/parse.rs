//! The grammar of expressions: precedence, qualifiers, and relations between numbers.

use super::generate::{Layers, Side};
use super::lex::{Located, Token, tokens};
use super::node::{Base, DEEPEST, Node, Operator, Relation, Value};
use super::{FilterError, LONGEST, names};
use crate::MacAddress;
use crate::pcapng::Direction;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Most VLAN tags in front of a header.
const TAGS: usize = 8;

/// What is expected where a condition begins.
const CONDITION: &str =
    "use a protocol such as `tcp`, `host ADDRESS`, `net NET/BITS`, `port NUMBER`, or a relation";

/// Reads a whole expression.
pub(super) fn filter(text: &str) -> Result<Option<Node>, FilterError> {
    if text.len() > LONGEST {
        let what = format!("the expression is longer than {LONGEST} bytes");
        return Err(FilterError { column: LONGEST + 1, what });
    }
    let tokens = tokens(text)?;
    if tokens.is_empty() {
        return Ok(None);
    }
    let end = text.trim_end().chars().count() + 1;
    let mut parser =
        Parser { tokens, at: 0, end, layers: Layers::default(), last: Qualifiers::default(), nested: 0 };
    let node = parser.expression()?;
    match parser.peek() {
        None if node.depth() > DEEPEST => Err(parser.wrong_at(1, "the expression is too deep".into())),
        None => Ok(Some(node)),
        Some(_) => Err(parser.unexpected("join conditions by `and` or `or`")),
    }
}

/// What kind of identifier follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Type {
    #[default]
    Host,
    Net,
    Port,
    PortRange,
    Proto,
}

/// The words in front of an identifier; the next identifier without any has the same.
#[derive(Clone, Debug, Default)]
struct Qualifiers {
    protocol: Option<String>,
    side: Side,
    kind: Type,
}

struct Parser {
    tokens: Vec<Located>,
    at: usize,
    /// The column after the last token.
    end: usize,
    layers: Layers,
    last: Qualifiers,
    /// Number of open parentheses and negations.
    nested: usize,
}

type Parsed<T> = Result<T, FilterError>;

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|located| &located.token)
    }

    fn column(&self) -> usize {
        self.tokens.get(self.at).map_or(self.end, |located| located.column)
    }

    fn wrong_at(&self, column: usize, what: String) -> FilterError {
        FilterError { column, what }
    }

    fn wrong(&self, what: impl Into<String>) -> FilterError {
        self.wrong_at(self.column(), what.into())
    }

    /// The error for the next token.
    fn unexpected(&self, fix: &str) -> FilterError {
        self.wrong(match self.peek() {
            None => format!("the expression ends here; {fix}"),
            Some(Token::Word(word)) if names::UNSUPPORTED.contains(&&**word) => {
                format!("`{word}` is not supported")
            }
            Some(Token::Word(word)) if !is_known(word) => format!("unknown word `{word}`; {fix}"),
            Some(Token::Word(word)) => format!("`{word}` has no meaning here; {fix}"),
            Some(Token::Symbol(symbol)) => format!("`{symbol}` has no meaning here; {fix}"),
            Some(_) => format!("a number or an address has no meaning here; {fix}"),
        })
    }

    fn is_symbol(&self, symbol: &str) -> bool {
        matches!(self.peek(), Some(Token::Symbol(found)) if *found == symbol)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Token::Word(found)) if found == word)
    }

    fn takes(&mut self, symbol: &str) -> bool {
        let found = self.is_symbol(symbol);
        self.at += usize::from(found);
        found
    }

    fn takes_word(&mut self, word: &str) -> bool {
        let found = self.is_word(word);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, symbol: &str) -> Parsed<()> {
        if self.takes(symbol) { Ok(()) } else { Err(self.unexpected(&format!("`{symbol}` is missing"))) }
    }

    fn enter(&mut self) -> Parsed<()> {
        self.nested += 1;
        if self.nested > DEEPEST / 4 {
            return Err(self.wrong("the expression is too deep"));
        }
        Ok(())
    }

    /// `and` and `or` have the same precedence, and associate to the left.
    fn expression(&mut self) -> Parsed<Node> {
        let mut node = self.term()?;
        loop {
            if self.takes("&&") || self.takes_word("and") {
                node = node.and(self.term()?);
            } else if self.takes("||") || self.takes_word("or") {
                node = node.or(self.term()?);
            } else {
                return Ok(node);
            }
        }
    }

    fn term(&mut self) -> Parsed<Node> {
        if self.takes("!") || self.takes_word("not") {
            self.enter()?;
            let node = self.term()?;
            self.nested -= 1;
            return Ok(Node::Not(Box::new(node)));
        }
        if let Some(relation) = self.relation()? {
            return Ok(relation);
        }
        if self.takes("(") {
            self.enter()?;
            let node = self.expression()?;
            self.nested -= 1;
            self.expect(")")?;
            // What follows must not be a part of arithmetic.
            return Ok(node);
        }
        self.primitive()
    }

    /// A relation between numbers, if one begins here.
    fn relation(&mut self) -> Parsed<Option<Node>> {
        let begin = self.at;
        let starts = match self.peek() {
            Some(Token::Number(_)) => true,
            Some(Token::Symbol(symbol)) => matches!(*symbol, "(" | "-"),
            Some(Token::Word(word)) => {
                let next = self.tokens.get(self.at + 1).map(|located| &located.token);
                word == "len" || names::constant(word).is_some() || next == Some(&Token::Symbol("["))
            }
            _ => false,
        };
        if !starts {
            return Ok(None);
        }
        let mut needs = Vec::new();
        let left = self.sum(&mut needs, 0);
        let relations = [
            ("==", Relation::Equal),
            ("=", Relation::Equal),
            ("!=", Relation::Unequal),
            ("<=", Relation::LessEqual),
            (">=", Relation::GreaterEqual),
            ("<", Relation::Less),
            (">", Relation::Greater),
        ];
        let found =
            left.is_ok().then(|| relations.iter().find(|(symbol, _)| self.is_symbol(symbol))).flatten();
        let Some((_, relation)) = found else {
            // A parenthesis may be one around conditions, and a number the port or host of the last qualifiers.
            let is_condition = match self.tokens[begin].token {
                Token::Symbol("(") => true,
                Token::Number(_) => self.last.kind != Type::Host,
                _ => false,
            };
            if is_condition {
                self.at = begin;
                return Ok(None);
            }
            left?;
            return Err(self.unexpected("compare the number by =, !=, <, <=, > or >="));
        };
        self.at += 1;
        let (left, right) = (left?, self.sum(&mut needs, 0)?);
        needs.push(Node::Compare(left, *relation, right));
        Ok(Some(if needs.len() == 1 { needs.remove(0) } else { Node::All(needs) }))
    }

    /// Arithmetic whose operators have at least this precedence. Adds the conditions for its loads to `needs`.
    fn sum(&mut self, needs: &mut Vec<Node>, precedence: usize) -> Parsed<Value> {
        const LEVELS: [&[(&str, Operator)]; 6] = [
            &[("|", Operator::Or)],
            &[("^", Operator::Xor)],
            &[("&", Operator::And)],
            &[("<<", Operator::ShiftLeft), (">>", Operator::ShiftRight)],
            &[("+", Operator::Add), ("-", Operator::Subtract)],
            &[("*", Operator::Multiply), ("/", Operator::Divide), ("%", Operator::Remainder)],
        ];
        let Some(level) = LEVELS.get(precedence) else { return self.factor(needs) };
        let mut left = self.sum(needs, precedence + 1)?;
        while let Some((_, operator)) = level.iter().find(|(symbol, _)| self.is_symbol(symbol)) {
            let column = self.column();
            self.at += 1;
            let right = self.sum(needs, precedence + 1)?;
            left = match (left, right) {
                (Value::Constant(left), Value::Constant(right)) => {
                    let result = operator.apply(left, right).map(Value::Constant);
                    result.ok_or_else(|| self.wrong_at(column, "division by zero".into()))?
                }
                (left, right) => Value::Arithmetic(*operator, Box::new(left), Box::new(right)),
            };
            if left.depth() > DEEPEST / 4 {
                return Err(self.wrong("the expression is too deep"));
            }
        }
        Ok(left)
    }

    fn factor(&mut self, needs: &mut Vec<Node>) -> Parsed<Value> {
        if self.takes("(") {
            self.enter()?;
            let value = self.sum(needs, 0);
            self.nested -= 1;
            let value = value?;
            self.expect(")")?;
            return Ok(value);
        }
        if self.takes("-") {
            self.enter()?;
            let value = self.factor(needs);
            self.nested -= 1;
            let zero = Box::new(Value::Constant(0));
            return Ok(Value::Arithmetic(Operator::Subtract, zero, Box::new(value?)));
        }
        let value = match self.peek() {
            Some(Token::Number(number)) => Value::Constant(*number),
            Some(Token::Word(word)) if word == "len" => Value::Length,
            Some(Token::Word(word)) => match names::constant(word) {
                Some(number) => Value::Constant(number),
                None => return self.load(needs),
            },
            _ => return Err(self.unexpected("use a number, `len`, or bytes of a header such as `tcp[13]`")),
        };
        self.at += 1;
        Ok(value)
    }

    /// `PROTOCOL[OFFSET:SIZE]`.
    fn load(&mut self, needs: &mut Vec<Node>) -> Parsed<Value> {
        let Some(Token::Word(name)) = self.peek().cloned() else {
            return Err(self.unexpected(CONDITION));
        };
        let layers = self.layers;
        let network = Base::At(layers.network());
        let (base, need) = match &*name {
            "ether" | "link" => (Base::At(0), Vec::new()),
            "ip" | "ip6" | "arp" | "rarp" => (network, layers.protocol(&name).into_iter().collect()),
            "icmp6" => (Base::At(layers.network() + 40), Vec::from([layers.ip6_protocol(58)])),
            name => match names::PROTOCOLS.iter().find(|(known, ..)| *known == name) {
                Some((_, number, true, _)) => {
                    let need = Vec::from([layers.ip_protocol(*number), layers.first_fragment()]);
                    (Base::AfterIpv4(layers.network()), need)
                }
                _ => return Err(self.unexpected(CONDITION)),
            },
        };
        self.at += 1;
        self.expect("[")?;
        self.enter()?;
        needs.extend(need);
        let offset = Box::new(self.sum(needs, 0)?);
        let mut size = 1;
        if self.takes(":") {
            size = match self.peek() {
                Some(Token::Number(size @ (1 | 2 | 4))) => *size as u8,
                _ => return Err(self.wrong("a size is 1, 2 or 4 bytes")),
            };
            self.at += 1;
        }
        self.nested -= 1;
        self.expect("]")?;
        Ok(Value::Load { base, offset, size })
    }

    /// A condition that is no relation.
    fn primitive(&mut self) -> Parsed<Node> {
        let begin = self.column();
        if let Some(node) = self.keyword()? {
            return Ok(node);
        }
        let mut qualifiers = Qualifiers::default();
        let protocol = match self.peek() {
            Some(Token::Word(word)) if is_protocol(word) => Some(word.clone()),
            _ => None,
        };
        self.at += usize::from(protocol.is_some());
        if let Some(name) = &protocol {
            let ether = matches!(&**name, "ether" | "link");
            if self.takes_word("multicast") {
                let of = if ether { None } else { Some(&**name) };
                let fix = format!("`{name} multicast` has no meaning; use it with `ether`, `ip` or `ip6`");
                return self.layers.group(of).ok_or_else(|| self.wrong_at(begin, fix));
            }
            if ether && self.takes_word("broadcast") {
                return Ok(self.layers.mac(MacAddress([255; 6]), false));
            }
        }
        qualifiers.protocol = protocol;
        let (has_side, has_type) = (self.side(&mut qualifiers), self.kind(&mut qualifiers));
        if !has_side && !has_type && !self.has_identifier() {
            let Some(name) = &qualifiers.protocol else { return Err(self.unexpected(CONDITION)) };
            return match self.layers.protocol(name) {
                Some(node) => Ok(node),
                None => {
                    Err(self.unexpected("use `ether host ADDRESS`, `ether proto NUMBER` or `ether[OFFSET]`"))
                }
            };
        }
        if !has_side && !has_type && qualifiers.protocol.is_none() {
            // An identifier alone has the qualifiers of the one before.
            qualifiers = self.last.clone();
        }
        self.last = qualifiers.clone();
        if self.takes("(") {
            self.enter()?;
            let node = self.expression()?;
            self.nested -= 1;
            self.expect(")")?;
            return Ok(node);
        }
        self.identifier(&qualifiers)
    }

    /// Conditions that are a word, or a word and a number.
    fn keyword(&mut self) -> Parsed<Option<Node>> {
        let Some(Token::Word(word)) = self.peek().cloned() else { return Ok(None) };
        let node = match &*word {
            "broadcast" => self.layers.mac(MacAddress([255; 6]), false),
            "multicast" => self.layers.group(None).ok_or_else(|| self.unexpected(CONDITION))?,
            "inbound" => Node::Direction(Direction::Inbound),
            "outbound" => Node::Direction(Direction::Outbound),
            "less" | "greater" => {
                self.at += 1;
                let relation = if word == "less" { Relation::LessEqual } else { Relation::GreaterEqual };
                let Some(Token::Number(number)) = self.peek() else {
                    return Err(self.unexpected("a length in bytes is missing"));
                };
                Node::Compare(Value::Length, relation, Value::Constant(*number))
            }
            "vlan" => {
                self.at += 1;
                let number = match self.peek() {
                    Some(Token::Number(number @ 0..=4095)) => Some(*number),
                    Some(Token::Number(_)) => return Err(self.wrong("a VLAN is a number from 0 to 4095")),
                    _ => None,
                };
                self.at += usize::from(number.is_some());
                let node = self.layers.vlan(number);
                self.layers.tags += 1;
                if self.layers.tags > TAGS {
                    return Err(self.wrong(format!("more than {TAGS} VLAN tags")));
                }
                return Ok(Some(node));
            }
            _ => return Ok(None),
        };
        self.at += 1;
        Ok(Some(node))
    }

    /// `src`, `dst`, `src or dst`, `src and dst`.
    fn side(&mut self, qualifiers: &mut Qualifiers) -> bool {
        let side = |parser: &Parser, at: usize| match parser.tokens.get(at).map(|located| &located.token) {
            Some(Token::Word(word)) if word == "src" => Some(Side::Source),
            Some(Token::Word(word)) if word == "dst" => Some(Side::Destination),
            _ => None,
        };
        let Some(first) = side(self, self.at) else { return false };
        self.at += 1;
        qualifiers.side = first;
        let is_and = self.is_word("and") || self.is_symbol("&&");
        let is_or = self.is_word("or") || self.is_symbol("||");
        let second = side(self, self.at + 1).filter(|second| (is_and || is_or) && *second != first);
        let follows = self.tokens.get(self.at + 2).is_some();
        if second.is_some() && follows {
            self.at += 2;
            qualifiers.side = if is_and { Side::Both } else { Side::Either };
        }
        true
    }

    /// `host`, `net`, `port`, `portrange`, `proto`.
    fn kind(&mut self, qualifiers: &mut Qualifiers) -> bool {
        let Some(Token::Word(word)) = self.peek() else { return false };
        qualifiers.kind = match &**word {
            "host" => Type::Host,
            "net" => Type::Net,
            "port" => Type::Port,
            "portrange" => Type::PortRange,
            "proto" => Type::Proto,
            _ => return false,
        };
        self.at += 1;
        true
    }

    fn has_identifier(&self) -> bool {
        match self.peek() {
            Some(Token::Word(word)) => {
                names::find(&names::PORTS, word).is_some() && self.last.kind == Type::Port
            }
            Some(Token::Symbol(_)) | None => false,
            Some(_) => true,
        }
    }

    fn identifier(&mut self, qualifiers: &Qualifiers) -> Parsed<Node> {
        match qualifiers.kind {
            Type::Host => self.host(qualifiers),
            Type::Net => self.net(qualifiers),
            Type::Port | Type::PortRange => self.ports(qualifiers),
            Type::Proto => self.proto(qualifiers),
        }
    }

    fn host(&mut self, qualifiers: &Qualifiers) -> Parsed<Node> {
        let (layers, side) = (self.layers, qualifiers.side);
        let protocol = qualifiers.protocol.as_deref();
        let node = match (self.peek(), protocol) {
            (Some(Token::Mac(address)), Some("ether" | "link")) => {
                let address = *address;
                side.combine(|is_source| layers.mac(address, is_source))
            }
            (Some(Token::Mac(_)), _) => return Err(self.wrong("a MAC address follows `ether host`")),
            (Some(Token::Dotted(bytes, 4)), _) => self.ipv4(qualifiers, Ipv4Addr::from(*bytes), u32::MAX)?,
            (Some(Token::Ipv6(address)), None | Some("ip6")) => {
                layers.ip6().and(layers.ipv6(*address, 128, side))
            }
            (Some(Token::Word(word)), _) if !is_known(word) => {
                return Err(self.wrong(format!("`{word}`: names are not looked up; use an address")));
            }
            _ => return Err(self.unexpected("an address of this protocol is missing")),
        };
        self.at += 1;
        Ok(node)
    }

    /// IPv4 addresses with these leading bits, in the headers that the qualifiers name.
    fn ipv4(&self, qualifiers: &Qualifiers, address: Ipv4Addr, mask: u32) -> Parsed<Node> {
        let (layers, side) = (self.layers, qualifiers.side);
        let ip = || layers.ip().and(layers.ipv4(address, mask, side));
        let arp = |name: &str| Some(layers.protocol(name)?.and(layers.arp(address, mask, side)));
        let either = || Some(ip().or(arp("arp")?).or(arp("rarp")?));
        let node = match qualifiers.protocol.as_deref() {
            None => either(),
            Some("ip") => Some(ip()),
            Some(name @ ("arp" | "rarp")) => arp(name),
            Some(_) => None,
        };
        node.ok_or_else(|| self.unexpected("an IPv4 address follows `ip`, `arp`, `rarp` or no protocol"))
    }

    fn net(&mut self, qualifiers: &Qualifiers) -> Parsed<Node> {
        match self.peek().cloned() {
            Some(Token::Dotted(bytes, count)) => {
                let column = self.column();
                self.at += 1;
                let mask = match self.takes_word("mask") {
                    true => self.mask()?,
                    false => prefix(self.bits(32)?.unwrap_or(8 * count as u32)),
                };
                let address = Ipv4Addr::from(bytes);
                if address.to_bits() & !mask != 0 {
                    return Err(self.wrong_at(column, "the address has bits outside of the net's".into()));
                }
                // An error about the protocol is at the address.
                let after = self.at;
                self.at -= 1;
                let node = self.ipv4(qualifiers, address, mask);
                self.at = after;
                node
            }
            Some(Token::Number(first @ 0..=255)) => {
                self.at += 1;
                let bits = self.bits(32)?.unwrap_or(8);
                self.ipv4(qualifiers, Ipv4Addr::from(first << 24), prefix(bits))
            }
            Some(Token::Ipv6(address)) if matches!(qualifiers.protocol.as_deref(), None | Some("ip6")) => {
                self.ipv6_net(address, qualifiers.side)
            }
            _ => Err(self.unexpected("a net such as 10.0.0.0/8 is missing")),
        }
    }

    fn ipv6_net(&mut self, address: Ipv6Addr, side: Side) -> Parsed<Node> {
        let column = self.column();
        self.at += 1;
        let bits = self.bits(128)?.unwrap_or(128);
        let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
        if address.to_bits() & !mask != 0 {
            return Err(self.wrong_at(column, "the address has bits outside of the net's".into()));
        }
        Ok(self.layers.ip6().and(self.layers.ipv6(address, bits, side)))
    }

    fn mask(&mut self) -> Parsed<u32> {
        let Some(Token::Dotted(bytes, 4)) = self.peek() else {
            return Err(self.unexpected("a mask such as 255.255.0.0 is missing"));
        };
        let mask = u32::from_be_bytes(*bytes);
        self.at += 1;
        Ok(mask)
    }

    /// `/BITS`, if it follows.
    fn bits(&mut self, most: u32) -> Parsed<Option<u32>> {
        if !self.takes("/") {
            return Ok(None);
        }
        match self.peek() {
            Some(Token::Number(bits)) if *bits <= most => {
                let bits = *bits;
                self.at += 1;
                Ok(Some(bits))
            }
            _ => Err(self.wrong(format!("a length from 0 to {most} bits follows `/`"))),
        }
    }

    fn port(&mut self) -> Parsed<u16> {
        let port = match self.peek() {
            Some(Token::Number(number)) => u16::try_from(*number).ok(),
            Some(Token::Word(name)) => names::find(&names::PORTS, name),
            _ => None,
        };
        let port = port.ok_or_else(|| match self.peek() {
            Some(Token::Word(word)) if !is_known(word) => {
                self.wrong(format!("unknown name of a port `{word}`; use its number"))
            }
            _ => self.unexpected("a port is a number from 0 to 65535"),
        })?;
        self.at += 1;
        Ok(port)
    }

    fn ports(&mut self, qualifiers: &Qualifiers) -> Parsed<Node> {
        let protocols: &[u8] = match qualifiers.protocol.as_deref() {
            None => &[6, 17, 132],
            Some("tcp") => &[6],
            Some("udp") => &[17],
            Some("sctp") => &[132],
            Some(_) => return Err(self.wrong("only `tcp`, `udp` and `sctp` have ports")),
        };
        let first = self.port()?;
        let mut range = (first, first);
        if qualifiers.kind == Type::PortRange && self.takes("-") {
            let last = self.port()?;
            range = (first.min(last), first.max(last));
        }
        Ok(self.layers.ports(protocols, range, qualifiers.side))
    }

    fn proto(&mut self, qualifiers: &Qualifiers) -> Parsed<Node> {
        let layers = self.layers;
        let ether = matches!(qualifiers.protocol.as_deref(), Some("ether" | "link"));
        let number = match self.peek() {
            Some(Token::Number(number)) => Some(*number),
            Some(Token::Word(name)) if ether => names::find(&names::ETHER_TYPES, name).map(u32::from),
            Some(Token::Word(name)) => {
                names::PROTOCOLS.iter().find(|(known, ..)| known == name).map(|found| u32::from(found.1))
            }
            _ => None,
        };
        let Some(number) = number else {
            return Err(self.unexpected("a protocol's number or name follows `proto`"));
        };
        let most = if ether { 0xffff } else { 0xff };
        if number > most {
            return Err(self.wrong(format!("a protocol is a number from 0 to {most}")));
        }
        let node = match qualifiers.protocol.as_deref() {
            Some("ether" | "link") => layers.ether_type(number as u16),
            Some("ip") => layers.ip_protocol(number as u8),
            Some("ip6") => layers.ip6_protocol(number as u8),
            None => layers.ip_protocol(number as u8).or(layers.ip6_protocol(number as u8)),
            Some(_) => return Err(self.wrong("`proto` follows `ether`, `ip`, `ip6` or no protocol")),
        };
        self.at += 1;
        Ok(node)
    }
}

fn prefix(bits: u32) -> u32 {
    u32::MAX.checked_shl(32 - bits).unwrap_or(0)
}

/// Whether a word may stand in front of an identifier, or alone.
fn is_protocol(word: &str) -> bool {
    matches!(word, "ether" | "link")
        || names::find(&names::ETHER_TYPES, word).is_some()
        || names::PROTOCOLS.iter().any(|(known, ..)| *known == word)
}

/// Whether the language has the word.
fn is_known(word: &str) -> bool {
    const WORDS: [&str; 20] = [
        "and",
        "or",
        "not",
        "src",
        "dst",
        "host",
        "net",
        "port",
        "portrange",
        "proto",
        "mask",
        "len",
        "less",
        "greater",
        "vlan",
        "broadcast",
        "multicast",
        "inbound",
        "outbound",
        "gateway",
    ];
    WORDS.contains(&word) || is_protocol(word) || names::constant(word).is_some()
}
