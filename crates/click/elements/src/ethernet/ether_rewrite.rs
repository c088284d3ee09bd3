//! `EtherRewrite(SRC, DST)`: sets both addresses of Ethernet frames.
//!
//! Ports: one input, one output, push or pull. Frames too short for both addresses are dropped.
//!
//! Arguments:
//! - `SRC`, `DST`: the addresses.
//!
//! Handlers: `src`, `dst` (read, write); `drops` (read).
use crate::packet::mac_handler;
use ringway_click::prelude::*;
use ringway_wire::{Header, MacAddress};

pub static CLASS: Class = Class::new("EtherRewrite", || Box::<EtherRewrite>::default()).ports("1/1").live();

#[derive(Debug, Default)]
pub struct EtherRewrite {
    source: MacAddress,
    destination: MacAddress,
    drops: u64,
}

impl Element for EtherRewrite {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("SRC", &mut self.source);
        args.read_mp("DST", &mut self.destination);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| {
            let Some(addresses) = <[MacAddress; 2]>::of_mut(packet.data_mut()) else {
                self.drops += 1;
                return false;
            };
            *addresses = [self.destination, self.source];
            true
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            mac_handler("src", |e: &mut Self| &mut e.source).argument(Some(0), "SRC"),
            mac_handler("dst", |e: &mut Self| &mut e.destination).argument(Some(1), "DST"),
            Handler::counter("drops", |e: &mut Self| &mut e.drops),
        ]
        .into()
    }
}
