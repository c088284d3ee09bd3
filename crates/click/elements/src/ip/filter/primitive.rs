//! A single condition of a filter: what of a packet is compared with what.
use super::program::{Expression, NETWORK, TRANSPORT, Test};
use crate::ip::names::{DCCP, ICMP, TCP, TCP_OR_UDP, TRANSPORT as ANY_TRANSPORT, UDP};
use core::mem::offset_of;
use ringway_click::prelude::*;
use ringway_wire::{Ipv4, Tcp, ipv4};

/// The words of the IPv4 header with the addresses.
pub(super) const SOURCE: u16 = NETWORK + offset_of!(Ipv4, source) as u16;
pub(super) const DESTINATION: u16 = NETWORK + offset_of!(Ipv4, destination) as u16;
/// The word with identification, flags and fragment offset.
pub(super) const FRAGMENT: u16 = NETWORK + offset_of!(Ipv4, identification) as u16;
/// The word with the protocol in the second byte.
pub(super) const PROTOCOL: u16 = NETWORK + offset_of!(Ipv4, ttl) as u16;
/// The word of the TCP header with the flags in the second byte.
const FLAGS: u16 = TRANSPORT + offset_of!(Tcp, data_offset) as u16;

/// A field of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// The transport protocol; `None` for the IP header.
    pub(super) protocol: Option<u32>,
    pub(super) bit: u32,
    pub(super) bits: u32,
}

/// The compared field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldKind {
    Host,
    Net,
    Ether,
    Protocol,
    Port,
    TcpOption,
    Fragment,
    Unfragmented,
    EcnCapable,
    Congestion,
    Field(Field),
}

/// The value to compare with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Data {
    #[default]
    None,
    Number(u32),
    Host(u32),
    Net(u32, u32),
    Ether([u8; 6]),
    Protocol(u32),
    Port(u32),
    TcpOption(u32),
    IcmpType(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Destination,
    Both,
    Either,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Relation {
    #[default]
    Equal,
    Greater,
    Less,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Header {
    #[default]
    Unknown,
    Ip,
    Ether,
}

pub(super) const ICMP_TYPE: FieldKind = FieldKind::Field(Field { protocol: Some(ICMP), bit: 0, bits: 8 });

/// A condition as written in the configuration.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Primitive {
    pub(super) kind: Option<FieldKind>,
    pub(super) data: Data,
    pub(super) side: Option<Side>,
    pub(super) protocol: Option<u32>,
    pub(super) relation: Relation,
    pub(super) negated: bool,
    pub(super) header: Header,
    /// The operand of `&`.
    pub(super) mask: Data,
    /// A relation whose outcome is known.
    always: Option<Always>,
}

/// A relation whose outcome is known: as it is written, and the largest value of what it compares.
#[derive(Clone, Copy, Debug)]
struct Always {
    outcome: bool,
    relation: &'static str,
    value: u32,
    most: u32,
}

/// A comparison with a number under a mask.
#[derive(Clone, Copy, Debug, Default)]
struct Comparison {
    value: u32,
    mask: u32,
    greater: bool,
    negated: bool,
}

pub(super) fn protocol_text(protocol: u32) -> String {
    match protocol {
        TCP_OR_UDP => "tcpudp".into(),
        ANY_TRANSPORT => "transp".into(),
        number => match u8::try_from(number).ok().and_then(crate::ip::names::protocol_name) {
            Some(name) => name.into(),
            None => format!("ip proto {number}"),
        },
    }
}

impl FieldKind {
    pub(super) fn text(self) -> String {
        let text = match self {
            Self::Host => "ip host",
            Self::Net => "ip net",
            Self::Ether => "ether host",
            Self::Protocol => "proto",
            Self::Port => "port",
            Self::TcpOption => "tcp opt",
            Self::Fragment => "ip frag",
            Self::Unfragmented => "ip unfrag",
            Self::EcnCapable => "ip ect",
            Self::Congestion => "ip ce",
            ICMP_TYPE => "icmp type",
            Self::Field(Field { protocol: None, bit: 0, bits: 4 }) => "ip vers",
            Self::Field(Field { protocol: None, bit: 4, bits: 4 }) => "ip hl",
            Self::Field(Field { protocol: None, bit: 8, bits: 8 }) => "ip tos",
            Self::Field(Field { protocol: None, bit: 8, bits: 6 }) => "ip dscp",
            Self::Field(Field { protocol: None, bit: 16, bits: 16 }) => "ip len",
            Self::Field(Field { protocol: None, bit: 32, bits: 16 }) => "ip id",
            Self::Field(Field { protocol: None, bit: 64, bits: 8 }) => "ip ttl",
            Self::Field(Field { protocol: Some(TCP), bit: 112, bits: 16 }) => "tcp win",
            Self::Field(Field { protocol, .. }) => {
                return protocol.map_or("ip".to_string(), protocol_text) + "[...]";
            }
        };
        text.into()
    }
}

impl Primitive {
    fn text(&self) -> String {
        let side = match self.side {
            Some(Side::Source) => "src ",
            Some(Side::Destination) => "dst ",
            Some(Side::Either) => "src or dst ",
            Some(Side::Both) => "src and dst ",
            None => "",
        };
        format!("{side}{}", self.kind.map_or("<none>".to_string(), FieldKind::text))
    }

    fn wrong<T>(&self, what: &str) -> Result<T, String> {
        Err(format!("'{}': {what}", self.text()))
    }

    /// A warning about a relation whose outcome is known.
    pub(super) fn warning(&self) -> Option<String> {
        let Always { outcome, relation, value, most } = self.always?;
        Some(format!("relation '{relation} {value}' is always {outcome} (range 0-{most})"))
    }

    /// Completes omitted parts from the data and from the preceding condition.
    fn complete(&mut self, before: &Self) -> Result<(), String> {
        if let Data::Number(number) = self.data
            && self.kind.is_none()
        {
            self.data = match before.kind {
                Some(FieldKind::Field(_)) => {
                    self.kind = before.kind;
                    Data::Number(number)
                }
                Some(FieldKind::Protocol) => Data::Protocol(number),
                Some(FieldKind::Port) => Data::Port(number),
                _ => return Err("specify header field or 'port'".into()),
            };
        }
        if self.kind.is_none() {
            let (kind, inherits) = match self.data {
                Data::Host(_) => (FieldKind::Host, true),
                Data::Net(..) => (FieldKind::Net, true),
                Data::Ether(_) => (FieldKind::Ether, true),
                Data::TcpOption(_) => (FieldKind::TcpOption, true),
                Data::Port(_) => (FieldKind::Port, true),
                Data::IcmpType(_) => (ICMP_TYPE, false),
                Data::Protocol(_) => (FieldKind::Protocol, false),
                Data::None if self.protocol.is_some() => (FieldKind::Protocol, false),
                _ => return Err("partial directive".into()),
            };
            self.kind = Some(kind);
            if inherits {
                self.side = self.side.or(before.side);
            }
            if kind == FieldKind::Port {
                self.protocol = self.protocol.or(before.protocol);
            }
        }
        if let Some(FieldKind::Field(Field { protocol: Some(protocol), .. })) = self.kind {
            self.protocol = self.protocol.or(Some(protocol));
        }
        if self.header == Header::Unknown {
            let ether = matches!(self.data, Data::Ether(_));
            self.header = if ether { Header::Ether } else { Header::Ip };
        }
        if self.header == Header::Ether && self.kind == Some(FieldKind::Host) {
            self.kind = Some(FieldKind::Ether);
        }
        Ok(())
    }

    /// The comparison with a value under a mask of `full` bits.
    fn compare(&mut self, value: u32, full: u32) -> Result<Comparison, String> {
        let mask = match self.mask {
            Data::None => full,
            Data::Number(mask) | Data::Host(mask) => mask,
            _ => return self.wrong("bad mask"),
        };
        if mask & !full != 0 {
            return self.wrong(&format!("mask out of range, bound {full:#X}"));
        }
        let mut found = Comparison { value, mask, greater: false, negated: self.negated };
        let outcome = match self.relation {
            Relation::Less if value == 0 => Some(self.negated),
            Relation::Less if value > mask => Some(!self.negated),
            Relation::Greater if value >= mask => Some(self.negated),
            _ => None,
        };
        let relation = match (self.relation, self.negated) {
            (Relation::Less, false) => "<",
            (Relation::Less, true) => ">=",
            (_, false) => ">",
            (_, true) => "<=",
        };
        self.always = outcome.map(|outcome| Always { outcome, relation, value, most: mask });
        match self.relation {
            Relation::Equal if value > full => return self.wrong(&format!("out of range, bound {full}")),
            Relation::Equal => return Ok(found),
            // Nothing is less than 0 or greater than everything.
            Relation::Less if value == 0 => found = Comparison { negated: !self.negated, ..never() },
            Relation::Less if value > mask => found = Comparison { negated: self.negated, ..never() },
            Relation::Greater if value >= mask => found = Comparison { negated: !self.negated, ..never() },
            Relation::Less => (found.value, found.negated, found.greater) = (value - 1, !self.negated, true),
            Relation::Greater => found.greater = true,
        }
        // `x & 5 > 2` is `x & 5 > 1`: below a bit that the mask lacks everything is less.
        let missing = found.value & !mask;
        if found.greater && missing != 0 {
            let below = u32::MAX >> missing.leading_zeros();
            found.value = (found.value | below) & mask;
        }
        Ok(found)
    }

    /// The condition as an expression; `before` is the preceding condition, which provides omitted parts.
    ///
    /// # Errors
    /// An error message.
    pub(super) fn expression(&mut self, before: &Self) -> Result<Expression, String> {
        self.complete(before)?;
        let kind = self.kind.ok_or("partial directive")?;
        if self.header == Header::Ether && kind != FieldKind::Ether {
            return self.wrong("ip only");
        }
        let main = match kind {
            FieldKind::Host | FieldKind::Net => self.host()?,
            FieldKind::Ether => self.ether()?,
            FieldKind::Protocol => return self.transport(),
            FieldKind::Port => self.port()?,
            FieldKind::TcpOption => self.tcp_option()?,
            FieldKind::Fragment | FieldKind::Unfragmented => {
                if self.data != Data::None || self.mask != Data::None {
                    return self.wrong("value not supported");
                }
                let mask = ipv4::MORE_FRAGMENTS | ipv4::FRAGMENT_OFFSET;
                let whole = Expression::Test(Test::new(FRAGMENT, 0, mask.into()));
                whole.not_if((kind == FieldKind::Fragment) != self.negated)
            }
            FieldKind::EcnCapable | FieldKind::Congestion => self.ecn(kind)?,
            FieldKind::Field(field) => {
                let value = match self.data {
                    Data::Number(value) | Data::IcmpType(value) => value,
                    _ => return self.wrong("value missing"),
                };
                let full = u32::MAX >> (32 - field.bits);
                field_expression(field, self.compare(value, full)?)
            }
        };
        let mut all = Vec::new();
        all.extend(self.protocol.and_then(protocol_expression));
        let transport = matches!(
            kind,
            FieldKind::Port | FieldKind::TcpOption | FieldKind::Field(Field { protocol: Some(_), .. })
        );
        all.extend(transport.then(|| Expression::Test(Test::new(FRAGMENT, 0, ipv4::FRAGMENT_OFFSET.into()))));
        all.push(main);
        Ok(Expression::And(all))
    }

    /// The condition on the source, the destination, or both.
    fn sides(&mut self, source: Expression, destination: Expression) -> Expression {
        let side = *self.side.get_or_insert(Side::Either);
        let all = match side {
            Side::Source => vec![source],
            Side::Destination => vec![destination],
            _ => vec![source, destination],
        };
        let all = if side == Side::Either { Expression::Or(all) } else { Expression::And(all) };
        all.not_if(self.negated)
    }

    fn host(&mut self) -> Result<Expression, String> {
        let (value, mut mask) = match (self.kind, self.data) {
            (Some(FieldKind::Host), Data::Host(address)) => (address, u32::MAX),
            (Some(FieldKind::Net), Data::Net(address, mask)) => (address, mask),
            _ => return self.wrong("address missing"),
        };
        if self.relation != Relation::Equal {
            return self.wrong("operator not supported");
        }
        match self.mask {
            Data::None => {}
            Data::Number(given) | Data::Host(given) => mask = given,
            _ => return self.wrong("bad mask"),
        }
        self.kind = Some(FieldKind::Host);
        let test = |offset| Expression::Test(Test::new(offset, value, mask));
        Ok(self.sides(test(SOURCE), test(DESTINATION)))
    }

    fn ether(&mut self) -> Result<Expression, String> {
        let Data::Ether(address) = self.data else { return self.wrong("address missing") };
        if self.relation != Relation::Equal {
            return self.wrong("operator not supported");
        }
        let mask = match self.mask {
            Data::None => [0xff; 6],
            Data::Ether(mask) => mask,
            _ => return self.wrong("bad mask"),
        };
        let word = |bytes: [u8; 6], at: usize| {
            let mut padded = [0; 8];
            padded[at..at + 6].copy_from_slice(&bytes);
            let [a, b, c, d, e, f, g, h] = padded;
            (u32::from_be_bytes([a, b, c, d]), u32::from_be_bytes([e, f, g, h]))
        };
        let pair = |offset: u16, at: usize| {
            let ((high, low), (high_mask, low_mask)) = (word(address, at), word(mask, at));
            let first = Expression::Test(Test::new(offset, high, high_mask));
            let second = Expression::Test(Test::new(offset + 4, low, low_mask));
            Expression::And(vec![first, second])
        };
        // Offsets are aligned two bytes before the header: the source address begins at a multiple of 4.
        Ok(self.sides(pair(8, 0), pair(0, 2)))
    }

    /// A condition on the transport protocol alone.
    fn transport(&mut self) -> Result<Expression, String> {
        let number = match self.data {
            Data::Number(number) | Data::Protocol(number) => {
                if self.protocol.is_some_and(|protocol| protocol != number) {
                    return self.wrong("specified twice");
                }
                number
            }
            Data::None => self.protocol.ok_or(()).or_else(|()| self.wrong("value missing"))?,
            _ => return self.wrong("value missing"),
        };
        self.protocol = None;
        if number >= 256 {
            if self.relation != Relation::Equal || self.mask != Data::None {
                return Err(format!("'{}': operator or mask not supported", protocol_text(number)));
            }
            self.protocol = (!self.negated).then_some(number);
            let group = protocol_expression(number).unwrap_or(Expression::always());
            return Ok(group.not_if(self.negated));
        }
        let found = self.compare(number, 0xff)?;
        if !found.greater && found.mask == 0xff && !found.negated {
            self.protocol = Some(number);
        }
        Ok(comparison(PROTOCOL, 16, found))
    }

    fn port(&mut self) -> Result<Expression, String> {
        let (Data::Number(port) | Data::Port(port)) = self.data else { return self.wrong("value missing") };
        let protocol = *self.protocol.get_or_insert(TCP_OR_UDP);
        if !matches!(protocol, TCP | UDP | DCCP | TCP_OR_UDP) {
            return Err(format!("'port': bad protocol {protocol}"));
        }
        let found = self.compare(port, 0xffff)?;
        self.negated = found.negated;
        let found = Comparison { negated: false, ..found };
        Ok(self.sides(comparison(TRANSPORT, 16, found), comparison(TRANSPORT, 0, found)))
    }

    fn tcp_option(&mut self) -> Result<Expression, String> {
        let (Data::Number(flag) | Data::TcpOption(flag)) = self.data else {
            return self.wrong("value missing");
        };
        let protocol = *self.protocol.get_or_insert(TCP);
        if protocol != TCP {
            return Err(format!("'tcp opt': bad protocol {protocol}"));
        }
        if self.relation != Relation::Equal || self.negated || self.mask != Data::None {
            return self.wrong("operator or mask not supported");
        }
        if flag > 255 {
            return Err(format!("'tcp opt': value {flag} out of range"));
        }
        Ok(Expression::Test(Test::new(FLAGS, flag << 16, flag << 16)))
    }

    fn ecn(&mut self, kind: FieldKind) -> Result<Expression, String> {
        let found = match (kind, self.data) {
            (FieldKind::EcnCapable, Data::None) => {
                Comparison { value: 0, mask: 3, negated: !self.negated, greater: false }
            }
            (FieldKind::EcnCapable, Data::Number(value)) => self.compare(value, 3)?,
            (FieldKind::Congestion, Data::None) if self.mask == Data::None => {
                Comparison { value: 3, mask: 3, negated: self.negated, greater: false }
            }
            _ => return self.wrong("value not supported"),
        };
        let field = Field { protocol: None, bit: 8, bits: 8 };
        self.kind = Some(FieldKind::Field(field));
        Ok(field_expression(field, found))
    }
}

fn never() -> Comparison {
    Comparison::default()
}

/// Whether a packet is of a protocol or a group of protocols; `None` if `protocol` names none.
fn protocol_expression(protocol: u32) -> Option<Expression> {
    let is = |number: u32| Expression::Test(Test::new(PROTOCOL, number << 16, 0xff_0000));
    match protocol {
        0..256 => Some(is(protocol)),
        TCP_OR_UDP => Some(Expression::Or(vec![is(TCP), is(UDP)])),
        _ => None,
    }
}

fn field_expression(field: Field, found: Comparison) -> Expression {
    let base = if field.protocol.is_some() { TRANSPORT } else { NETWORK };
    let offset = base + ((field.bit >> 3) & !3) as u16;
    comparison(offset, 32 - (field.bit % 32 + field.bits), found)
}

fn comparison(offset: u16, shift: u32, found: Comparison) -> Expression {
    let (value, mask) = (found.value & found.mask, found.mask);
    let plain = if found.greater {
        Expression::Greater { offset, shift, value, mask }
    } else {
        Expression::Test(Test::new(offset, value << shift, mask << shift))
    };
    plain.not_if(found.negated)
}
