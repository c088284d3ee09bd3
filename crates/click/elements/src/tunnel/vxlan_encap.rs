//! `VXLANEncap(SRC, DST, VNI, DPORT, TTL)`: prepends VXLAN, UDP and IPv4 headers to Ethernet frames (RFC 7348).
//!
//! The UDP source port is a hash of the frame's Ethernet addresses, and of its IPv4 addresses and ports, so that a
//! flow takes one path and different flows different ones. The UDP checksum is 0, as required by the RFC.
//!
//! Ports: one input, one output, push or pull. Frames that would be longer than 65535 bytes are dropped.
//!
//! Arguments:
//! - `SRC`: the source address.
//! - `DST`: the destination, or `DST_ANNO` for the destination annotation.
//! - `VNI`: the network's identifier, 24 bits.
//! - `DPORT`: the destination port; 4789 by default.
//! - `TTL`: time to live; 64 by default.
//!
//! Handlers: `src`, `dst`, `vni` (read, write).
use crate::flow::table::Key;
use crate::ip::encap::Encap;
use crate::packet::bounded;
use ringway_click::arg::MANDATORY_POSITIONAL;
use ringway_click::prelude::*;
use ringway_wire::tunnel::Vxlan;
use ringway_wire::{EtherType, Ethernet, Header, Ipv4, MacAddress, Protocol, U16, Udp};

pub static CLASS: Class =
    Class::new("VXLANEncap", || Box::<VxlanEncap>::default()).ports("1/1").live().metadata(Metadata::Resolve);

/// The largest identifier.
pub(super) const LARGEST: i128 = (1 << 24) - 1;

#[derive(Debug)]
pub struct VxlanEncap {
    encap: Encap,
    vni: u32,
    port: u16,
}

impl Default for VxlanEncap {
    fn default() -> Self {
        Self {
            encap: Encap { protocol: Protocol::UDP, ttl: 64, ..Encap::default() },
            vni: 0,
            port: Vxlan::PORT,
        }
    }
}

/// A source port from 49152 on, the same for all frames of a flow.
fn source_port(frame: &[u8]) -> u16 {
    let mut hash = 0u64;
    let mut add = |bytes: &[u8]| {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            hash = u64::from_le_bytes(word).hash(hash);
        }
    };
    add(<[MacAddress; 2]>::of(frame).map_or(&[], Header::bytes));
    if let Some((ethernet, rest)) = Ethernet::split(frame)
        && let (EtherType::IPV4, Some(ip)) = (ethernet.ethertype, Ipv4::of(rest))
    {
        add([ip.source, ip.destination].bytes());
        add(ip.protocol.bytes());
        if !ip.is_fragment() {
            add(rest.get(ip.header_len()..).and_then(<[U16; 2]>::of).map_or(&[], Header::bytes));
        }
    }
    0xc000 | hash as u16
}

impl Element for VxlanEncap {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("SRC", &mut self.encap.source);
        args.read_mp("DST", &mut self.encap.destination);
        args.read_with("VNI", MANDATORY_POSITIONAL, &mut self.vni, bounded(0, LARGEST));
        args.read("DPORT", &mut self.port);
        args.read("TTL", &mut self.encap.ttl);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        let (vni, port) = (self.vni << 8, self.port);
        burst.retain(|packet| {
            let source = source_port(packet.data());
            self.encap.wrap(packet, Udp::LEN + Vxlan::LEN, |rest, _| {
                let length = rest.len() as u16;
                let Some((udp, rest)) = Udp::split_mut(rest) else { return };
                *udp = Udp {
                    source_port: source.into(),
                    destination_port: port.into(),
                    length: length.into(),
                    checksum: 0.into(),
                };
                if let Some(vxlan) = Vxlan::of_mut(rest) {
                    *vxlan = Vxlan { flags: Vxlan::VALID, reserved: [0; 3], vni: vni.into() };
                }
            })
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        let vni = Handler::read("vni", |e: &Self| e.vni).writes(|e: &mut Self, value, cx| {
            e.vni = cx.parse_with(value, bounded(0, LARGEST))?;
            Ok(())
        });
        Encap::handlers(|e: &mut Self| &mut e.encap).into_iter().chain([vni]).collect()
    }
}
