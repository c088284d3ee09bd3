//! `HostEtherFilter(ETHER, DROP_OWN, DROP_OTHER, OFFSET)`: passes Ethernet frames for this host, and sets the packet
//! type annotation.
//!
//! Ports: one input; one output, and optionally a push output for frames that are filtered out.
//!
//! Arguments:
//! - `ETHER`: this host's address.
//! - `DROP_OWN`: whether frames from this address are filtered out; false by default.
//! - `DROP_OTHER`: whether frames for other hosts are; true by default.
//! - `OFFSET`: offset of the header in the packet; 0 by default.
//!
//! Handlers: `ether` (read, write). The packet type becomes host, broadcast, multicast or other host. Frames too short
//! for their header are filtered out.
use crate::packet::divert;
use crate::packet::mac_handler;
use ringway_click::PacketType;
use ringway_click::prelude::*;
use ringway_wire::{Ethernet, Header, MacAddress};

pub static CLASS: Class = Class::new("HostEtherFilter", || Box::<HostEtherFilter>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .live();

#[derive(Debug, Default)]
pub struct HostEtherFilter {
    address: MacAddress,
    drop_own: bool,
    drop_other: bool,
    offset: u32,
}

impl Element for HostEtherFilter {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        self.drop_other = true;
        args.read_mp("ETHER", &mut self.address);
        args.read_p("DROP_OWN", &mut self.drop_own);
        args.read_p("DROP_OTHER", &mut self.drop_other);
        args.read("OFFSET", &mut self.offset);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        divert(burst, cx, |packet, _| self.check(packet));
    }

    fn handlers(&self) -> Vec<Handler> {
        [mac_handler("ether", |e: &mut Self| &mut e.address)].into()
    }
}

impl HostEtherFilter {
    fn check(&self, packet: &mut Packet) -> bool {
        let data = packet.data().get(self.offset as usize..).unwrap_or_default();
        let Some(frame) = Ethernet::of(data) else { return false };
        let Ethernet { source, destination, .. } = *frame;
        let kind = match destination {
            _ if destination == self.address => PacketType::Host,
            MacAddress::BROADCAST => PacketType::Broadcast,
            _ if destination.is_group() => PacketType::Multicast,
            _ => PacketType::OtherHost,
        };
        packet.notes_mut().packet_type = kind;
        let own = self.drop_own && source == self.address;
        !own && !(self.drop_other && kind == PacketType::OtherHost)
    }
}
