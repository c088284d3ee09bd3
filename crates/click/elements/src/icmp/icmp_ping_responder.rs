//! `ICMPPingResponder`: turns ICMP echo requests into their replies.
//!
//! Ports: one input; one output, and optionally a push output for everything else.
//!
//! No arguments, no handlers. The IPv4 header must be marked. Requests received as link-level broadcasts are not
//! answered.
use crate::ip::transport::Transport;
use crate::packet::divert;
use ringway_click::PacketType;
use ringway_click::prelude::*;
use ringway_wire::checksum::update;
use ringway_wire::icmp::v4::{ECHO, ECHO_REPLY};
use ringway_wire::{Header, Icmp, Ipv4, Protocol, Sum};

pub static CLASS: Class = Class::new("ICMPPingResponder", || Box::<IcmpPingResponder>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct IcmpPingResponder;

impl Element for IcmpPingResponder {
    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        divert(burst, cx, |packet, _| answer(packet).is_some());
    }
}

fn answer(packet: &mut Packet) -> Option<()> {
    let data = packet.network_data()?;
    let transport = Transport::of(data)?;
    let echo = Icmp::of(&data[transport.header..]).filter(|icmp| icmp.kind == ECHO);
    if transport.protocol != Protocol::ICMP || transport.later || echo.is_none() {
        return None;
    }
    let (ip, _, message) = Ipv4::parse_mut(packet.network_data_mut()?)?;
    core::mem::swap(&mut ip.source, &mut ip.destination);
    // The reply is a new packet, with an initial time to live.
    ip.set_ttl(255);
    let icmp = Icmp::of_mut(message)?;
    icmp.kind = ECHO_REPLY;
    icmp.checksum.set(update(icmp.checksum.get(), u16::from(ECHO) << 8, u16::from(ECHO_REPLY) << 8));
    if icmp.checksum == 0 {
        // The checksum of all zeros is 0xffff, which an incremental update can't distinguish from 0 (RFC 1624).
        Icmp::fill_checksum(message, Sum::new())?;
    }
    packet.notes_mut().set_dst_ip(transport.source.to_be_bytes());
    packet.notes_mut().packet_type = PacketType::Host;
    Some(())
}
