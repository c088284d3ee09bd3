//! ARP packets for IPv4 on Ethernet (RFC 826): parsing and construction.
use crate::packet::mark_ethernet;
use core::net::Ipv4Addr;
use ringway_click::prelude::*;
use ringway_wire::{Arp, EtherType, Ethernet, Header, MacAddress, arp};

/// The ARP packet in an Ethernet frame, if it is one for IPv4 on Ethernet.
pub(super) fn parse(frame: &[u8]) -> Option<&Arp> {
    let (header, payload) = Ethernet::split(frame)?;
    Arp::parse(payload).filter(|_| header.ethertype == EtherType::ARP)
}

/// A frame with an ARP packet, with the device and VLAN annotations of `like`.
pub(super) fn make(
    destination: MacAddress,
    arp: &Arp,
    like: Option<&Packet>,
    cx: &mut Context<'_>,
) -> Option<Packet> {
    let mut made = cx.packet(&[0; Ethernet::LEN + Arp::LEN])?;
    let (header, payload) = Ethernet::split_mut(made.data_mut())?;
    *header = Ethernet { destination, source: arp.sender_hardware, ethertype: EtherType::ARP };
    *Arp::of_mut(payload)? = *arp;
    mark_ethernet(&mut made, Ethernet::LEN);
    if let Some(like) = like {
        let tag = like.notes().get::<2>(Annotations::VLAN_TCI);
        made.notes_mut().device = like.notes().device;
        made.notes_mut().set(Annotations::VLAN_TCI, tag);
    }
    Some(made)
}

/// A reply: `ip` is at `ether`.
pub(super) fn reply(ether: MacAddress, ip: Ipv4Addr, to: MacAddress, to_ip: Ipv4Addr) -> Arp {
    Arp {
        sender_hardware: ether,
        sender_protocol: ip.to_bits().into(),
        target_hardware: to,
        target_protocol: to_ip.to_bits().into(),
        ..Arp::new(arp::REPLY)
    }
}
