//! `GREDecap(PROTO, KEY)`: decapsulates GRE packets (RFC 2784; RFC 2890 for the key, and for the sequence number,
//! which is not checked). For IPv4 packets, the header is marked and the destination annotation set. The key, 0 if
//! there is none, is stored in the aggregate annotation.
//!
//! Ports: one input; one output, and optionally a push output for all other packets, unchanged: not GRE, another
//! protocol or key, an invalid checksum, invalid headers, IPv4 fragments. Packets need a marked IPv4 header.
//!
//! Arguments:
//! - `PROTO`: the EtherType of the payload; 0x0800 by default.
//! - `KEY`: only packets with this key; by default any or none.
//!
//! Handlers: `drops` (read): packets that were not decapsulated.
use super::decap::{Decap, Tunnel};
use crate::ip::transport::Transport;
use ringway_click::prelude::*;
use ringway_wire::checksum::checksum;
use ringway_wire::tunnel::Gre;
use ringway_wire::{EtherType, Header, Ipv4, Protocol, U32};

pub static CLASS: Class = Class::new("GREDecap", || Box::<Decap<GreDecap>>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .metadata(Metadata::Resolve);

#[derive(Debug)]
pub struct GreDecap {
    protocol: u16,
    key: Option<u32>,
}

impl Default for GreDecap {
    fn default() -> Self {
        Self { protocol: EtherType::IPV4.get(), key: None }
    }
}

impl GreDecap {
    /// Offset and length of the encapsulated packet, and the key.
    fn find(&self, packet: &Packet) -> Option<(usize, usize, u32)> {
        let ip = packet.network_data()?;
        let transport =
            Transport::of(ip).filter(|part| part.protocol == Protocol::GRE && !part.later && !part.more)?;
        let gre = transport.slice(ip)?;
        let &Gre { flags, protocol } = Gre::of(gre)?;
        let flags = flags.get();
        if flags & Gre::MUST_BE_ZERO != 0 || protocol.get() != self.protocol {
            return None;
        }
        let has = |flag: u16| flags & flag != 0;
        let key_at = Gre::LEN + if has(Gre::CHECKSUM) { 4 } else { 0 };
        let length = key_at + if has(Gre::KEY) { 4 } else { 0 } + if has(Gre::SEQUENCE) { 4 } else { 0 };
        let rest = gre.len().checked_sub(length)?;
        let key = has(Gre::KEY).then(|| U32::of(&gre[key_at..]).map_or(0, |key| key.get()));
        if (self.key.is_some() && key != self.key) || (has(Gre::CHECKSUM) && checksum(gre) != 0) {
            return None;
        }
        let at = usize::try_from(packet.network_header()?).ok()? + transport.header + length;
        Some((at, rest, key.unwrap_or(0)))
    }
}

impl Tunnel for GreDecap {
    fn read_arguments(&mut self, args: &mut Args) {
        args.read_p("PROTO", &mut self.protocol);
        args.read("KEY", &mut self.key);
    }

    fn strip(&self, packet: &mut Packet) -> bool {
        let Some((at, length, key)) = self.find(packet) else { return false };
        packet.pull(at);
        packet.take(packet.len().saturating_sub(length));
        packet.clear_headers();
        packet.notes_mut().set_u32(Annotations::AGGREGATE, key);
        let ip = Ipv4::parse(packet.data()).filter(|_| self.protocol == EtherType::IPV4.get());
        if let Some((header, destination)) = ip.map(|(ip, ..)| (ip.header_len(), ip.destination)) {
            packet.set_network_header(0, header);
            packet.notes_mut().set_dst_ip(destination.to_bytes());
        }
        true
    }
}
