//! `EtherEncap(ETHERTYPE, SRC, DST)`: puts an Ethernet header before packets.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `ETHERTYPE`: what the frame carries.
//! - `SRC`, `DST`: addresses.
//!
//! Handlers: `src`, `dst`, `ethertype` (read, write).
use crate::packet::{mac_text, mark_ethernet, put, u16_at};
use alloc::boxed::Box;
use alloc::vec::Vec;
use ringway_click::arg::Args;
use ringway_click::{Class, Context, Element, Failed, Handler, PacketBurst};
use ringway_wire::{MacAddress, ethernet::HEADER_LEN};

/// Facts.
pub static CLASS: Class = Class::new("EtherEncap", || Box::<EtherEncap>::default()).ports("1/1").live();

/// Puts headers before packets.
#[derive(Debug, Default)]
pub struct EtherEncap {
    header: [u8; HEADER_LEN],
}

/// The handler of an address, at its offset in the header.
fn address(name: &'static str, at: usize) -> Handler {
    Handler::read(name, move |e: &EtherEncap| {
        mac_text(MacAddress(e.header[at..].first_chunk().copied().unwrap_or_default()))
    })
    .writes(move |e: &mut EtherEncap, value, cx| {
        put(&mut e.header, at, cx.parse::<MacAddress>(value)?.0);
        Ok(())
    })
}

fn ethertype(name: &'static str) -> Handler {
    Handler::read(name, |e: &EtherEncap| u16_at(&e.header, 12)).writes(|e: &mut EtherEncap, value, cx| {
        put(&mut e.header, 12, cx.parse::<u16>(value)?.to_be_bytes());
        Ok(())
    })
}

impl Element for EtherEncap {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let (mut ethertype, mut source, mut destination) =
            (0u16, MacAddress::default(), MacAddress::default());
        args.read_mp("ETHERTYPE", &mut ethertype);
        args.read_mp("SRC", &mut source);
        args.read_mp("DST", &mut destination);
        put(&mut self.header, 0, destination.0);
        put(&mut self.header, 6, source.0);
        put(&mut self.header, 12, ethertype.to_be_bytes());
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| {
            let grown = packet.push_header(&self.header);
            mark_ethernet(packet, HEADER_LEN);
            grown
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [address("src", 6), address("dst", 0), ethertype("ethertype"), ethertype("etht").deprecated()].into()
    }
}
