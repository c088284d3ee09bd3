//! Anti-spoofing: whether the addresses that a frame claims for its sender are ones that its port may use.
//!
//! What can't be read is refused: a frame whose headers end early, or are too deep, would be checked by nobody, and
//! read by its receiver. So is what only routers and DHCP servers send.

mod ip;
mod neighbors;
#[cfg(test)]
pub(crate) mod tests;

use ringway_frame::{HEAD, Offload};
use ringway_spec::IpNet;
use ringway_wire::{EtherType, Header as _, MacAddress, arp};
use std::net::IpAddr;

/// Bytes of a frame that are looked at, at most.
pub const DEEPEST: usize = 256;
/// Bytes of a frame behind its head that are looked at, at most.
pub const BEHIND_HEAD: usize = DEEPEST - HEAD;
/// Tags of VLANs that are looked behind. Those of two more types are read by some switches.
const TAGS: [EtherType; 4] =
    [EtherType::VLAN, EtherType::SERVICE_VLAN, EtherType::new(0x9100), EtherType::new(0x9200)];
/// Tags before the header of the network, at most.
const MOST_TAGS: usize = 2;
/// The largest number that is a length and not an EtherType (IEEE 802.3, 3.2.6).
const LONGEST_LLC: u16 = 1500;
/// The smallest EtherType.
const FIRST_TYPE: u16 = 0x600;
/// The service access points of SNAP (IEEE 802, 9.5).
const SNAP: [u8; 2] = [0xaa, 0xab];

/// The network of link-local addresses that are made from MAC addresses.
const LINK_LOCAL: u128 = 0xfe80 << 112;

/// Why a frame is refused, in words for a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It claims an address that is not its port's.
    Spoofed(&'static str),
    /// It is a message of a router or a DHCP server.
    Rogue(&'static str),
    /// Its headers can't be read, so that its addresses are unknown.
    Unreadable(&'static str),
    /// Its pending checksum or segmentation would change what was checked.
    Offload(&'static str),
    /// Its headers go on behind the bytes that were given.
    Beyond,
}

impl Refusal {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Refusal::Spoofed(text)
            | Refusal::Rogue(text)
            | Refusal::Unreadable(text)
            | Refusal::Offload(text) => text,
            Refusal::Beyond => "its headers are too long",
        }
    }
}

type Checked = Result<(), Refusal>;

/// The addresses that frames from a port may be from.
#[derive(Debug, PartialEq, Eq)]
pub struct SenderRules {
    mac: Option<MacAddress>,
    /// First and last address of each range, in order; empty if any address is allowed.
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
    restricts_addresses: bool,
    /// The bytes 6 to 13 of the most frequent frames, and which of their bits count: the port's MAC address, if it has
    /// one, and the type of IPv4.
    usual: (u64, u64),
}

impl SenderRules {
    /// The rules of a description, if it has any.
    pub fn of(mac: Option<MacAddress>, allow: &[IpNet]) -> Option<SenderRules> {
        if mac.is_none() && allow.is_empty() {
            return None;
        }
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for net in allow {
            match (net.network(), net.broadcast()) {
                (IpAddr::V4(first), IpAddr::V4(last)) => v4.push((first.to_bits(), last.to_bits())),
                (IpAddr::V6(first), IpAddr::V6(last)) => v6.push((first.to_bits(), last.to_bits())),
                _ => {}
            }
        }
        let MacAddress([a, b, c, d, e, f]) = mac.unwrap_or_default();
        let mask = if mac.is_some() { u64::MAX } else { 0xffff << 48 };
        let usual = (u64::from_le_bytes([a, b, c, d, e, f, 8, 0]), mask);
        let restricts_addresses = !allow.is_empty();
        Some(SenderRules { mac, v4: merged(v4), v6: merged(v6), restricts_addresses, usual })
    }

    /// Checks a frame of `len` bytes with this head.
    ///
    /// # Errors
    /// Why it is refused, or [`Refusal::Beyond`] if its head does not say it.
    #[inline]
    pub fn check(&self, head: &[u8; HEAD], len: usize, offload: Offload) -> Checked {
        match self.is_usual(head, len, offload) {
            true => Ok(()),
            false => self.check_start(&head[..len.min(HEAD)], len, offload),
        }
    }

    /// Whether it is one of the most frequent frames, and from its port's addresses: IPv4 without options, TCP or UDP
    /// but DHCP, not a fragment, with nothing pending.
    #[inline]
    fn is_usual(&self, head: &[u8; HEAD], len: usize, offload: Offload) -> bool {
        let [_, _, _, _, _, _, a, b, c, d, e, f, g, h, ..] = *head;
        let (usual, mask) = self.usual;
        if (u64::from_le_bytes([a, b, c, d, e, f, g, h]) ^ usual) & mask != 0 || !offload.is_done() {
            return false;
        }
        let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let source = u32::from_be_bytes([head[26], head[27], head[28], head[29]]);
        let has_port = |at| matches!(word(at), 67 | 68);
        let is_carried = match head[23] {
            6 => true,
            17 => !has_port(34) && !has_port(36),
            _ => false,
        };
        let total = usize::from(word(16));
        let is_whole =
            head[14] == 0x45 && word(20) & 0x3fff == 0 && (28..=len.saturating_sub(14)).contains(&total);
        is_whole && is_carried && source != 0 && self.allows_v4(source)
    }

    /// As [`SenderRules::check`], by the first bytes of the frame.
    ///
    /// # Errors
    /// As there.
    pub fn check_start(&self, start: &[u8], len: usize, offload: Offload) -> Checked {
        let frame = Bytes { window: start, end: len };
        let source = MacAddress(frame.array(6)?);
        if self.mac.is_some_and(|mac| mac != source) {
            return Err(Refusal::Spoofed("its source address is not the port's `allow-mac`"));
        }
        let (kind, at) = network(frame)?;
        match kind {
            EtherType::IPV4 => return self.ipv4(frame, at, source, offload),
            EtherType::IPV6 => return self.ipv6(frame, at, source, offload),
            EtherType::ARP | EtherType::RARP => self.arp(frame, at, kind, source)?,
            _ if kind.get() <= LONGEST_LLC && SNAP.contains(&frame.array::<1>(at)?[0]) => {
                return Err(Refusal::Unreadable("its protocol is behind a SNAP header"));
            }
            _ if (LONGEST_LLC + 1..FIRST_TYPE).contains(&kind.get()) => {
                return Err(Refusal::Unreadable("its type is neither a length nor a protocol"));
            }
            _ if self.restricts_addresses => {
                return Err(Refusal::Unreadable("its protocol is not IPv4, IPv6, ARP or RARP"));
            }
            _ => {}
        }
        // Attack: a checksum that is written over the addresses that were checked.
        if offload.is_done() || kind != EtherType::ARP && kind != EtherType::RARP && writes_from(offload, at)
        {
            return Ok(());
        }
        Err(Refusal::Offload("its pending checksum or segmentation is not that of an IP packet"))
    }

    fn arp(&self, frame: Bytes<'_>, at: usize, kind: EtherType, source: MacAddress) -> Checked {
        let bytes: [u8; arp::Arp::LEN] = frame.array(at)?;
        let Some(packet) = arp::Arp::parse(&bytes) else {
            return Err(Refusal::Unreadable("its ARP packet is not of IPv4 on Ethernet"));
        };
        let operation = packet.operation.get();
        let is_known = match kind {
            EtherType::RARP => operation == arp::REVERSE_REQUEST,
            _ => matches!(operation, arp::REQUEST | arp::REPLY),
        };
        if !is_known {
            return Err(Refusal::Unreadable("its ARP packet is neither a request nor a reply"));
        }
        if packet.sender_hardware != source {
            return Err(Refusal::Spoofed("its ARP sender's hardware address is not the sender's"));
        }
        let (sender, target) = (packet.sender_protocol.get(), packet.target_protocol.get());
        let is_allowed = match (operation, sender) {
            // An announcement of the hardware address.
            (arp::REVERSE_REQUEST, 0) => true,
            // A probe (RFC 5227, 2.1.1). Attack: one for a neighbor's address, which would keep it from using that.
            (arp::REQUEST, 0) => self.allows_v4(target),
            (_, 0) => !self.restricts_addresses,
            _ => self.allows_v4(sender),
        };
        match is_allowed {
            true => Ok(()),
            false => Err(Refusal::Spoofed("its ARP sender's protocol address is not in `allow`")),
        }
    }

    /// Whether a station with this address may send.
    pub fn may_be(&self, mac: MacAddress) -> bool {
        self.mac.is_none_or(|own| own == mac)
    }

    #[inline]
    fn allows_v4(&self, address: u32) -> bool {
        !self.restricts_addresses || contains(&self.v4, address)
    }

    /// Whether an IPv6 address is allowed to the station with a MAC address, whose link-local address made from that
    /// (RFC 4291, appendix A) needs no entry if there is any of IPv6. Attack: the MAC address of a router, where the
    /// port's own is not given.
    fn allows_v6(&self, address: u128, mac: MacAddress) -> bool {
        if !self.restricts_addresses || contains(&self.v6, address) {
            return true;
        }
        let MacAddress([a, b, c, d, e, f]) = mac;
        let id = u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f]);
        self.mac.is_some() && !self.v6.is_empty() && address == LINK_LOCAL | u128::from(id)
    }
}

/// The type of a frame's payload behind its tags, and where that begins.
fn network(frame: Bytes<'_>) -> Result<(EtherType, usize), Refusal> {
    let mut at = 12;
    for _ in 0..=MOST_TAGS {
        let kind = EtherType::new(u16::from_be_bytes(frame.array(at)?));
        if !TAGS.contains(&kind) {
            return Ok((kind, at + 2));
        }
        at += 4;
    }
    Err(Refusal::Unreadable("it has more than two VLAN tags"))
}

/// Whether a pending checksum is written from `at` on, and no segmentation is pending.
fn writes_from(offload: Offload, at: usize) -> bool {
    let is_behind = usize::from(offload.csum_start) + usize::from(offload.csum_offset) >= at;
    offload.gso() == Ok(None) && (is_behind || !offload.needs_checksum())
}

/// Ranges in order, none of which overlap.
fn merged<N: Copy + Ord>(mut ranges: Vec<(N, N)>) -> Vec<(N, N)> {
    ranges.sort_unstable();
    let mut all: Vec<(N, N)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match all.last_mut().filter(|(_, end)| first <= *end) {
            Some((_, end)) => *end = last.max(*end),
            None => all.push((first, last)),
        }
    }
    all
}

#[inline]
fn contains<N: Copy + Ord>(ranges: &[(N, N)], number: N) -> bool {
    let behind = ranges.partition_point(|(first, _)| *first <= number);
    ranges[..behind].last().is_some_and(|(_, last)| number <= *last)
}

/// A frame, or the part of it up to the end of a packet, of which only the first bytes may be given.
#[derive(Clone, Copy)]
struct Bytes<'f> {
    window: &'f [u8],
    end: usize,
}

impl Bytes<'_> {
    /// The bytes at `at`.
    fn array<const N: usize>(self, at: usize) -> Result<[u8; N], Refusal> {
        if at + N > self.end {
            return Err(Refusal::Unreadable("its headers end early"));
        }
        let there = self.window.get(at..at + N).and_then(|bytes| bytes.try_into().ok());
        there.ok_or(Refusal::Beyond)
    }

    /// Those before `end`.
    fn until(self, end: usize) -> Result<Self, Refusal> {
        match end <= self.end {
            true => Ok(Bytes { end, ..self }),
            false => Err(Refusal::Unreadable("its packet ends early")),
        }
    }
}
