//! `StripEtherVLANHeader(NATIVE_VLAN)`: removes the Ethernet header, with its VLAN tag if there is one, and stores the
//! tag in the VLAN_TCI annotation.
//!
//! Ports: one input; one output, and optionally a push output for frames without a tag if there is no native VLAN.
//!
//! Arguments:
//! - `NATIVE_VLAN`: VLAN of frames without a tag; 0 by default. -1: such frames are bad.
//!
//! No handlers.
use super::vlan;
use crate::packet::{bounded, divert};
use ringway_click::arg::POSITIONAL;
use ringway_click::prelude::*;
use ringway_wire::{EtherType, Ethernet, Header, vlan::Tagged};

pub static CLASS: Class = Class::new("StripEtherVLANHeader", || Box::<StripEtherVlanHeader>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .live();

#[derive(Debug, Default)]
pub struct StripEtherVlanHeader {
    native: i32,
}

impl Element for StripEtherVlanHeader {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_with("NATIVE_VLAN", POSITIONAL, &mut self.native, bounded(-1, 0xfff));
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        divert(burst, cx, |packet, _| {
            let frame = Tagged::of(packet.data()).filter(|frame| frame.ethernet.ethertype == EtherType::VLAN);
            let (tci, header) = if let Some(Tagged { tag, .. }) = frame {
                (tag.tci.get(), Tagged::LEN)
            } else if let Ok(native) = u16::try_from(self.native) {
                (native, Ethernet::LEN)
            } else {
                return false;
            };
            vlan::annotate(packet, tci);
            packet.set_mac_header(0);
            packet.pull(header);
            true
        });
    }
}
