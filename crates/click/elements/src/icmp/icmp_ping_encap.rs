//! `ICMPPingEncap(SRC, DST, IDENTIFIER)`: prepends ICMP echo request and IPv4 headers to packets.
//!
//! Ports: one input, one output, push or pull. Packets that would be longer than 65535 bytes are dropped.
//!
//! Arguments:
//! - `SRC`, `DST`: addresses.
//! - `IDENTIFIER`: identifier of all requests; 0 by default. Requests have increasing sequence numbers.
//!
//! Handlers: `src`, `dst` (read, write).
use super::message::Message;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("ICMPPingEncap", || Box::<IcmpPingEncap>::default())
    .ports("1/1")
    .flags("A")
    .metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct IcmpPingEncap {
    message: Message,
}

impl Element for IcmpPingEncap {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        self.message.read_addresses(args);
        args.read("IDENTIFIER", &mut self.message.id);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| self.message.wrap(packet));
    }

    fn handlers(&self) -> Vec<Handler> {
        Message::handlers(|e: &mut Self| &mut e.message).into()
    }
}
