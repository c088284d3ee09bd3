//! `MarkIP6Header(OFFSET)`: marks a packet's IPv6 header, without checking it.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `OFFSET`: its offset in the packet; 0 by default.
//!
//! No handlers.
use ringway_click::prelude::*;
use ringway_wire::{Header, Ipv6};

pub static CLASS: Class = Class::new("MarkIP6Header", || Box::<MarkIp6Header>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct MarkIp6Header {
    offset: u32,
}

impl Element for MarkIp6Header {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_p("OFFSET", &mut self.offset);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.iter_mut().for_each(|packet| packet.set_network_header(self.offset as isize, Ipv6::LEN));
    }
}
