//! `ICMPPingResponder`: turns ICMP echo requests into their replies.
//!
//! Ports: one input; one output, and optionally a push output for everything else.
//!
//! No arguments, no handlers. The IPv4 header must be noted. Requests to broadcasts of the link are not answered.
use crate::ip::transport::Transport;
use crate::packet::{change_u16, divert, put, u16_at};
use alloc::boxed::Box;
use ringway_click::{Class, Context, Element, Metadata, Packet, PacketBurst, PacketType};
use ringway_wire::checksum::checksum;

/// Facts.
pub static CLASS: Class = Class::new("ICMPPingResponder", || Box::<IcmpPingResponder>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .metadata(Metadata::Resolve);

/// Answers.
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
    let echo = data.get(transport.header..).filter(|message| message.len() >= 8 && message[0] == 8);
    if transport.protocol != 1 || transport.later || echo.is_none() {
        return None;
    }
    let data = packet.network_data_mut()?;
    let (header, message) = data.split_at_mut(transport.header);
    header[12..20].rotate_left(4);
    // A new packet starts with a time to live of its own.
    change_u16(header, 8, u16_at(header, 8) | 0xff00, 10);
    let code = u16::from(message[1]);
    change_u16(message, 0, code, 2);
    put(message, 0, [0]);
    if u16_at(message, 2) == 0 {
        // Of nothing but zeros the checksum is 0xffff, which an update can't tell from 0 (RFC 1624).
        let sum = checksum(message);
        put(message, 2, sum.to_be_bytes());
    }
    packet.notes_mut().set_dst_ip(transport.source.to_be_bytes());
    packet.notes_mut().packet_type = PacketType::Host;
    Some(())
}
