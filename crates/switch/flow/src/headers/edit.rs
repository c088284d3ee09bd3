//! Changes headers, and the key with them.

use super::{ETHERNET, Headers, TAG};
use crate::field::Needs;
use crate::key::{Key, Place, TAGGED, WORDS, place};
use ringway_wire::checksum::update;
use ringway_wire::{EtherType, Protocol, ipv4, tcp, udp};

/// Offset of a frame's first tag, or of its EtherType.
const TAG_AT: usize = 12;
/// Offset of the checksum in ICMPv6's header.
const ICMP6_CHECKSUM_AT: usize = 2;
/// A mask of all bits.
const ALL: Key = Key([u64::MAX; WORDS]);

/// Offsets of fields in the IPv4 header.
mod v4 {
    pub const FIRST: usize = 0;
    pub const TTL: usize = 8;
    pub const CHECKSUM: usize = 10;
    pub const SOURCE: usize = 12;
    pub const DESTINATION: usize = 16;
}

/// Offsets of fields in the IPv6 header.
mod v6 {
    pub const HOP_LIMIT: usize = 7;
    pub const SOURCE: usize = 8;
    pub const DESTINATION: usize = 24;
}

/// Offsets of fields in ARP's header.
mod arp {
    pub const OPERATION: usize = 6;
    pub const SHA: usize = 8;
    pub const SPA: usize = 14;
    pub const THA: usize = 18;
    pub const TPA: usize = 24;
}

/// There is no room for another tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// Which checksums change with bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sums {
    /// None of them.
    None,
    /// That of the IPv4 header.
    Header,
    /// As `Header`, and that behind IP, which covers the addresses.
    Both,
    /// That behind IP.
    Payload,
}

impl Headers {
    /// Sets bits of a field, where the frame has the field.
    pub fn set(&mut self, key: &mut Key, needs: Needs, at: Place, value: u128, mask: u128) {
        if !needs.is_met(key, &ALL) || self.lacks(needs) {
            return;
        }
        // The checksum of SCTP is another one, of the whole packet.
        if needs == Needs::Ports && Needs::Sctp.is_met(key, &ALL) {
            return;
        }
        let new = key.get(at) & !mask | value & mask;
        if new != key.get(at) {
            key.set(at, new);
            self.write(key, at);
        }
    }

    /// Whether the header with the field is not there, although the headers in front of it announce it.
    fn lacks(&self, needs: Needs) -> bool {
        match needs {
            Needs::Nothing | Needs::Tag => false,
            Needs::Ipv4 | Needs::Ipv6 | Needs::Ip | Needs::Arp => self.layout.l3 == 0,
            _ => self.layout.l4 == 0,
        }
    }

    /// Writes a field of the key, of which a part may be `at`, to the headers.
    fn write(&mut self, key: &Key, at: Place) {
        let is_in = |field: Place| at.is_in(field);
        let (start, l3, l4) =
            (usize::from(self.start), usize::from(self.layout.l3), usize::from(self.layout.l4));
        if is_in(place::ETH_DST) {
            self.copy(start, &key.get(place::ETH_DST).to_be_bytes()[10..]);
        } else if is_in(place::ETH_SRC) {
            self.copy(start + 6, &key.get(place::ETH_SRC).to_be_bytes()[10..]);
        } else if is_in(place::VLAN_TCI) {
            self.write_tag(key);
        } else if is_in(place::TP_SRC) {
            self.replace(l4, &key.get16(place::TP_SRC).to_be_bytes(), key, Sums::Payload);
        } else if is_in(place::TP_DST) {
            self.replace(l4 + 2, &key.get16(place::TP_DST).to_be_bytes(), key, Sums::Payload);
        } else if Needs::Arp.is_met(key, &ALL) {
            self.write_arp(key, at, l3);
        } else if Needs::Ipv4.is_met(key, &ALL) {
            self.write_v4(key, at, l3);
        } else if Needs::Ipv6.is_met(key, &ALL) {
            self.write_v6(key, at, l3);
        }
    }

    fn write_arp(&mut self, key: &Key, at: Place, l3: usize) {
        let is_in = |field: Place| at.is_in(field);
        if is_in(place::NW_PROTO) {
            self.copy(l3 + arp::OPERATION, &key.get(place::NW_PROTO).to_be_bytes()[14..]);
        } else if is_in(place::NW_SRC) {
            self.copy(l3 + arp::SPA, &key.get(place::NW_SRC).to_be_bytes()[12..]);
        } else if is_in(place::NW_DST) {
            self.copy(l3 + arp::TPA, &key.get(place::NW_DST).to_be_bytes()[12..]);
        } else if is_in(place::ARP_SHA) {
            self.copy(l3 + arp::SHA, &key.get(place::ARP_SHA).to_be_bytes()[10..]);
        } else if is_in(place::ARP_THA) {
            self.copy(l3 + arp::THA, &key.get(place::ARP_THA).to_be_bytes()[10..]);
        }
    }

    fn write_v4(&mut self, key: &Key, at: Place, l3: usize) {
        if at.is_in(place::NW_SRC) {
            let address = (key.get(place::NW_SRC) as u32).to_be_bytes();
            self.replace(l3 + v4::SOURCE, &address, key, Sums::Both);
        } else if at.is_in(place::NW_DST) {
            let address = (key.get(place::NW_DST) as u32).to_be_bytes();
            self.replace(l3 + v4::DESTINATION, &address, key, Sums::Both);
        } else if at.is_in(place::TOS) {
            let first = self.byte(l3 + v4::FIRST);
            self.replace(l3 + v4::FIRST, &[first, key.get8(place::TOS)], key, Sums::Header);
        } else if at.is_in(place::TTL) {
            let protocol = self.byte(l3 + v4::TTL + 1);
            self.replace(l3 + v4::TTL, &[key.get8(place::TTL), protocol], key, Sums::Header);
        }
    }

    fn write_v6(&mut self, key: &Key, at: Place, l3: usize) {
        // The final destination of a packet with a routing header is there.
        let sums = if self.layout.is_routed { Sums::None } else { Sums::Payload };
        if at.is_in(place::IPV6_SRC) {
            let address = key.get(place::IPV6_SRC).to_be_bytes();
            self.replace(l3 + v6::SOURCE, &address, key, Sums::Payload);
        } else if at.is_in(place::IPV6_DST) {
            let address = key.get(place::IPV6_DST).to_be_bytes();
            self.replace(l3 + v6::DESTINATION, &address, key, sums);
        } else if at.is_in(place::TTL) {
            self.copy(l3 + v6::HOP_LIMIT, &[key.get8(place::TTL)]);
        } else if at.is_in(place::TOS) || at.is_in(place::IPV6_LABEL) {
            let (class, label) = (key.get(place::TOS) as u32, key.get(place::IPV6_LABEL) as u32);
            self.copy(l3, &(6 << 28 | class << 20 | label).to_be_bytes());
        }
    }

    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    fn word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.byte(at), self.byte(at + 1)])
    }

    fn copy(&mut self, at: usize, new: &[u8]) {
        if let Some(bytes) = self.bytes.get_mut(at..at + new.len()) {
            bytes.copy_from_slice(new);
        }
    }

    /// Writes words, and adjusts checksums.
    fn replace(&mut self, at: usize, new: &[u8], key: &Key, sums: Sums) {
        let l3 = usize::from(self.layout.l3);
        let (pairs, _) = new.as_chunks::<2>();
        for (number, pair) in pairs.iter().enumerate() {
            let at = at + 2 * number;
            let (old, new) = (self.word(at), u16::from_be_bytes(*pair));
            self.copy(at, pair);
            if matches!(sums, Sums::Header | Sums::Both) {
                let sum = update(self.word(l3 + v4::CHECKSUM), old, new);
                self.copy(l3 + v4::CHECKSUM, &sum.to_be_bytes());
            }
            if matches!(sums, Sums::Payload | Sums::Both) {
                self.adjust(key, at, old, new);
            }
        }
    }

    /// Adjusts the checksum behind IP to a word that has changed.
    fn adjust(&mut self, key: &Key, at: usize, old: u16, new: u16) {
        let l4 = usize::from(self.layout.l4);
        let protocol = Protocol(key.get8(place::NW_PROTO));
        let sum_at = match protocol {
            Protocol::TCP => tcp::CHECKSUM_AT,
            Protocol::UDP => udp::CHECKSUM_AT,
            Protocol::ICMPV6 => ICMP6_CHECKSUM_AT,
            _ => return,
        };
        let sum_at = l4 + sum_at;
        // A packet may end before its checksum, and a fragment has none.
        if l4 == 0 || sum_at + 2 > usize::from(self.end) {
            return;
        }
        let own = self.word(sum_at);
        // That of an inner packet may be pending instead.
        let is_partial = self.pending.is_some_and(|at| usize::from(at) == sum_at);
        let sum = match protocol {
            // The sum of the pseudo header, in which ports are not.
            _ if is_partial && at >= l4 => return,
            _ if is_partial => !update(!own, old, new),
            Protocol::UDP if own == 0 => return,
            Protocol::UDP => match update(own, old, new) {
                0 => 0xffff,
                sum => sum,
            },
            _ => update(own, old, new),
        };
        self.copy(sum_at, &sum.to_be_bytes());
    }

    /// Adds a tag of this type, with the VLAN 0 and the priority 0, in front of the others.
    ///
    /// # Errors
    /// The frame has had as many as there is room for. Attack: flows that add tags without end.
    pub fn push_tag(&mut self, key: &mut Key, of: EtherType) -> Result<(), NoRoom> {
        if self.bytes().len() < ETHERNET {
            return Ok(());
        }
        let start = usize::from(self.start);
        let Some(new) = start.checked_sub(TAG) else { return Err(NoRoom) };
        self.bytes.copy_within(start..start + TAG_AT, new);
        self.copy(new + TAG_AT, &of.get().to_be_bytes());
        self.copy(new + TAG_AT + 2, &[0, 0]);
        self.start = new as u16;
        self.layout.tags += 1;
        key.set(place::VLAN_TCI, TAGGED);
        Ok(())
    }

    /// Removes the first tag, if there is one.
    pub fn pop_tag(&mut self, key: &mut Key) {
        if self.layout.tags == 0 {
            return;
        }
        let start = usize::from(self.start);
        self.bytes.copy_within(start..start + TAG_AT, start + TAG);
        self.start += TAG as u16;
        self.layout.tags -= 1;
        let tci = self.word(usize::from(self.start) + TAG_AT + 2) | TAGGED;
        key.set(place::VLAN_TCI, if self.layout.tags > 0 { tci } else { 0 });
    }

    /// Sets bits of the first tag, in a new one if there is none.
    ///
    /// # Errors
    /// As of [`Headers::push_tag`].
    pub fn set_tag(&mut self, key: &mut Key, at: Place, value: u16) -> Result<(), NoRoom> {
        if self.layout.tags == 0 {
            self.push_tag(key, EtherType::VLAN)?;
        }
        if self.layout.tags == 0 {
            // It is no whole frame.
            return Ok(());
        }
        key.set(at, value);
        self.write_tag(key);
        Ok(())
    }

    fn write_tag(&mut self, key: &Key) {
        let tci = key.get16(place::VLAN_TCI) & !TAGGED;
        self.copy(usize::from(self.start) + TAG_AT + 2, &tci.to_be_bytes());
    }
}

const _: () = assert!(ipv4::HEADER_LEN == 20);
