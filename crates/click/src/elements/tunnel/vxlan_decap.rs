//! `VXLANDecap(VNI, DPORT)`: takes Ethernet frames out of VXLAN packets (RFC 7348). The network's identifier is noted
//! in the aggregate annotation.
//!
//! Ports: one input; one output, and optionally a push output for all other packets, unchanged: not VXLAN, another
//! network, headers that lie, IPv4 fragments. Packets need a noted IPv4 header; the UDP checksum is not looked at.
//!
//! Arguments:
//! - `VNI`: only this network's frames; all by default.
//! - `DPORT`: the destination port; 4789 by default.
//!
//! Handlers: `drops` (read): packets that were none.
use super::vxlan_encap::{HEADER, LARGEST, PORT, VALID};
use crate::arg::{Args, POSITIONAL};
use crate::elements::ip::transport::Transport;
use crate::elements::packet::{bounded, divert, u16_at, u32_at};
use crate::{
    Annotations, Class, Context, Element, Failed, Handler, HandlerError, Metadata, Packet, PacketBurst,
};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Facts.
pub static CLASS: Class = Class::new("VXLANDecap", || Box::<VxlanDecap>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .metadata(Metadata::Resolve);

const UDP: u8 = 17;
/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;

/// See the module.
#[derive(Debug)]
pub struct VxlanDecap {
    vni: Option<u32>,
    port: u16,
    drops: u64,
}

impl Default for VxlanDecap {
    fn default() -> Self {
        Self { vni: None, port: PORT, drops: 0 }
    }
}

impl VxlanDecap {
    /// Where in the packet the frame begins, how long it is, and its network.
    fn find(&self, packet: &Packet) -> Option<(usize, usize, u32)> {
        let ip = packet.network_data()?;
        let transport = Transport::of(ip).filter(|part| part.protocol == UDP && !part.later && !part.more)?;
        let udp = transport.slice(ip)?;
        let length = usize::from(u16_at(udp, 4));
        if u16_at(udp, 2) != self.port || length > udp.len() || length < 8 + HEADER + ETHERNET {
            return None;
        }
        let vni = u32_at(udp, 12) >> 8;
        if udp[8] & VALID == 0 || self.vni.is_some_and(|own| own != vni) {
            return None;
        }
        let at = usize::try_from(packet.network_header()?).ok()? + transport.header + 8 + HEADER;
        Some((at, length - 8 - HEADER, vni))
    }

    fn decap(&self, packet: &mut Packet) -> bool {
        let Some((at, length, vni)) = self.find(packet) else { return false };
        packet.pull(at);
        packet.take(packet.len().saturating_sub(length));
        packet.clear_headers();
        packet.set_mac_header(0);
        packet.notes_mut().set_u32(Annotations::AGGREGATE, vni);
        true
    }
}

impl Element for VxlanDecap {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_with("VNI", POSITIONAL, &mut self.vni, |text, scope| {
            bounded(0, LARGEST)(text, scope).map(Some)
        });
        args.read("DPORT", &mut self.port);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        divert(burst, cx, |packet, _| {
            let good = self.decap(packet);
            self.drops += u64::from(!good);
            good
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read("drops")].into()
    }

    fn read(&mut self, _: &str, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(self.drops.to_string())
    }
}
