//! `CheckTCPHeader(VERBOSE, DETAILS)`: lets only IPv4 packets with a sound TCP header and checksum pass.
//!
//! Ports: one input; one output, and optionally a push output for bad packets.
//!
//! Arguments:
//! - `VERBOSE`: says each bad packet, not only the first.
//! - `DETAILS`: counts bad packets by reason.
//!
//! Handlers: `drops`, and with DETAILS `drop_details` (read). The IPv4 header must be noted and checked already.
use super::transport::Transport;
use crate::check::{Header, HeaderCheck};
use crate::packet::u16_at;
use alloc::boxed::Box;
use ringway_click::{Class, Metadata, Packet};

/// Facts.
pub static CLASS: Class = Class::new("CheckTCPHeader", || Box::<HeaderCheck<Tcp>>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .metadata(Metadata::Resolve);

/// Its rules.
struct Tcp;

impl Header for Tcp {
    const NAME: &'static str = "TCP";
    const REASONS: &'static [&'static str] = &["not TCP", "bad packet length", "bad TCP checksum"];

    fn check(packet: &mut Packet) -> Result<(), usize> {
        let data = packet.network_data().unwrap_or_default();
        let transport = Transport::of(data).filter(|transport| transport.protocol == 6).ok_or(0usize)?;
        let bytes = transport.slice(data).ok_or(1usize)?;
        let header = usize::from(u16_at(bytes, 12) >> 12) * 4;
        if header < 20 || bytes.len() < header {
            return Err(1);
        }
        let mut sum = transport.pseudo(bytes.len());
        sum.add(bytes);
        if sum.is_valid() { Ok(()) } else { Err(2) }
    }
}
