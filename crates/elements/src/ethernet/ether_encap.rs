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
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use ringway_click::arg::Args;
use ringway_click::{Class, Context, Element, Failed, Handler, HandlerError, PacketBurst};
use ringway_wire::{MacAddress, ethernet::HEADER_LEN};

/// Facts.
pub static CLASS: Class = Class::new("EtherEncap", || Box::<EtherEncap>::default()).ports("1/1").live();

/// Puts headers before packets.
#[derive(Debug, Default)]
pub struct EtherEncap {
    header: [u8; HEADER_LEN],
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
        [
            Handler::both("src"),
            Handler::both("dst"),
            Handler::both("ethertype"),
            Handler::both("etht").deprecated(),
        ]
        .into()
    }

    fn read(&mut self, name: &str, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = self.header;
        Ok(match name {
            "dst" => mac_text(MacAddress([a, b, c, d, e, f])),
            "src" => mac_text(MacAddress([g, h, i, j, k, l])),
            _ => u16_at(&self.header, 12).to_string(),
        })
    }

    fn write(&mut self, name: &str, value: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let wrong = |error: ringway_click::arg::ArgError| HandlerError::failed(error.to_string());
        match name {
            "dst" => put(&mut self.header, 0, cx.parse::<MacAddress>(value).map_err(wrong)?.0),
            "src" => put(&mut self.header, 6, cx.parse::<MacAddress>(value).map_err(wrong)?.0),
            _ => put(&mut self.header, 12, cx.parse::<u16>(value).map_err(wrong)?.to_be_bytes()),
        }
        Ok(())
    }
}
