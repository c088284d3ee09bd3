//! `IP6Encap(PROTO, SRC, DST, HLIM, CLASS)`: prepends an IPv6 header to packets.
//!
//! Ports: one input, one output, push or pull. Packets longer than 65535 bytes are dropped.
//!
//! Arguments:
//! - `PROTO`: the protocol, by number or name.
//! - `SRC`: the source address.
//! - `DST`: the destination, or `DST_ANNO` for the destination annotation.
//! - `HLIM`: hop limit; 250 by default.
//! - `CLASS`: traffic class; 0 by default.
//!
//! Handlers: `src`, `dst` (read, write).
use crate::ip::names::parse_protocol;
use core::net::Ipv6Addr;
use ringway_click::arg::{Arg, ArgError, MANDATORY_POSITIONAL, Scope};
use ringway_click::prelude::*;
use ringway_wire::{Header, Ipv6, Protocol};

pub static CLASS: Class =
    Class::new("IP6Encap", || Box::<Ip6Encap>::default()).ports("1/1").live().metadata(Metadata::Resolve);

#[derive(Debug)]
pub struct Ip6Encap {
    protocol: Protocol,
    source: Ipv6Addr,
    /// `None`: the destination annotation.
    destination: Option<Ipv6Addr>,
    hop_limit: u8,
    class: u8,
}

impl Default for Ip6Encap {
    fn default() -> Self {
        Self {
            protocol: Protocol(0),
            source: Ipv6Addr::UNSPECIFIED,
            destination: None,
            hop_limit: 250,
            class: 0,
        }
    }
}

/// Parses an address, or `DST_ANNO` for the destination annotation.
pub(super) fn destination(text: &str, scope: &Scope) -> Result<Option<Ipv6Addr>, ArgError> {
    if text == "DST_ANNO" { Ok(None) } else { Ipv6Addr::parse(text, scope).map(Some) }
}

/// The handler `dst` of an element that adds an IPv6 header.
pub(super) fn destination_handler<E: Element>(of: fn(&mut E) -> &mut Option<Ipv6Addr>) -> Handler {
    let read = Handler::read_with("dst", move |e: &mut E, _, _| {
        Ok(of(e).map_or("DST_ANNO".to_string(), |destination| destination.to_string()))
    });
    read.writes(move |e: &mut E, value, cx| {
        *of(e) = cx.parse_with(value, destination)?;
        Ok(())
    })
}

impl Element for Ip6Encap {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_with("PROTO", MANDATORY_POSITIONAL, &mut self.protocol, parse_protocol);
        args.read_mp("SRC", &mut self.source);
        args.read_with("DST", MANDATORY_POSITIONAL, &mut self.destination, destination);
        args.read("HLIM", &mut self.hop_limit);
        args.read("CLASS", &mut self.class);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| self.wrap(packet).is_some());
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::field("src", |e: &mut Self| &mut e.source).calm().argument(Some(1), "SRC"),
            destination_handler(|e: &mut Self| &mut e.destination).calm().argument(Some(2), "DST"),
        ]
        .into()
    }
}

impl Ip6Encap {
    fn wrap(&self, packet: &mut Packet) -> Option<()> {
        let noted = packet.notes().get::<16>(Annotations::DST_IP6);
        let destination = self.destination.map_or(noted, |destination| destination.octets());
        let mut header = Ipv6 {
            payload_length: u16::try_from(packet.len()).ok()?.into(),
            next_header: self.protocol,
            hop_limit: self.hop_limit,
            source: self.source.to_bits().into(),
            destination: destination.into(),
            ..Ipv6::EMPTY
        };
        header.set_traffic_class(self.class);
        if !packet.push_header(&header) {
            return None;
        }
        packet.notes_mut().set(Annotations::DST_IP6, destination);
        packet.set_network_header(0, Ipv6::LEN);
        Some(())
    }
}
