//! Neighbor discovery in Ethernet frames (RFC 4861, 4).
use crate::packet::mark_ethernet;
use core::net::Ipv6Addr;
use ringway_click::HEADROOM;
use ringway_click::prelude::*;
use ringway_wire::icmp::{LinkOption, Neighbor, v6};
use ringway_wire::{EtherType, Ethernet, Header, Icmp, Ipv6, MacAddress, Protocol, ipv6};

/// A message and its sender.
#[derive(Debug)]
pub(super) struct NeighborMessage {
    pub(super) ether: MacAddress,
    pub(super) source: Ipv6Addr,
    pub(super) target: Ipv6Addr,
    /// The link-layer address option.
    pub(super) link: Option<MacAddress>,
}

/// The type of the link-layer address option in a message of this type.
fn link_option(kind: u8) -> u8 {
    if kind == v6::NEIGHBOR_SOLICITATION { LinkOption::SOURCE } else { LinkOption::TARGET }
}

/// The valid neighbor discovery message of type `kind` in a frame. Its hop limit of 255 proves that no router
/// forwarded it.
pub(super) fn parse(frame: &[u8], kind: u8) -> Option<NeighborMessage> {
    let (frame, payload) = Ethernet::split(frame).filter(|(frame, _)| frame.ethertype == EtherType::IPV6)?;
    let ipv6::Packet { header, payload, .. } = ipv6::Packet::parse(payload).filter(|packet| packet.whole)?;
    let mut sum = header.pseudo_header(Protocol::ICMPV6, payload.len() as u32);
    sum.add(payload);
    if header.hop_limit != 255 || header.next_header != Protocol::ICMPV6 || !sum.is_valid() {
        return None;
    }
    let (message, options) = Neighbor::split(payload)?;
    let target = Ipv6Addr::from_bits(message.target.get());
    let link = LinkOption::find(link_option(kind), options)?;
    let sound = message.icmp.kind == kind && message.icmp.code == 0 && !target.is_multicast();
    sound.then(|| NeighborMessage { ether: frame.source, source: header.source_addr(), target, link })
}

/// A frame with a message of type `kind` about `target`, with the sender's link-layer address as an option.
pub(super) fn make(
    (from, source): (MacAddress, Ipv6Addr),
    (to, destination): (MacAddress, Ipv6Addr),
    (kind, flags, target): (u8, u32, Ipv6Addr),
    cx: &mut Context<'_>,
) -> Option<Packet> {
    let length = Neighbor::LEN + LinkOption::LEN;
    let mut made = cx.make_packet(HEADROOM, Ethernet::LEN + Ipv6::LEN + length, 0)?;
    let (ethernet, packet) = Ethernet::split_mut(made.data_mut())?;
    *ethernet = Ethernet { destination: to, source: from, ethertype: EtherType::IPV6 };
    let (ip, message) = Ipv6::split_mut(packet)?;
    *ip = Ipv6 {
        payload_length: (length as u16).into(),
        next_header: Protocol::ICMPV6,
        hop_limit: 255,
        source: source.to_bits().into(),
        destination: destination.to_bits().into(),
        ..Ipv6::EMPTY
    };
    let (neighbor, option) = Neighbor::split_mut(message)?;
    *neighbor = Neighbor { icmp: Icmp { kind, ..Icmp::default() }, target: target.to_bits().into() };
    neighbor.icmp.set_rest(flags);
    *LinkOption::of_mut(option)? = LinkOption { kind: link_option(kind), length: 1, address: from };
    Icmp::fill_checksum(message, ip.pseudo_header(Protocol::ICMPV6, length as u32))?;
    mark_ethernet(&mut made, Ethernet::LEN);
    Some(made)
}
