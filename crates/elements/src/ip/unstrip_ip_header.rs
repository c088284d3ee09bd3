//! `UnstripIPHeader`: brings back the IPv4 header that StripIPHeader took off.
//!
//! Ports: one input, one output, push or pull. Packets whose header is not known, or there, pass unchanged.
//!
//! No arguments, no handlers.
use alloc::boxed::Box;
use ringway_click::{Class, Context, Element, PacketBurst};

pub static CLASS: Class = Class::new("UnstripIPHeader", || Box::<UnstripIpHeader>::default()).ports("1/1");

/// Brings headers back.
#[derive(Debug, Default)]
pub struct UnstripIpHeader;

impl Element for UnstripIpHeader {
    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| match packet.network_header() {
            Some(at @ ..0) => packet.push(at.unsigned_abs()),
            _ => true,
        });
    }
}
