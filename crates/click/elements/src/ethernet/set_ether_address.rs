//! `SetEtherAddress(ADDR, ANNO)`: sets an annotation to an Ethernet address.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `ADDR`: the address.
//! - `ANNO`: the annotation, 6 bytes.
//!
//! Handlers: `addr` (read, write).
use crate::packet::mac_handler;
use ringway_click::arg::{Annotation, MANDATORY_POSITIONAL};
use ringway_click::prelude::*;
use ringway_wire::MacAddress;

pub static CLASS: Class =
    Class::new("SetEtherAddress", || Box::<SetEtherAddress>::default()).ports("1/1").live();

#[derive(Debug, Default)]
pub struct SetEtherAddress {
    address: MacAddress,
    annotation: Annotation,
}

impl Element for SetEtherAddress {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("ADDR", &mut self.address);
        args.read_with("ANNO", MANDATORY_POSITIONAL, &mut self.annotation, super::address_annotation);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        let (at, address) = (self.annotation.offset, self.address.0);
        burst.iter_mut().for_each(|packet| packet.notes_mut().set(at, address));
    }

    fn handlers(&self) -> Vec<Handler> {
        [mac_handler("addr", |e: &mut Self| &mut e.address)].into()
    }
}
