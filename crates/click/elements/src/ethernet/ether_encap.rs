//! `EtherEncap(ETHERTYPE, SRC, DST)`: prepends an Ethernet header to packets.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `ETHERTYPE`: the EtherType of the payload.
//! - `SRC`, `DST`: addresses.
//!
//! Handlers: `src`, `dst`, `ethertype` (read, write).
use crate::packet::{mac_handler, mark_ethernet};
use ringway_click::prelude::*;
use ringway_wire::{EtherType, Ethernet, Header};

pub static CLASS: Class = Class::new("EtherEncap", || Box::<EtherEncap>::default()).ports("1/1").live();

#[derive(Debug, Default)]
pub struct EtherEncap {
    header: Ethernet,
}

fn ethertype(name: &'static str) -> Handler {
    Handler::read(name, |e: &EtherEncap| e.header.ethertype.get()).writes(|e: &mut EtherEncap, value, cx| {
        e.header.ethertype = EtherType::new(cx.parse(value)?);
        Ok(())
    })
}

impl Element for EtherEncap {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let mut ethertype = 0;
        args.read_mp("ETHERTYPE", &mut ethertype);
        args.read_mp("SRC", &mut self.header.source);
        args.read_mp("DST", &mut self.header.destination);
        self.header.ethertype = EtherType::new(ethertype);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| {
            let grown = packet.push_header(&self.header);
            mark_ethernet(packet, Ethernet::LEN);
            grown
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            mac_handler("src", |e: &mut Self| &mut e.header.source).argument(Some(1), "SRC"),
            mac_handler("dst", |e: &mut Self| &mut e.header.destination).argument(Some(2), "DST"),
            ethertype("ethertype").argument(Some(0), "ETHERTYPE"),
            ethertype("etht").argument(Some(0), "ETHERTYPE").deprecated(),
        ]
        .into()
    }
}
