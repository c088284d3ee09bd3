//! Neighbor discovery in Ethernet frames (RFC 4861, 4).
use crate::packet::{mark_ethernet, put};
use core::net::Ipv6Addr;
use ringway_click::{Context, HEADROOM, Packet};
use ringway_wire::ethernet::{self, EtherType, Frame};
use ringway_wire::{MacAddress, icmpv6, ip::Protocol, ipv6};

/// A message and who sent it.
#[derive(Debug)]
pub(super) struct Heard<'a> {
    pub(super) ether: MacAddress,
    pub(super) source: Ipv6Addr,
    pub(super) message: icmpv6::Repr<'a>,
}

/// The sound neighbor discovery message in a frame. Its hop limit of 255 shows that no router passed it on.
pub(super) fn parse(frame: &[u8]) -> Option<Heard<'_>> {
    let frame = Frame::new_checked(frame).ok().filter(|frame| frame.ethertype() == EtherType::IPV6)?;
    let packet = ipv6::Packet::new_checked(frame.payload()).ok()?;
    if packet.hop_limit() != 255 || packet.next_header() != Protocol::ICMPV6 {
        return None;
    }
    let payload = packet.payload();
    let message = icmpv6::Message::new_checked(payload).ok()?;
    let pseudo = packet.pseudo_header(Protocol::ICMPV6, payload.len() as u32);
    if !message.is_checksum_valid(pseudo) {
        return None;
    }
    let message = icmpv6::Repr::parse(&message).ok()?;
    Some(Heard { ether: frame.source(), source: packet.source(), message })
}

/// A frame with a message.
pub(super) fn make(
    (from, source): (MacAddress, Ipv6Addr),
    (to, destination): (MacAddress, Ipv6Addr),
    message: &icmpv6::Repr<'_>,
    cx: &mut Context<'_>,
) -> Option<Packet> {
    let length = message.len();
    let header = ipv6::Repr {
        traffic_class: 0,
        flow_label: 0,
        payload_len: u16::try_from(length).ok()?,
        next_header: Protocol::ICMPV6,
        hop_limit: 255,
        source,
        destination,
    };
    let whole = ethernet::HEADER_LEN + ipv6::HEADER_LEN + length;
    let mut made = cx.make_packet(HEADROOM, whole, 0)?;
    let frame = made.data_mut();
    frame.fill(0);
    put(frame, 0, to.0);
    put(frame, 6, from.0);
    put(frame, 12, [0x86, 0xdd]);
    let (_, packet) = frame.split_at_mut_checked(ethernet::HEADER_LEN)?;
    header.emit(packet).ok()?;
    let pseudo = ringway_wire::checksum::Sum::pseudo_v6(source, destination, 58, length as u32);
    message.emit(packet.get_mut(ipv6::HEADER_LEN..)?, pseudo).ok()?;
    mark_ethernet(&mut made, ethernet::HEADER_LEN);
    Some(made)
}
