//! ARP packets for IPv4 on Ethernet (RFC 826): offsets, and how to make one.
use crate::packet::{mark_ethernet, put, u16_at};
use core::net::Ipv4Addr;
use ringway_click::{Annotations, Context, Packet};
use ringway_wire::{MacAddress, arp, ethernet};

/// Where in an ARP packet the operation is.
pub(super) const OPERATION: usize = 6;
/// Where the sender's Ethernet address is.
pub(super) const SENDER_ETHER: usize = 8;
/// Where the sender's IPv4 address is.
pub(super) const SENDER_IP: usize = 14;
/// Where the target's Ethernet address is.
pub(super) const TARGET_ETHER: usize = 18;
/// Where the target's IPv4 address is.
pub(super) const TARGET_IP: usize = 24;

/// The ARP packet in an Ethernet frame, if it is one for IPv4 on Ethernet.
pub(super) fn parse(frame: &[u8]) -> Option<arp::Repr> {
    let payload = frame.get(ethernet::HEADER_LEN..)?;
    if u16_at(frame, 12) != 0x0806 || u16_at(payload, 0) != 1 || u16_at(payload, 2) != 0x0800 {
        return None;
    }
    arp::Packet::new_checked(payload).ok().map(|packet| arp::Repr::parse(&packet))
}

/// A frame with an ARP packet. It seems to come from where `like` did.
pub(super) fn make(
    destination: MacAddress,
    packet: &arp::Repr,
    like: Option<&Packet>,
    cx: &mut Context<'_>,
) -> Option<Packet> {
    let mut made = cx.packet(&[0; ethernet::HEADER_LEN + arp::PACKET_LEN])?;
    let frame = made.data_mut();
    put(frame, 0, destination.0);
    put(frame, 6, packet.source_hardware.0);
    put(frame, 12, [0x08, 0x06]);
    packet.emit(frame.get_mut(ethernet::HEADER_LEN..)?).ok()?;
    mark_ethernet(&mut made, ethernet::HEADER_LEN);
    if let Some(like) = like {
        let tag = like.notes().get::<2>(Annotations::VLAN_TCI);
        made.notes_mut().device = like.notes().device;
        made.notes_mut().set(Annotations::VLAN_TCI, tag);
    }
    Some(made)
}

/// A reply: `ip` is at `ether`.
pub(super) fn reply(ether: MacAddress, ip: Ipv4Addr, to: MacAddress, to_ip: Ipv4Addr) -> arp::Repr {
    arp::Repr {
        operation: arp::Operation::Reply,
        source_hardware: ether,
        source_protocol: ip,
        target_hardware: to,
        target_protocol: to_ip,
    }
}
