//! `CheckTCPHeader(VERBOSE, DETAILS)`: passes only IPv4 packets with a valid TCP header and checksum.
//!
//! Ports: one input; one output, and optionally a push output for bad packets.
//!
//! Arguments:
//! - `VERBOSE`: reports each bad packet, not only the first.
//! - `DETAILS`: counts bad packets by reason.
//!
//! Handlers: `drops`, and with DETAILS `drop_details` (read). The IPv4 header must be marked and checked before.
use super::transport::Transport;
use crate::check::{Header, HeaderCheck};
use ringway_click::prelude::*;
use ringway_wire::{Protocol, Tcp};

pub static CLASS: Class = Class::new("CheckTCPHeader", || Box::<HeaderCheck<Rules>>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .metadata(Metadata::Resolve);

/// The check of TCP headers.
struct Rules;

impl Header for Rules {
    const NAME: &'static str = "TCP";
    const REASONS: &'static [&'static str] = &["not TCP", "bad packet length", "bad TCP checksum"];

    fn check(packet: &mut Packet) -> Result<(), usize> {
        let data = packet.network_data().unwrap_or_default();
        let transport =
            Transport::of(data).filter(|transport| transport.protocol == Protocol::TCP).ok_or(0usize)?;
        let bytes = transport.slice(data).ok_or(1usize)?;
        if Tcp::parse(bytes).is_none() {
            return Err(1);
        }
        let mut sum = transport.pseudo(bytes.len());
        sum.add(bytes);
        if sum.is_valid() { Ok(()) } else { Err(2) }
    }
}
