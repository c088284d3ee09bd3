//! `CheckICMPHeader(VERBOSE, DETAILS)`: passes only IPv4 packets with a valid ICMP header and checksum.
//!
//! Ports: one input; one output, and optionally a push output for bad packets.
//!
//! Arguments:
//! - `VERBOSE`: reports each bad packet, not only the first.
//! - `DETAILS`: counts bad packets by reason.
//!
//! Handlers: `drops`, and with DETAILS `drop_details` (read). The IPv4 header must be marked and checked before.
use crate::check::{Header, HeaderCheck};
use crate::ip::transport::Transport;
use ringway_click::prelude::*;
use ringway_wire::icmp::v4;
use ringway_wire::{Protocol, checksum};

pub static CLASS: Class = Class::new("CheckICMPHeader", || Box::<HeaderCheck<Rules>>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .metadata(Metadata::Resolve);

/// The check of ICMP headers.
struct Rules;

impl Header for Rules {
    const NAME: &'static str = "ICMP";
    const REASONS: &'static [&'static str] = &["not ICMP", "bad packet length", "bad ICMP checksum"];

    fn check(packet: &mut Packet) -> Result<(), usize> {
        let data = packet.network_data().unwrap_or_default();
        let transport =
            Transport::of(data).filter(|transport| transport.protocol == Protocol::ICMP).ok_or(0usize)?;
        let message = data.get(transport.header..).unwrap_or_default();
        let length = message.len();
        let good = match message.first() {
            // Errors quote an IP header and eight bytes (RFC 792).
            Some(kind) if v4::is_error(*kind) => length >= 36,
            Some(&(v4::TIMESTAMP | v4::TIMESTAMP_REPLY)) => length == 20,
            Some(&(v4::INFORMATION | v4::INFORMATION_REPLY)) => length == 8,
            _ => length >= 8,
        };
        if !good {
            return Err(1);
        }
        if checksum::checksum(message) == 0 { Ok(()) } else { Err(2) }
    }
}
