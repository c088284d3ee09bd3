//! `PPPoEEncap(SRC, DST, SESSION)`: puts Ethernet, PPPoE and PPP headers before IPv4 packets (RFC 2516).
//!
//! Ports: one input, one output, push or pull. Packets of more than 65533 bytes are dropped; those of more than 1492
//! make frames that Ethernet does not carry, so fragment them before.
//!
//! Arguments:
//! - `SRC`, `DST`: Ethernet addresses.
//! - `SESSION`: the session's number.
//!
//! Handlers: `src`, `dst`, `session` (read, write).
use super::pppoe;
use crate::packet::mac_text;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use ringway_click::arg::{ArgError, Args};
use ringway_click::{Class, Context, Element, Failed, Handler, HandlerError, Metadata, PacketBurst};
use ringway_wire::MacAddress;

/// Facts.
pub static CLASS: Class =
    Class::new("PPPoEEncap", || Box::<PppoeEncap>::default()).ports("1/1").live().metadata(Metadata::Resolve);

/// See the module.
#[derive(Debug, Default)]
pub struct PppoeEncap {
    source: MacAddress,
    destination: MacAddress,
    session: u16,
}

impl Element for PppoeEncap {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("SRC", &mut self.source);
        args.read_mp("DST", &mut self.destination);
        args.read_mp("SESSION", &mut self.session);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| pppoe::wrap(packet, self.destination, self.source, self.session));
    }

    fn handlers(&self) -> Vec<Handler> {
        ["src", "dst", "session"].map(Handler::both).into()
    }

    fn read(&mut self, name: &str, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(match name {
            "src" => mac_text(self.source),
            "dst" => mac_text(self.destination),
            _ => self.session.to_string(),
        })
    }

    fn write(&mut self, name: &str, value: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let wrong = |error: ArgError| HandlerError::failed(error.to_string());
        match name {
            "src" => self.source = cx.parse(value).map_err(wrong)?,
            "dst" => self.destination = cx.parse(value).map_err(wrong)?,
            _ => self.session = cx.parse(value).map_err(wrong)?,
        }
        Ok(())
    }
}
