//! `ICMPPingResponder`: turns ICMP echo requests into their replies.
//!
//! Ports: one input; one output, and optionally a push output for everything else.
//!
//! No arguments. The IPv4 header must be marked. Requests that were received as link-level broadcasts or multicasts,
//! and requests from or to addresses that can't be a host's (RFC 1122, 3.2.1.3), are not answered.
//!
//! Handlers: `bad_sources` (read): requests that were not answered.
use crate::ip::transport::Transport;
use crate::packet::divert;
use core::net::Ipv4Addr;
use ringway_click::PacketType;
use ringway_click::prelude::*;
use ringway_wire::checksum::update;
use ringway_wire::icmp::v4::{ECHO, ECHO_REPLY};
use ringway_wire::{Header, Icmp, Ipv4, Protocol, Sum, ipv4};

pub static CLASS: Class = Class::new("ICMPPingResponder", || Box::<IcmpPingResponder>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct IcmpPingResponder {
    bad_sources: u64,
}

impl Element for IcmpPingResponder {
    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        divert(burst, cx, |packet, _| answer(packet, &mut self.bad_sources).is_some());
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("bad_sources", |e: &mut Self| &mut e.bad_sources)].into()
    }
}

fn answer(packet: &mut Packet, bad_sources: &mut u64) -> Option<()> {
    let data = packet.network_data()?;
    let transport = Transport::of(data)?;
    let echo = Icmp::of(&data[transport.header..]).filter(|icmp| icmp.kind == ECHO);
    if transport.protocol != Protocol::ICMP || transport.later || echo.is_none() {
        return None;
    }
    let ends = [transport.source, transport.destination].map(Ipv4Addr::from_bits);
    let group = matches!(packet.notes().packet_type, PacketType::Broadcast | PacketType::Multicast);
    if group || !ends.into_iter().all(ipv4::is_host) {
        *bad_sources += 1;
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
