//! `VXLANDecap(VNI, DPORT)`: decapsulates Ethernet frames of VXLAN packets (RFC 7348). The network identifier is
//! stored in the aggregate annotation.
//!
//! Ports: one input; one output, and optionally a push output for all other packets, unchanged: not VXLAN, another
//! network, invalid headers, IPv4 fragments. Packets need a marked IPv4 header; the UDP checksum is not checked.
//!
//! Arguments:
//! - `VNI`: passes only frames of this network; all by default.
//! - `DPORT`: the destination port; 4789 by default.
//!
//! Handlers: `drops` (read): packets that were not decapsulated.
use super::decap::{Decap, Tunnel};
use super::vxlan_encap::LARGEST;
use crate::ip::transport::Transport;
use crate::packet::bounded;
use ringway_click::arg::POSITIONAL;
use ringway_click::prelude::*;
use ringway_wire::tunnel::Vxlan;
use ringway_wire::{Ethernet, Header, Protocol, Udp};

pub static CLASS: Class = Class::new("VXLANDecap", || Box::<Decap<VxlanDecap>>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .metadata(Metadata::Resolve);

#[derive(Debug)]
pub struct VxlanDecap {
    vni: Option<u32>,
    port: u16,
}

impl Default for VxlanDecap {
    fn default() -> Self {
        Self { vni: None, port: Vxlan::PORT }
    }
}

impl VxlanDecap {
    /// Offset and length of the encapsulated frame, and its network identifier.
    fn find(&self, packet: &Packet) -> Option<(usize, usize, u32)> {
        let ip = packet.network_data()?;
        let transport =
            Transport::of(ip).filter(|part| part.protocol == Protocol::UDP && !part.later && !part.more)?;
        let segment = transport.slice(ip)?;
        let (udp, rest) = Udp::split(segment)?;
        let (length, headers) = (usize::from(udp.length.get()), Udp::LEN + Vxlan::LEN);
        if udp.destination_port != self.port || length > segment.len() || length < headers + Ethernet::LEN {
            return None;
        }
        let vxlan = Vxlan::of(rest)?;
        let vni = vxlan.vni.get() >> 8;
        if vxlan.flags & Vxlan::VALID == 0 || self.vni.is_some_and(|own| own != vni) {
            return None;
        }
        let at = usize::try_from(packet.network_header()?).ok()? + transport.header + headers;
        Some((at, length - headers, vni))
    }
}

impl Tunnel for VxlanDecap {
    fn read_arguments(&mut self, args: &mut Args) {
        args.read_with("VNI", POSITIONAL, &mut self.vni, |text, scope| {
            bounded(0, LARGEST)(text, scope).map(Some)
        });
        args.read("DPORT", &mut self.port);
    }

    fn strip(&self, packet: &mut Packet) -> bool {
        let Some((at, length, vni)) = self.find(packet) else { return false };
        packet.pull(at);
        packet.take(packet.len().saturating_sub(length));
        packet.clear_headers();
        packet.set_mac_header(0);
        packet.notes_mut().set_u32(Annotations::AGGREGATE, vni);
        true
    }
}
