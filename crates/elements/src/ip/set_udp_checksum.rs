//! `SetUDPChecksum`: computes the checksum of UDP over IPv4.
//!
//! Ports: one input; one output, and optionally a push output for packets that have none: fragments, truncated ones,
//! those that are no UDP.
//!
//! No arguments, no handlers. The IPv4 header must be noted.
use super::transport::Transport;
use crate::packet::{divert, put, u16_at};
use alloc::boxed::Box;
use ringway_click::{Class, Context, Element, Metadata, Packet, PacketBurst};

/// Facts.
pub static CLASS: Class = Class::new("SetUDPChecksum", || Box::<SetUdpChecksum>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .metadata(Metadata::Resolve);

/// Computes checksums.
#[derive(Debug, Default)]
pub struct SetUdpChecksum;

impl Element for SetUdpChecksum {
    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        divert(burst, cx, |packet, _| set(packet).is_some());
    }
}

fn set(packet: &mut Packet) -> Option<()> {
    let transport = Transport::of_packet(packet).filter(|t| t.protocol == 17 && !t.later && !t.more)?;
    let bytes = transport.slice_mut(packet.network_data_mut()?)?;
    let length = usize::from(u16_at(bytes, 4));
    let datagram = bytes.get_mut(..length).filter(|datagram| datagram.len() >= 8)?;
    put(datagram, 6, [0, 0]);
    let mut sum = transport.pseudo(length);
    sum.add(datagram);
    put(datagram, 6, sum.finish_nonzero().to_be_bytes());
    Some(())
}
