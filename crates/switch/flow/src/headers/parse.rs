//! Reads headers, as Open vSwitch does (`miniflow_extract`).

use super::{ETHERNET, Layout, ROOM, TAG};
use crate::key::{FRAGMENT, Key, LATER, LENGTH, TAGGED, place};
use core::cell::Cell;
use ringway_wire::arp::Arp;
use ringway_wire::ipv6::{self, Fragment};
use ringway_wire::{EtherType, Ethernet, Header, Icmp, Ipv4, Ipv6, Protocol, Tcp, Udp, Vlan, icmp, tcp, udp};

/// Length of the header of SCTP.
const SCTP: usize = 12;

/// What is left of a frame.
#[derive(Clone, Copy)]
struct Rest<'b> {
    /// The bytes that were read.
    bytes: &'b [u8],
    /// Where they begin.
    at: usize,
    /// How many bytes of the frame follow, read or not.
    len: usize,
    /// Becomes `true` if a header is in the frame, but not in the bytes that were read.
    is_cut: &'b Cell<bool>,
}

impl<'b> Rest<'b> {
    fn header<H: Header>(&self) -> Option<&'b H> {
        H::of(self.first_bytes(H::LEN)?)
    }

    /// Its first bytes, if the frame has so many.
    fn first_bytes(&self, count: usize) -> Option<&'b [u8]> {
        if count > self.len {
            return None;
        }
        let bytes = self.bytes.get(..count);
        self.is_cut.set(self.is_cut.get() || bytes.is_none());
        bytes
    }

    fn chunk<const N: usize>(&self) -> Option<&'b [u8; N]> {
        self.first_bytes(N)?.first_chunk()
    }

    fn skip(self, count: usize) -> Option<Rest<'b>> {
        let len = self.len.checked_sub(count)?;
        let bytes = self.bytes.get(count..).unwrap_or_default();
        Some(Rest { bytes, at: self.at + count, len, ..self })
    }

    /// Without what is behind the first `len` bytes.
    fn first(self, len: usize) -> Rest<'b> {
        Rest { bytes: &self.bytes[..len.min(self.bytes.len())], len, ..self }
    }
}

/// Reads a frame of `len` bytes, of which `bytes` has the first behind [`ROOM`].
pub(super) fn parse(bytes: &[u8], len: usize, key: &mut Key) -> Layout {
    let is_cut = Cell::new(false);
    let rest = Rest { bytes: bytes.get(ROOM..).unwrap_or_default(), at: ROOM, len, is_cut: &is_cut };
    let layout = headers(rest, key);
    Layout { is_cut: is_cut.get(), ..layout }
}

fn headers(rest: Rest<'_>, key: &mut Key) -> Layout {
    let mut layout = Layout::default();
    let Some(ethernet) = rest.header::<Ethernet>() else { return layout };
    key.set(place::ETH_DST, ethernet.destination.to_u64());
    key.set(place::ETH_SRC, ethernet.source.to_u64());
    let Some(mut rest) = rest.skip(ETHERNET) else { return layout };
    let mut ether_type = ethernet.ethertype;
    if ether_type.is_tag()
        && let Some(tag) = rest.header::<Vlan>()
    {
        key.set(place::VLAN_TCI, tag.tci.get() | TAGGED);
        layout.tags = 1;
        ether_type = tag.ethertype;
        let Some(behind) = rest.skip(TAG) else { return layout };
        rest = behind;
    }
    if ether_type.get() < 0x600 {
        (ether_type, rest) = of_length(rest);
    }
    key.set(place::ETH_TYPE, ether_type.get());
    // A header that is not valid leaves the others as they are.
    let _ = match ether_type {
        EtherType::IPV4 => ipv4(rest, key, &mut layout),
        EtherType::IPV6 => ipv6(rest, key, &mut layout),
        EtherType::ARP | EtherType::RARP => arp(rest, key, &mut layout),
        _ => None,
    };
    layout
}

/// The EtherType of a frame whose EtherType is a length: that of a SNAP header (IEEE 802, 9.5), if there is one.
fn of_length(rest: Rest<'_>) -> (EtherType, Rest<'_>) {
    if let Some(&[0xaa, 0xaa, 3, 0, 0, 0, high, low]) = rest.chunk::<8>()
        && u16::from_be_bytes([high, low]) >= 0x600
        && let Some(behind) = rest.skip(8)
    {
        return (EtherType::new(u16::from_be_bytes([high, low])), behind);
    }
    (EtherType::new(LENGTH), rest)
}

fn ipv4(rest: Rest<'_>, key: &mut Key, layout: &mut Layout) -> Option<()> {
    let ip = rest.header::<Ipv4>()?;
    let (header, total) = (usize::from(ip.version_ihl & 0xf) * 4, usize::from(ip.total_length.get()));
    let is_valid = header >= Ipv4::LEN && total >= header && total <= rest.len;
    let behind = rest.first(total).skip(header).filter(|_| is_valid)?;
    layout.l3 = rest.at as u16;
    key.set(place::NW_SRC, ip.source.get());
    key.set(place::NW_DST, ip.destination.get());
    key.set(place::NW_PROTO, ip.protocol.0);
    key.set(place::TOS, ip.tos);
    key.set(place::TTL, ip.ttl);
    let mut fragment = 0;
    if ip.is_fragment() {
        fragment = if ip.is_later_fragment() { FRAGMENT | LATER } else { FRAGMENT };
    }
    key.set(place::FRAG, fragment);
    transport(behind, ip.protocol, fragment, key, layout)
}

fn ipv6(rest: Rest<'_>, key: &mut Key, layout: &mut Layout) -> Option<()> {
    let ip = rest.header::<Ipv6>()?;
    let behind = rest.skip(Ipv6::LEN)?;
    let payload = usize::from(ip.payload_length.get());
    if payload > behind.len {
        return None;
    }
    key.set(place::IPV6_SRC, ip.source.get());
    key.set(place::IPV6_DST, ip.destination.get());
    let mut extensions = Extensions { fragment: 0, is_routed: false };
    let (protocol, behind) = extensions.skip(ip.next_header, behind.first(payload))?;
    (layout.l3, layout.is_routed) = (rest.at as u16, extensions.is_routed);
    key.set(place::NW_PROTO, protocol.0);
    key.set(place::TOS, ip.traffic_class());
    key.set(place::TTL, ip.hop_limit);
    key.set(place::IPV6_LABEL, ip.version_class_label.get() & 0xf_ffff);
    key.set(place::FRAG, extensions.fragment);
    transport(behind, protocol, extensions.fragment, key, layout)
}

/// What the extension headers of a packet say.
struct Extensions {
    fragment: u8,
    is_routed: bool,
}

impl Extensions {
    /// Skips them; `None` if one is not whole, or if there are too many.
    fn skip<'b>(&mut self, mut next: Protocol, mut rest: Rest<'b>) -> Option<(Protocol, Rest<'b>)> {
        // Attack: a chain of many headers of eight bytes.
        for _ in 0..=ipv6::EXTENSIONS {
            match next {
                Protocol::HOP_BY_HOP
                | Protocol::ROUTING
                | Protocol::DESTINATION
                | Protocol::AUTHENTICATION => {
                    let [following, length, _, segments_left] = *rest.chunk::<4>()?;
                    // Without segments left, the destination is the final one.
                    self.is_routed |= next == Protocol::ROUTING && segments_left != 0;
                    let length = usize::from(length);
                    let length =
                        if next == Protocol::AUTHENTICATION { (length + 2) * 4 } else { (length + 1) * 8 };
                    (next, rest) = (Protocol(following), rest.skip(length)?);
                }
                Protocol::FRAGMENT => {
                    let header = rest.header::<Fragment>()?;
                    (next, rest) = (header.next_header, rest.skip(Fragment::LEN)?);
                    // An atomic fragment is a whole packet (RFC 6946).
                    if header.offset() != 0 || header.more() {
                        self.fragment = FRAGMENT | if header.offset() != 0 { LATER } else { 0 };
                        if header.offset() != 0 {
                            // As in Open vSwitch: what follows is known of the first fragment only.
                            return Some((Protocol::FRAGMENT, rest));
                        }
                    }
                }
                _ => return Some((next, rest)),
            }
        }
        // Attack: a frame whose headers behind the chain filters do not see.
        rest.is_cut.set(true);
        None
    }
}

fn transport(
    rest: Rest<'_>,
    protocol: Protocol,
    fragment: u8,
    key: &mut Key,
    layout: &mut Layout,
) -> Option<()> {
    if fragment & LATER != 0 {
        return None;
    }
    let (source, destination) = match protocol {
        Protocol::TCP => {
            let tcp = rest.header::<Tcp>()?;
            key.set(place::TCP_FLAGS, u16::from(tcp.data_offset & 0xf) << 8 | u16::from(tcp.flags.0));
            (tcp.source_port.get(), tcp.destination_port.get())
        }
        Protocol::UDP => {
            let udp = rest.header::<Udp>()?;
            (udp.source_port.get(), udp.destination_port.get())
        }
        Protocol::SCTP if rest.len >= SCTP => {
            let &[a, b, c, d] = rest.chunk::<4>()?;
            (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
        }
        Protocol::ICMP if !is_v6(key) => {
            let icmp = rest.header::<Icmp>()?;
            (icmp.kind.into(), icmp.code.into())
        }
        Protocol::ICMPV6 if is_v6(key) => {
            let icmp = rest.header::<Icmp>()?;
            neighbor(rest, icmp, key);
            (icmp.kind.into(), icmp.code.into())
        }
        _ => return None,
    };
    layout.l4 = rest.at as u16;
    key.set(place::TP_SRC, source);
    key.set(place::TP_DST, destination);
    Some(())
}

fn is_v6(key: &Key) -> bool {
    key.get16(place::ETH_TYPE) == EtherType::IPV6.get()
}

/// Reads a message of neighbor discovery, if it is one.
fn neighbor(rest: Rest<'_>, message: &Icmp, key: &mut Key) {
    let is_neighbor =
        matches!(message.kind, icmp::v6::NEIGHBOR_SOLICITATION | icmp::v6::NEIGHBOR_ADVERTISEMENT);
    let Some(behind) = rest.skip(Icmp::LEN).filter(|_| is_neighbor && message.code == 0) else { return };
    let Some(target) = behind.chunk::<16>() else { return };
    let mut addresses = [None; 2];
    let mut options = behind.skip(16);
    while let Some(rest) = options
        && let Some(&[kind, units, a, b, c, d, e, f]) = rest.chunk::<8>()
        && units != 0
        && rest.len >= usize::from(units) * 8
    {
        let place = match kind {
            icmp::LinkOption::SOURCE => addresses.first_mut(),
            icmp::LinkOption::TARGET => addresses.last_mut(),
            _ => None,
        };
        if let Some(address) = place.filter(|_| units == 1) {
            // Two addresses contradict each other: the message says nothing.
            if address.is_some_and(|former| former != 0) {
                return;
            }
            *address = Some(u64::from_be_bytes([0, 0, a, b, c, d, e, f]));
        }
        options = rest.skip(usize::from(units) * 8);
    }
    key.set(place::ND_TARGET, u128::from_be_bytes(*target));
    let [source, target] = addresses;
    key.set(place::ARP_SHA, source.unwrap_or(0));
    key.set(place::ARP_THA, target.unwrap_or(0));
}

fn arp(rest: Rest<'_>, key: &mut Key, layout: &mut Layout) -> Option<()> {
    let bytes = rest.header::<Arp>()?.bytes();
    let arp = Arp::parse(bytes)?;
    layout.l3 = rest.at as u16;
    let operation = arp.operation.get();
    key.set(place::NW_PROTO, if operation <= 0xff { operation } else { 0 });
    key.set(place::NW_SRC, arp.sender_protocol.get());
    key.set(place::NW_DST, arp.target_protocol.get());
    key.set(place::ARP_SHA, arp.sender_hardware.to_u64());
    key.set(place::ARP_THA, arp.target_hardware.to_u64());
    Some(())
}

const _: () = assert!(tcp::HEADER_LEN == 20 && udp::HEADER_LEN == 8);
