//! `SetIP6Address(IPADDR)`: sets packets' IPv6 destination annotation.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `IPADDR`: the address.
//!
//! No handlers.
use core::net::Ipv6Addr;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("SetIP6Address", || Box::<SetIp6Address>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct SetIp6Address {
    address: [u8; 16],
}

impl Element for SetIp6Address {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let mut address = Ipv6Addr::UNSPECIFIED;
        args.read_mp("IPADDR", &mut address);
        self.address = address.octets();
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.iter_mut().for_each(|packet| packet.notes_mut().set(Annotations::DST_IP6, self.address));
    }
}
