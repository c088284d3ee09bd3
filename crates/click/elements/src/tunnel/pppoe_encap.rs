//! `PPPoEEncap(SRC, DST, SESSION)`: prepends Ethernet, PPPoE and PPP headers to IPv4 packets (RFC 2516).
//!
//! Ports: one input, one output, push or pull. Packets of more than 65533 bytes are dropped; packets of more than 1492
//! bytes give frames that are too long for Ethernet, so fragment them before.
//!
//! Arguments:
//! - `SRC`, `DST`: Ethernet addresses.
//! - `SESSION`: the session's number.
//!
//! Handlers: `src`, `dst`, `session` (read, write).
use super::pppoe;
use crate::packet::mac_handler;
use ringway_click::prelude::*;
use ringway_wire::MacAddress;

pub static CLASS: Class =
    Class::new("PPPoEEncap", || Box::<PppoeEncap>::default()).ports("1/1").live().metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct PppoeEncap {
    source: MacAddress,
    destination: MacAddress,
    session: u16,
}

impl Element for PppoeEncap {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("SRC", &mut self.source);
        args.read_mp("DST", &mut self.destination);
        args.read_mp("SESSION", &mut self.session);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| pppoe::wrap(packet, self.destination, self.source, self.session));
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            mac_handler("src", |e: &mut Self| &mut e.source),
            mac_handler("dst", |e: &mut Self| &mut e.destination),
            Handler::field("session", |e: &mut Self| &mut e.session),
        ]
        .into()
    }
}
