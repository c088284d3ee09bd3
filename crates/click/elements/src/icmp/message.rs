//! Construction of ICMP messages from packets.
use crate::ip::encap::{Destination, Encap};
use core::net::Ipv4Addr;
use ringway_click::prelude::*;
use ringway_wire::icmp::v4;
use ringway_wire::{Header, Icmp, Protocol, Sum};

#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) encap: Encap,
    pub(crate) kind: u8,
    pub(crate) code: u8,
    pub(crate) id: u16,
    pub(crate) sequence: u16,
}

impl Default for Message {
    fn default() -> Self {
        let encap = Encap { protocol: Protocol::ICMP, ttl: 255, id: 1, ..Encap::default() };
        Self { encap, kind: v4::ECHO, code: 0, id: 0, sequence: 1 }
    }
}

impl Message {
    pub(crate) fn read_addresses(&mut self, args: &mut Args) {
        let mut destination = Ipv4Addr::UNSPECIFIED;
        args.read_mp("SRC", &mut self.encap.source);
        args.read_mp("DST", &mut destination);
        self.encap.destination = Destination::Address(destination);
    }

    /// The handlers `src` and `dst` of an element with a message.
    pub(crate) fn handlers<E: Element>(message: fn(&mut E) -> &mut Self) -> [Handler; 2] {
        let source = Handler::field("src", move |e: &mut E| &mut message(e).encap.source);
        let destination =
            Handler::read_with("dst", move |e: &mut E, _, _| Ok(message(e).encap.destination.to_string()));
        let destination = destination.writes(move |e: &mut E, value, cx| {
            message(e).encap.destination = Destination::Address(cx.parse(value)?);
            Ok(())
        });
        [source, destination].map(|handler| handler.calm().error("expected IP address"))
    }

    /// Prepends the headers to a packet; false if it would be too long.
    pub(crate) fn wrap(&mut self, packet: &mut Packet) -> bool {
        // Types with identifier and sequence number (RFC 792, RFC 950).
        let numbered = matches!(self.kind, v4::ECHO_REPLY | v4::ECHO | v4::TIMESTAMP..=v4::MASK_REPLY);
        let (id, sequence) = if numbered { (self.id, self.sequence) } else { (0, 0) };
        let (kind, code) = (self.kind, self.code);
        self.sequence = self.sequence.wrapping_add(1);
        self.encap.wrap(packet, Icmp::LEN, |message, _| {
            if let Some(icmp) = Icmp::of_mut(message) {
                let (identifier, sequence_number) = (id.into(), sequence.into());
                *icmp = Icmp { kind, code, checksum: 0.into(), identifier, sequence_number };
            }
            let _ = Icmp::fill_checksum(message, Sum::new());
        })
    }
}
