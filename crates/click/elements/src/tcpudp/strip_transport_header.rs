//! `StripTransportHeader`: removes the TCP, UDP or ICMP header, and the bytes before it (FastClick).
//!
//! Ports: one input, one output, push or pull. Packets without a complete header of these protocols pass unchanged.
//!
//! No arguments, no handlers. UnstripTransportHeader restores the header.
use ringway_click::prelude::*;
use ringway_wire::{Header, Icmp, Ipv4, Protocol, Tcp, Udp};

pub static CLASS: Class = Class::new("StripTransportHeader", || Box::<StripTransportHeader>::default())
    .ports("1/1")
    .metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct StripTransportHeader;

/// Length of the transport header if it is complete.
fn header_len(packet: &Packet) -> Option<usize> {
    let ip = packet.network::<Ipv4>()?;
    let segment = packet.transport_data().filter(|_| !ip.is_later_fragment())?;
    let length = match ip.protocol {
        Protocol::TCP => Tcp::of(segment)?.header_len(),
        Protocol::UDP => Udp::LEN,
        Protocol::ICMP => Icmp::LEN,
        _ => return None,
    };
    (length <= segment.len()).then_some(length)
}

impl Element for StripTransportHeader {
    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            if let (Some(at), Some(length)) = (packet.transport_header(), header_len(packet)) {
                packet.pull(usize::try_from(at + length as isize).unwrap_or(0));
            }
        }
    }
}
