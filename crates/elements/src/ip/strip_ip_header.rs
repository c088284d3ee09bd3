//! `StripIPHeader`: takes off the IPv4 header, and what stands before it.
//!
//! Ports: one input, one output, push or pull. Packets whose header is not known pass unchanged.
//!
//! No arguments, no handlers. UnstripIPHeader brings it back.
use alloc::boxed::Box;
use ringway_click::{Class, Context, Element, PacketBurst};

pub static CLASS: Class = Class::new("StripIPHeader", || Box::<StripIpHeader>::default()).ports("1/1");

/// Takes headers off.
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
