//! `GetIP6Address(OFFSET)`: copies an address from packets to their IPv6 destination annotation.
//!
//! Ports: one input, one output, push or pull. Packets too short pass unchanged.
//!
//! Arguments:
//! - `OFFSET`: offset of the address in the packet.
//!
//! No handlers.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("GetIP6Address", || Box::<GetIp6Address>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct GetIp6Address {
    offset: u32,
}

impl Element for GetIp6Address {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("OFFSET", &mut self.offset);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            let bytes = packet.data().get(self.offset as usize..).and_then(<[u8]>::first_chunk::<16>);
            if let Some(address) = bytes.copied() {
                packet.notes_mut().set(Annotations::DST_IP6, address);
            }
        }
    }
}
