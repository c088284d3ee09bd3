//! `GetEtherAddress(ANNO, OFFSET)`: copies an Ethernet address from packets to an annotation.
//!
//! Ports: one input; one output, and optionally one for packets that are too short.
//!
//! Arguments:
//! - `ANNO`: the annotation, 6 bytes.
//! - `OFFSET`: offset of the address in the packet, or `src` or `dst` of an Ethernet header.
//!
//! No handlers.
use super::address_offset;
use crate::packet::divert;
use ringway_click::arg::{Annotation, MANDATORY_POSITIONAL};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("GetEtherAddress", || Box::<GetEtherAddress>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .live();

#[derive(Debug, Default)]
pub struct GetEtherAddress {
    annotation: Annotation,
    offset: usize,
}

impl Element for GetEtherAddress {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_with("ANNO", MANDATORY_POSITIONAL, &mut self.annotation, super::address_annotation);
        args.read_with("OFFSET", MANDATORY_POSITIONAL, &mut self.offset, address_offset);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        divert(burst, cx, |packet, _| {
            let bytes = packet.data().get(self.offset..).and_then(<[u8]>::first_chunk::<6>).copied();
            if let Some(address) = bytes {
                packet.notes_mut().set(self.annotation.offset, address);
            }
            bytes.is_some()
        });
    }
}
