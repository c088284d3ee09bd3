//! `MarkMACHeader(OFFSET, LENGTH)`: marks a packet's MAC header.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `OFFSET`: its offset in the packet; 0 by default.
//! - `LENGTH`: length of the MAC header; if not 0, the network header is marked after it. 0 by default.
//!
//! No handlers.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("MarkMACHeader", || Box::<MarkMacHeader>::default()).ports("1/1").live();

#[derive(Debug, Default)]
pub struct MarkMacHeader {
    offset: u32,
    length: u32,
}

impl Element for MarkMacHeader {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_p("OFFSET", &mut self.offset);
        args.read_p("LENGTH", &mut self.length);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            let at = self.offset as isize;
            if self.length > 0 {
                packet.set_network_header(at + self.length as isize, 0);
            }
            packet.set_mac_header(at);
        }
    }
}
