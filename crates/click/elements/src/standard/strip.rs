//! `Strip(LENGTH)`: removes bytes from the front of packets.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `LENGTH`: number of bytes; shorter packets become empty.
//!
//! No handlers.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("Strip", || Box::<Strip>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct Strip {
    bytes: u32,
}

impl Element for Strip {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("LENGTH", &mut self.bytes);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.iter_mut().for_each(|packet| packet.pull(self.bytes as usize));
    }
}
