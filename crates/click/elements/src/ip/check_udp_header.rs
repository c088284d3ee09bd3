//! `CheckUDPHeader(VERBOSE, DETAILS)`: passes only IPv4 packets with a valid UDP header and checksum.
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
use ringway_wire::{Header as _, Protocol, Udp};

pub static CLASS: Class = Class::new("CheckUDPHeader", || Box::<HeaderCheck<Rules>>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .metadata(Metadata::Resolve);

/// The check of UDP headers.
struct Rules;

impl Header for Rules {
    const NAME: &'static str = "UDP";
    const REASONS: &'static [&'static str] = &["not UDP", "bad packet length", "bad UDP checksum"];
    const NAMED: bool = false;

    fn check(packet: &mut Packet) -> Result<(), usize> {
        let data = packet.network_data().unwrap_or_default();
        let transport =
            Transport::of(data).filter(|transport| transport.protocol == Protocol::UDP).ok_or(0usize)?;
        let bytes = transport.slice(data).ok_or(1usize)?;
        let udp = Udp::of(bytes).ok_or(1usize)?;
        let length = usize::from(udp.length.get());
        if length < Udp::LEN || length > bytes.len() {
            return Err(1);
        }
        if udp.checksum.get() != 0 {
            let mut sum = transport.pseudo(length);
            sum.add(&bytes[..length]);
            if !sum.is_valid() {
                return Err(2);
            }
        }
        Ok(())
    }
}
