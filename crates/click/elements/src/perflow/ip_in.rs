//! `IPIn`: begins a path on which the contents of IPv4 packets may be modified; IPOut ends it (FastClick).
//!
//! Removes bytes after the end of the IPv4 packet, such as padding of short frames.
//!
//! Ports: one input, one output, push or pull. Packets without a marked IPv4 header, or shorter than its total
//! length, pass unchanged.
//!
//! No arguments, no handlers.
use crate::ip::transport::Transport;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("IPIn", || Box::new(IpIn)).ports("1/1").metadata(Metadata::Resolve);

#[derive(Debug)]
pub struct IpIn;

/// Number of bytes after the IPv4 packet.
fn padding(packet: &Packet) -> Option<usize> {
    let data = packet.network_data()?;
    let transport = Transport::of(data)?;
    data.len().checked_sub(transport.header + transport.length)
}

impl Element for IpIn {
    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            packet.take(padding(packet).unwrap_or(0));
        }
    }
}
