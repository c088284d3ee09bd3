//! `VLANEncap(VLAN_TCI, VLAN_PCP, VLAN_ID, NATIVE_VLAN, ETHERTYPE)`: inserts a VLAN tag into Ethernet frames.
//!
//! Ports: one input, one output, push or pull. Frames too short for their addresses are dropped.
//!
//! Arguments:
//! - `VLAN_TCI`: the tag control information, or `ANNO` for that of the VLAN_TCI annotation.
//! - `VLAN_ID`, `VLAN_PCP`: its identifier and priority, instead of VLAN_TCI.
//! - `NATIVE_VLAN`: the VLAN whose frames get no tag; 0 by default, -1 for none.
//! - `ETHERTYPE`: EtherType of the tag; 0x8100 by default.
//!
//! Handlers: `config` (read); `vlan_tci`, `vlan_id`, `vlan_pcp`, `native_vlan`, `ethertype` (read, write).
use super::vlan::Tag;
use crate::packet::mark_tagged;
use ringway_click::prelude::*;
use ringway_wire::{EtherType, Ethernet, Header, U16, Vlan, vlan::Tagged};

pub static CLASS: Class = Class::new("VLANEncap", || Box::<VlanEncap>::default()).ports("1/1").live();

#[derive(Debug, Default)]
pub struct VlanEncap {
    tag: Tag,
    ethertype: u16,
}

impl Element for VlanEncap {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        self.ethertype = EtherType::VLAN.get();
        self.tag.read(args, true);
        args.read("ETHERTYPE", &mut self.ethertype);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| {
            let tag = self.tag.of(packet);
            if let Some(tci) = tag {
                if packet.len() < 12 || !packet.push(Vlan::LEN) {
                    return false;
                }
                let data = packet.data_mut();
                data.copy_within(4..16, 0);
                if let Some((header, rest)) = Ethernet::split_mut(data)
                    && let Some(tag) = U16::of_mut(rest)
                {
                    (header.ethertype, *tag) = (EtherType::new(self.ethertype), tci.into());
                }
            }
            mark_tagged(packet, if tag.is_some() { Tagged::LEN } else { Ethernet::LEN });
            true
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        let tag: fn(&mut Self) -> &mut Tag = |e| &mut e.tag;
        let config = Handler::read("config", |e: &Self| match EtherType::new(e.ethertype) {
            EtherType::VLAN => e.tag.configuration(),
            ethertype => e.tag.configuration() + &alloc::format!(", ETHERTYPE {ethertype:?}"),
        });
        let ethertype = Handler::field("ethertype", |e: &mut Self| &mut e.ethertype).error("parse error");
        [config].into_iter().chain(Tag::handlers(tag)).chain([Tag::native_handler(tag), ethertype]).collect()
    }
}
