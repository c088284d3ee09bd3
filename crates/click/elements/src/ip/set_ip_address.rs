//! `SetIPAddress(IPADDR, ANNO)`: sets an annotation to an IPv4 address.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `IPADDR`: the address.
//! - `ANNO`: the annotation, 4 bytes; the destination annotation by default.
//!
//! Handlers: `addr` (read, write).
use core::net::Ipv4Addr;
use ringway_click::arg::{Annotation, KEYWORD};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("SetIPAddress", || Box::<SetIpAddress>::default()).ports("1/1").live();

#[derive(Debug, Default)]
pub struct SetIpAddress {
    address: [u8; 4],
    annotation: Annotation,
}

impl Element for SetIpAddress {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let mut address = Ipv4Addr::UNSPECIFIED;
        args.read_mp("IPADDR", &mut address);
        args.read_with("ANNO", KEYWORD, &mut self.annotation, |text, scope| {
            Annotation::of_size(text, 4, scope)
        });
        self.address = address.octets();
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.iter_mut().for_each(|packet| packet.notes_mut().set(self.annotation.offset, self.address));
    }

    fn handlers(&self) -> Vec<Handler> {
        let read = Handler::read("addr", |e: &Self| Ipv4Addr::from(e.address));
        let write = |e: &mut Self, value: &str, cx: &mut Context<'_>| {
            e.address = cx.parse::<Ipv4Addr>(value)?.octets();
            Ok(())
        };
        [read.writes(write)].into()
    }
}
