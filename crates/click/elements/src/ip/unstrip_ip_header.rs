//! `UnstripIPHeader`: restores the IPv4 header removed by StripIPHeader.
//!
//! Ports: one input, one output, push or pull. Packets without a marked header, or whose header is present, pass
//! unchanged.
//!
//! No arguments, no handlers.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("UnstripIPHeader", || Box::<UnstripIpHeader>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct UnstripIpHeader;

impl Element for UnstripIpHeader {
    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| match packet.network_header() {
            Some(at @ ..0) => packet.unpull(at.unsigned_abs()),
            _ => true,
        });
    }
}
