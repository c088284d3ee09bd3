//! `MarkIPHeader(OFFSET)`: marks a packet's IPv4 header, without checking it.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `OFFSET`: its offset in the packet; 0 by default.
//!
//! No handlers.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("MarkIPHeader", || Box::<MarkIpHeader>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct MarkIpHeader {
    offset: u32,
}

impl Element for MarkIpHeader {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_p("OFFSET", &mut self.offset);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            let first = packet.data().get(self.offset as usize).copied().unwrap_or_default();
            packet.set_network_header(self.offset as isize, usize::from(first & 15) * 4);
        }
    }
}
