//! `VLANDecap(ANNO, ETHERTYPE)`: removes the VLAN tag from Ethernet frames and stores it in an annotation.
//!
//! Ports: one input, one output, push or pull. Frames without a tag pass unchanged.
//!
//! Arguments:
//! - `ANNO`: whether the VLAN_TCI annotation is set; true by default.
//! - `ETHERTYPE`: EtherType of a tag; 0x8100 by default.
//!
//! No handlers.
use super::vlan;
use crate::packet::mark_tagged;
use ringway_click::prelude::*;
use ringway_wire::{EtherType, Ethernet, Header, Vlan, vlan::Tagged};

pub static CLASS: Class = Class::new("VLANDecap", || Box::<VlanDecap>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct VlanDecap {
    annotate: bool,
    ethertype: u16,
}

impl Element for VlanDecap {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        (self.annotate, self.ethertype) = (true, EtherType::VLAN.get());
        args.read_p("ANNO", &mut self.annotate);
        args.read("ETHERTYPE", &mut self.ethertype);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.iter_mut().for_each(|packet| self.decap(packet));
    }
}

impl VlanDecap {
    fn decap(&self, packet: &mut Packet) {
        let frame = Tagged::of(packet.data());
        let tagged = frame.filter(|frame| frame.ethernet.ethertype.get() == self.ethertype);
        let tci = tagged.map(|frame| frame.tag.tci.get());
        if tci.is_some() {
            packet.data_mut().copy_within(0..12, Vlan::LEN);
            packet.pull(Vlan::LEN);
        }
        mark_tagged(packet, Ethernet::LEN);
        if self.annotate {
            vlan::annotate(packet, tci.unwrap_or(0));
        }
    }
}
