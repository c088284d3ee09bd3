//! `GREEncap(SRC, DST, PROTO, KEY, CHECKSUM, TTL)`: prepends GRE and IPv4 headers to packets (RFC 2784; RFC 2890 for
//! the key).
//!
//! Ports: one input, one output, push or pull. Packets that would be longer than 65535 bytes are dropped.
//!
//! Arguments:
//! - `SRC`: the source address.
//! - `DST`: the destination, or `DST_ANNO` for the destination annotation.
//! - `PROTO`: the EtherType of the payload; 0x0800 by default.
//! - `KEY`: a number agreed upon by both ends; none by default.
//! - `CHECKSUM`: whether a checksum over header and payload is added; false by default.
//! - `TTL`: time to live; 64 by default.
//!
//! Handlers: `src`, `dst` (read, write).
use crate::ip::encap::Encap;
use ringway_click::prelude::*;
use ringway_wire::checksum::checksum;
use ringway_wire::tunnel::Gre;
use ringway_wire::{EtherType, Header, Protocol, U16, U32};

pub static CLASS: Class =
    Class::new("GREEncap", || Box::<GreEncap>::default()).ports("1/1").metadata(Metadata::Resolve).live();

#[derive(Debug)]
pub struct GreEncap {
    encap: Encap,
    protocol: u16,
    key: Option<u32>,
    checksum: bool,
}

impl Default for GreEncap {
    fn default() -> Self {
        let encap = Encap { protocol: Protocol::GRE, ttl: 64, ..Encap::default() };
        Self { encap, protocol: EtherType::IPV4.get(), key: None, checksum: false }
    }
}

impl Element for GreEncap {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("SRC", &mut self.encap.source);
        args.read_mp("DST", &mut self.encap.destination);
        args.read_p("PROTO", &mut self.protocol);
        args.read("KEY", &mut self.key);
        args.read("CHECKSUM", &mut self.checksum);
        args.read("TTL", &mut self.encap.ttl);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        let Self { encap, protocol, key, checksum: summed } = self;
        let header = Gre::LEN + if *summed { 4 } else { 0 } + if key.is_some() { 4 } else { 0 };
        let mut flags = if *summed { Gre::CHECKSUM } else { 0 };
        flags |= if key.is_some() { Gre::KEY } else { 0 };
        let start = Gre { flags: flags.into(), protocol: EtherType::new(*protocol) };
        encap.wrap_all(burst, header, |gre, _| {
            gre[..Gre::LEN].copy_from_slice(start.bytes());
            gre[Gre::LEN..header].fill(0);
            if let (Some(key), Some(place)) = (&*key, U32::of_mut(&mut gre[header - 4..])) {
                place.set(*key);
            }
            if *summed {
                let sum = checksum(gre);
                if let Some(place) = U16::of_mut(&mut gre[Gre::LEN..]) {
                    place.set(sum);
                }
            }
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        Encap::handlers(|e: &mut Self| &mut e.encap).into()
    }
}
