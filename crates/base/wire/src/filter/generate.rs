//! The conditions that primitives stand for.

use super::names;
use super::node::{Base, Node, Value};
use crate::MacAddress;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Whose address or port is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Side {
    Source,
    Destination,
    #[default]
    Either,
    Both,
}

impl Side {
    /// The condition on the source and that on the destination, combined.
    pub(super) fn combine(self, of: impl Fn(bool) -> Node) -> Node {
        match self {
            Side::Source => of(true),
            Side::Destination => of(false),
            Side::Either => of(true).or(of(false)),
            Side::Both => of(true).and(of(false)),
        }
    }
}

/// Where headers are: behind this many VLAN tags.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Layers {
    pub(super) tags: usize,
}

impl Layers {
    /// The offset of the EtherType.
    fn kind(self) -> usize {
        12 + 4 * self.tags
    }

    /// The offset of the header after Ethernet's.
    pub(super) fn network(self) -> usize {
        14 + 4 * self.tags
    }

    fn number(self, offset: usize, size: u8) -> Value {
        Value::load(Base::At(self.network()), offset, size)
    }

    pub(super) fn ether_type(self, kind: u16) -> Node {
        Value::load(Base::At(self.kind()), 0, 2).is(kind.into())
    }

    pub(super) fn ip(self) -> Node {
        self.ether_type(0x0800)
    }

    pub(super) fn ip6(self) -> Node {
        self.ether_type(0x86dd)
    }

    pub(super) fn ip_protocol(self, number: u8) -> Node {
        self.ip().and(self.number(9, 1).is(number.into()))
    }

    /// As libpcap, looks behind a fragment header only.
    pub(super) fn ip6_protocol(self, number: u8) -> Node {
        let fragment = self.number(6, 1).is(44).and(self.number(40, 1).is(number.into()));
        self.ip6().and(self.number(6, 1).is(number.into()).or(fragment))
    }

    /// A protocol by its name.
    pub(super) fn protocol(self, name: &str) -> Option<Node> {
        if let Some(kind) = names::find(&names::ETHER_TYPES, name) {
            return Some(self.ether_type(kind));
        }
        let (_, number, over_4, over_6) = names::PROTOCOLS.into_iter().find(|(known, ..)| *known == name)?;
        Some(match (over_4, over_6) {
            (true, true) => self.ip_protocol(number).or(self.ip6_protocol(number)),
            (true, false) => self.ip_protocol(number),
            _ => self.ip6_protocol(number),
        })
    }

    /// A frame with a VLAN tag; the layers behind it are the caller's to set.
    pub(super) fn vlan(self, number: Option<u32>) -> Node {
        let tagged = self.ether_type(0x8100).or(self.ether_type(0x88a8)).or(self.ether_type(0x9100));
        let of = |number| self.number(0, 2).masked(0x0fff).is(number);
        match number {
            Some(number) => Node::All(Vec::from([tagged, of(number)])),
            None => tagged,
        }
    }

    pub(super) fn mac(self, address: MacAddress, is_source: bool) -> Node {
        let [a, b, c, d, e, f] = address.0;
        let at = if is_source { 6 } else { 0 };
        let low = Value::load(Base::At(at), 2, 4).is(u32::from_be_bytes([c, d, e, f]));
        low.and(Value::load(Base::At(at), 0, 2).is(u32::from_be_bytes([0, 0, a, b])))
    }

    /// An address of IPv4 with these leading bits.
    pub(super) fn ipv4(self, address: Ipv4Addr, mask: u32, side: Side) -> Node {
        side.combine(|is_source| {
            let number = self.number(if is_source { 12 } else { 16 }, 4);
            number.masked(mask).is(address.to_bits() & mask)
        })
    }

    /// An address in ARP with these leading bits.
    pub(super) fn arp(self, address: Ipv4Addr, mask: u32, side: Side) -> Node {
        side.combine(|is_source| {
            let number = self.number(if is_source { 14 } else { 24 }, 4);
            number.masked(mask).is(address.to_bits() & mask)
        })
    }

    /// An address of IPv6 with `bits` leading bits.
    pub(super) fn ipv6(self, address: Ipv6Addr, bits: u32, side: Side) -> Node {
        let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
        let part = |number: u128, part: usize| (number >> (96 - 32 * part)) as u32;
        side.combine(|is_source| {
            let at = if is_source { 8 } else { 24 };
            let parts = (0..4).filter(|word| part(mask, *word) != 0).map(|word| {
                let mask = part(mask, word);
                self.number(at + 4 * word, 4).masked(mask).is(part(address.to_bits(), word) & mask)
            });
            Node::All(parts.collect())
        })
    }

    /// A port, or a range of ports, of these protocols.
    pub(super) fn ports(self, protocols: &[u8], range: (u16, u16), side: Side) -> Node {
        let within = |number: Value| {
            use super::node::Relation::{GreaterEqual, LessEqual};
            let (low, high) = range;
            if low == high {
                return number.is(low.into());
            }
            let least = Node::Compare(number.clone(), GreaterEqual, Value::Constant(low.into()));
            least.and(Node::Compare(number, LessEqual, Value::Constant(high.into())))
        };
        let one_of = |at| Node::Any(protocols.iter().map(|it| self.number(at, 1).is((*it).into())).collect());
        let over_4 = side.combine(|is_source| {
            within(Value::load(Base::AfterIpv4(self.network()), if is_source { 0 } else { 2 }, 2))
        });
        let over_6 = side.combine(|is_source| within(self.number(if is_source { 40 } else { 42 }, 2)));
        let over_6 = Node::All(Vec::from([self.ip6(), one_of(6), over_6]));
        over_6.or(Node::All(Vec::from([self.ip(), one_of(9), self.first_fragment(), over_4])))
    }

    /// An IPv4 packet that has its transport header.
    pub(super) fn first_fragment(self) -> Node {
        self.number(6, 2).masked(0x1fff).is(0)
    }

    pub(super) fn group(self, of: Option<&str>) -> Option<Node> {
        use super::node::Relation::GreaterEqual;
        Some(match of {
            None => Value::load(Base::At(0), 0, 1).masked(1).is(1),
            Some("ip") => {
                let group = Node::Compare(self.number(16, 1), GreaterEqual, Value::Constant(224));
                self.ip().and(group)
            }
            Some("ip6") => self.ip6().and(self.number(24, 1).is(255)),
            Some(_) => return None,
        })
    }
}
