//! `StoreEtherAddress(ADDR, OFFSET, ANNO)`: writes an Ethernet address into packets.
//!
//! Ports: one input; one output, and optionally a push output for packets that are too short.
//!
//! Arguments:
//! - `ADDR`: the address.
//! - `OFFSET`: offset in the packet, or `src` or `dst` of an Ethernet header.
//! - `ANNO`: annotation with the address, instead of ADDR.
//!
//! Handlers: `addr` (read, write).
use super::address_offset;
use crate::packet::mac_handler;
use crate::packet::{divert, put};
use ringway_click::arg::{Annotation, KEYWORD, MANDATORY_POSITIONAL};
use ringway_click::prelude::*;
use ringway_wire::MacAddress;

pub static CLASS: Class =
    Class::new("StoreEtherAddress", || Box::<StoreEtherAddress>::default()).ports("1/1-2").processing("a/ah");

#[derive(Debug, Default)]
pub struct StoreEtherAddress {
    address: MacAddress,
    annotation: Option<usize>,
    offset: usize,
}

impl Element for StoreEtherAddress {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut annotation = Annotation::default();
        let from_anno = args.read_with("ANNO", KEYWORD, &mut annotation, super::address_annotation);
        let address =
            if from_anno && args.rest().len() == 1 { false } else { args.read_p("ADDR", &mut self.address) };
        args.read_with("OFFSET", MANDATORY_POSITIONAL, &mut self.offset, address_offset);
        args.complete()?;
        if address == from_anno {
            return Err(cx.error("must specify exactly one of ADDR/ANNO"));
        }
        self.annotation = from_anno.then_some(annotation.offset);
        Ok(())
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        divert(burst, cx, |packet, _| {
            let fits = self.offset.checked_add(6).is_some_and(|end| end <= packet.len());
            if fits {
                let address = self.annotation.map_or(self.address.0, |at| packet.notes().get(at));
                put(packet.data_mut(), self.offset, address);
            }
            fits
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [mac_handler("addr", |e: &mut Self| &mut e.address)].into()
    }
}
