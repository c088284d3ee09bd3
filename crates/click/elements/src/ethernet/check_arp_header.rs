//! `CheckARPHeader(OFFSET, VERBOSE, DETAILS)`: passes only valid ARP packets, and marks their header.
//!
//! Ports: one input; one output, and optionally a push output for bad packets.
//!
//! Arguments:
//! - `OFFSET`: offset of the header in the packet; 0 by default.
//! - `VERBOSE`: reports each bad packet, not only the first.
//! - `DETAILS`: counts bad packets by reason.
//!
//! Handlers: `drops`, and with DETAILS `drop_details` (read).
use crate::check::Check;
use ringway_click::prelude::*;
use ringway_wire::{Arp, EtherType, Header, arp};

pub static CLASS: Class = Class::new("CheckARPHeader", || Box::<CheckArpHeader>::default())
    .ports("1/1-2")
    .processing("a/ah")
    // Packets too short for their addresses must not be in segments.
    .metadata(Metadata::Resolve);

const REASONS: &[&str] =
    &["tiny packet", "too small for addresses", "bad hardware type/length", "bad protocol type/length"];

#[derive(Debug, Default)]
pub struct CheckArpHeader {
    offset: u32,
    check: Check,
}

impl Element for CheckArpHeader {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_p("OFFSET", &mut self.offset);
        self.check = Check::read(args, "ARP", REASONS);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let offset = self.offset as usize;
        self.check.filter(burst, cx, |packet| check(packet, offset));
    }

    fn handlers(&self) -> Vec<Handler> {
        self.check.handlers(|e: &mut Self| &mut e.check)
    }
}

fn check(packet: &mut Packet, offset: usize) -> Result<(), usize> {
    let data = packet.data().get(offset..).unwrap_or_default();
    if data.len() < 8 {
        return Err(0);
    }
    let Arp { hardware, protocol, hardware_len, protocol_len, .. } = Arp::padded(data);
    let length = 8 + 2 * usize::from(hardware_len) + 2 * usize::from(protocol_len);
    if data.len() < length {
        return Err(1);
    }
    if hardware == arp::ETHERNET && hardware_len != 6 {
        return Err(2);
    }
    let expected = match protocol {
        EtherType::IPV4 => 4,
        EtherType::IPV6 => 16,
        _ => protocol_len,
    };
    if protocol_len != expected {
        return Err(3);
    }
    packet.set_network_header(offset as isize, length);
    Ok(())
}
