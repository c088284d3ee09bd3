//! `EtherVLANEncap(ETHERTYPE, SRC, DST, VLAN_TCI, VLAN_PCP, VLAN_ID, NATIVE_VLAN)`: prepends an Ethernet header with a
//! VLAN tag to packets.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `ETHERTYPE`: the EtherType of the payload.
//! - `SRC`, `DST`: addresses.
//! - `VLAN_TCI`: the tag control information, or `ANNO` for that of the VLAN_TCI annotation.
//! - `VLAN_ID`, `VLAN_PCP`: its identifier and priority, instead of VLAN_TCI.
//! - `NATIVE_VLAN`: the VLAN whose frames get no tag; 0 by default, -1 for none.
//!
//! Handlers: `config` (read); `src`, `dst`, `ethertype`, `vlan_tci`, `vlan_id`, `vlan_pcp`, `native_vlan` (read,
//! write).
use super::vlan::Tag;
use crate::packet::mac_handler;
use crate::packet::{mac_text, mark_tagged};
use ringway_click::prelude::*;
use ringway_wire::{EtherType, Ethernet, Header, MacAddress, Vlan, vlan::Tagged};

pub static CLASS: Class =
    Class::new("EtherVLANEncap", || Box::<EtherVlanEncap>::default()).ports("1/1").live();

#[derive(Debug, Default)]
pub struct EtherVlanEncap {
    tag: Tag,
    source: MacAddress,
    destination: MacAddress,
    ethertype: u16,
}

impl Element for EtherVlanEncap {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("ETHERTYPE", &mut self.ethertype);
        args.read_mp("SRC", &mut self.source);
        args.read_mp("DST", &mut self.destination);
        self.tag.read(args, true);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        let Self { source, destination, .. } = *self;
        let header = |ethertype| Ethernet { destination, source, ethertype };
        let ethertype = EtherType::new(self.ethertype);
        burst.retain(|packet| {
            let tag = self.tag.of(packet);
            let grown = match tag {
                Some(tci) => packet.push_header(&Tagged {
                    ethernet: header(EtherType::VLAN),
                    tag: Vlan { tci: tci.into(), ethertype },
                }),
                None => packet.push_header(&header(ethertype)),
            };
            mark_tagged(packet, if tag.is_some() { Tagged::LEN } else { Ethernet::LEN });
            grown
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        let own = [
            Handler::read("config", |e: &Self| {
                let (source, destination) = (mac_text(e.source), mac_text(e.destination));
                format!("{:#06x}, {source}, {destination}, {}", e.ethertype, e.tag.configuration())
            }),
            mac_handler("src", |e: &mut Self| &mut e.source).error("parse error"),
            mac_handler("dst", |e: &mut Self| &mut e.destination).error("parse error"),
            Handler::field("ethertype", |e: &mut Self| &mut e.ethertype).error("parse error"),
        ];
        let tag: fn(&mut Self) -> &mut Tag = |e| &mut e.tag;
        own.into_iter().chain(Tag::handlers(tag)).chain([Tag::native_handler(tag)]).collect()
    }
}
