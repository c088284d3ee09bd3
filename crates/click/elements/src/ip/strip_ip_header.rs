//! `StripIPHeader`: removes the IPv4 header, and the bytes before it.
//!
//! Ports: one input, one output, push or pull. Packets without a marked header pass unchanged.
//!
//! No arguments, no handlers. UnstripIPHeader restores the header.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("StripIPHeader", || Box::<StripIpHeader>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct StripIpHeader;

impl Element for StripIpHeader {
    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            if let Some(at @ 0..) = packet.transport_header() {
                packet.pull(at as usize);
            }
        }
    }
}
