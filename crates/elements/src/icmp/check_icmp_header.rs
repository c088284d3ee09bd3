//! `CheckICMPHeader(VERBOSE, DETAILS)`: lets only IPv4 packets with a sound ICMP header and checksum pass.
//!
//! Ports: one input; one output, and optionally a push output for bad packets.
//!
//! Arguments:
//! - `VERBOSE`: says each bad packet, not only the first.
//! - `DETAILS`: counts bad packets by reason.
//!
//! Handlers: `drops`, and with DETAILS `drop_details` (read). The IPv4 header must be noted and checked already.
use crate::check::{Header, HeaderCheck};
use crate::ip::transport::Transport;
use alloc::boxed::Box;
use ringway_click::{Class, Metadata, Packet};
use ringway_wire::checksum;

/// Facts.
pub static CLASS: Class = Class::new("CheckICMPHeader", || Box::<HeaderCheck<Icmp>>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .metadata(Metadata::Resolve);

/// Its rules.
struct Icmp;

impl Header for Icmp {
    const NAME: &'static str = "ICMP";
    const REASONS: &'static [&'static str] = &["not ICMP", "bad packet length", "bad ICMP checksum"];

    fn check(packet: &mut Packet) -> Result<(), usize> {
        let data = packet.network_data().unwrap_or_default();
        let transport = Transport::of(data).filter(|transport| transport.protocol == 1).ok_or(0usize)?;
        let message = data.get(transport.header..).unwrap_or_default();
        let length = message.len();
        let good = match message.first() {
            // Errors quote an IP header and eight bytes (RFC 792).
            Some(3 | 4 | 5 | 11 | 12) => length >= 36,
            Some(13 | 14) => length == 20,
            Some(15 | 16) => length == 8,
            _ => length >= 8,
        };
        if !good {
            return Err(1);
        }
        if checksum::checksum(message) == 0 { Ok(()) } else { Err(2) }
    }
}
