//! `TruncateIPPayload(LENGTH, TRANSPORT, EXTRA_LENGTH)`: truncates IPv4 packets to LENGTH bytes of payload.
//!
//! Ports: one input, one output, push or pull. Packets without a marked network header are truncated to LENGTH bytes.
//!
//! Arguments:
//! - `LENGTH`: bytes to keep after the headers; 0 by default.
//! - `TRANSPORT`: whether headers of TCP, UDP and ICMP count as headers; true by default.
//! - `EXTRA_LENGTH`: whether the extra length annotation is increased by the number of removed bytes; true by
//!   default.
//!
//! No handlers. Length fields in headers are not changed.
use ringway_click::prelude::*;
use ringway_wire::icmp::v4::{TIMESTAMP, TIMESTAMP_REPLY};
use ringway_wire::{Header, Icmp, Ipv4, Protocol, Tcp, Udp};

pub static CLASS: Class = Class::new("TruncateIPPayload", || Box::<TruncateIpPayload>::default())
    .ports("1/1")
    .metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct TruncateIpPayload {
    length: u16,
    transport: bool,
    extra: bool,
}

impl Element for TruncateIpPayload {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        (self.transport, self.extra) = (true, true);
        args.read_p("LENGTH", &mut self.length);
        args.read_p("TRANSPORT", &mut self.transport);
        args.read("EXTRA_LENGTH", &mut self.extra);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            let cut = packet.len().saturating_sub(self.keep(packet));
            packet.take(cut);
            if self.extra && cut > 0 {
                let extra = packet.notes().u32(Annotations::EXTRA_LENGTH);
                packet.notes_mut().set_u32(Annotations::EXTRA_LENGTH, extra.saturating_add(cut as u32));
            }
        }
    }
}

impl TruncateIpPayload {
    fn keep(&self, packet: &Packet) -> usize {
        let length = usize::from(self.length);
        let (Some(data), Some(at)) = (packet.network_data(), packet.network_header()) else { return length };
        let header = Ipv4::padded(data);
        let headers = match header.header_len() {
            ..Ipv4::LEN => Ipv4::LEN,
            own if self.transport => own + transport_header(header.protocol, data.get(own..).unwrap_or(&[])),
            own => own,
        };
        usize::try_from(at).unwrap_or(0) + headers + length
    }
}

/// Length of a transport header, as far as known.
fn transport_header(protocol: Protocol, data: &[u8]) -> usize {
    match protocol {
        Protocol::TCP => Tcp::header_len_of(data).map_or(Tcp::LEN, |length| length.max(Tcp::LEN)),
        Protocol::UDP => Udp::LEN,
        // Timestamps follow the header of timestamp requests and replies (RFC 792).
        Protocol::ICMP => match Icmp::of(data).map(|icmp| icmp.kind) {
            Some(TIMESTAMP | TIMESTAMP_REPLY) => Icmp::LEN + 12,
            Some(_) => Icmp::LEN,
            None => 0,
        },
        _ => 0,
    }
}
