//! `ProtocolTranslator64`: makes IPv6 packets IPv4 ones (RFC 7915).
//!
//! Ports: one input, one output, push or pull.
//!
//! Packets begin with their IP header. IPv4 addresses are the IPv4-mapped ones of IPv6, `::ffff:ADDRESS`. ICMP echoes
//! and errors are translated, errors with the header of the packet they are about. What can't be is dropped: other
//! addresses, other ICMP, fragments of ICMP, packets with a routing header.
//!
//! No arguments. Handlers: `drops` (read).
use super::siit;
use crate::{Class, Context, Element, Handler, HandlerError, Metadata, PacketBurst};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Facts.
pub static CLASS: Class = Class::new("ProtocolTranslator64", || Box::<ProtocolTranslator64>::default())
    .ports("1/1")
    .metadata(Metadata::Resolve);

/// See the module.
#[derive(Debug, Default)]
pub struct ProtocolTranslator64 {
    drops: u64,
}

impl Element for ProtocolTranslator64 {
    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| {
            let done = siit::to_four(packet).is_some();
            self.drops += u64::from(!done);
            done
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read("drops")].into()
    }

    fn read(&mut self, _: &str, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(self.drops.to_string())
    }
}
