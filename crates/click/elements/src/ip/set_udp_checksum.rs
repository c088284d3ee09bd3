//! `SetUDPChecksum`: computes the checksum of UDP over IPv4.
//!
//! Ports: one input; one output, and optionally a push output for packets without a checksum: fragments, truncated
//! packets, packets other than UDP.
//!
//! No arguments, no handlers. The IPv4 header must be marked.
use super::transport::Transport;
use crate::packet::divert;
use ringway_click::prelude::*;
use ringway_wire::{Header, Protocol, Udp};

pub static CLASS: Class = Class::new("SetUDPChecksum", || Box::<SetUdpChecksum>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct SetUdpChecksum;

impl Element for SetUdpChecksum {
    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        divert(burst, cx, |packet, _| set(packet).is_some());
    }
}

fn set(packet: &mut Packet) -> Option<()> {
    let transport =
        Transport::of_packet(packet).filter(|t| t.protocol == Protocol::UDP && !t.later && !t.more)?;
    let bytes = transport.slice_mut(packet.network_data_mut()?)?;
    let length = usize::from(Udp::of(bytes)?.length.get());
    Udp::fill_checksum(bytes.get_mut(..length)?, transport.pseudo(length))
}
