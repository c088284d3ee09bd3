//! `Unstrip(LENGTH)`: restores bytes that were removed from the front of packets.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `LENGTH`: number of bytes; at most 65535.
//!
//! No handlers.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("Unstrip", || Box::<Unstrip>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct Unstrip {
    bytes: u16,
}

impl Element for Unstrip {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("LENGTH", &mut self.bytes);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| packet.unpull(self.bytes.into()));
    }
}
