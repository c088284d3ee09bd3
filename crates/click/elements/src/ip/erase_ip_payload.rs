//! `EraseIPPayload`: zeroes the payload of TCP and UDP; lengths and checksums stay unchanged.
//!
//! Ports: one input, one output, push or pull. No arguments, no handlers. The IPv4 header must be marked. For later
//! fragments everything after the IPv4 header is zeroed.
use super::transport::Transport;
use ringway_click::prelude::*;
use ringway_wire::{Header, Protocol, Tcp, Udp};

pub static CLASS: Class =
    Class::new("EraseIPPayload", || Box::new(EraseIpPayload)).ports("1/1").metadata(Metadata::Resolve);

#[derive(Debug)]
pub struct EraseIpPayload;

fn erase(packet: &mut Packet) -> Option<()> {
    let transport = Transport::of_packet(packet)?;
    let ip = packet.network_data()?;
    let own = match transport.protocol {
        Protocol::TCP | Protocol::UDP if transport.later => 0,
        Protocol::TCP => Tcp::header_len_of(ip.get(transport.header..)?)?,
        Protocol::UDP => Udp::LEN,
        _ => return None,
    };
    packet.network_data_mut()?.get_mut(transport.header + own..)?.fill(0);
    Some(())
}

impl Element for EraseIpPayload {
    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            let _ = erase(packet);
        }
    }
}
