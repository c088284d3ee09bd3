//! `UnstripTransportHeader`: restores the header that StripTransportHeader removed (FastClick).
//!
//! Ports: one input, one output, push or pull. Packets without a marked header, or with the header still in place, pass
//! unchanged.
//!
//! No arguments, no handlers.
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("UnstripTransportHeader", || Box::<UnstripTransportHeader>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct UnstripTransportHeader;

impl Element for UnstripTransportHeader {
    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| match packet.transport_header() {
            Some(at @ ..0) => packet.unpull(at.unsigned_abs()),
            _ => true,
        });
    }
}
