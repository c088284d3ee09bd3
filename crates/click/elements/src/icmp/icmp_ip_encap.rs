//! `ICMPIPEncap(SRC, DST, TYPE, CODE, IDENTIFIER)`: prepends ICMP and IPv4 headers to packets.
//!
//! Ports: one input, one output, push or pull. Packets that would be longer than 65535 bytes are dropped.
//!
//! Arguments:
//! - `SRC`, `DST`: addresses.
//! - `TYPE`, `CODE`: type and code of the message, by number or name.
//! - `IDENTIFIER`: identifier of echoes and similar messages; 0 by default. Messages have increasing sequence numbers.
//!
//! Handlers: `src`, `dst` (read, write).
use super::message::Message;
use crate::ip::names::{icmp_code, parse_icmp_type};
use ringway_click::arg::{MANDATORY_POSITIONAL, Word};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("ICMPIPEncap", || Box::<IcmpIpEncap>::default())
    .ports("1/1")
    .flags("A")
    .metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct IcmpIpEncap {
    message: Message,
}

impl Element for IcmpIpEncap {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let mut code = Word("0".to_string());
        self.message.read_addresses(args);
        args.read_with("TYPE", MANDATORY_POSITIONAL, &mut self.message.kind, parse_icmp_type);
        args.read_p("CODE", &mut code);
        args.read("IDENTIFIER", &mut self.message.id);
        args.complete()?;
        let found = icmp_code(self.message.kind, &code.0).or_else(|| cx.parse(&code.0).ok());
        self.message.code = found.ok_or(()).map_err(|()| cx.error("bad ICMP code"))?;
        Ok(())
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.retain(|packet| self.message.wrap(packet));
    }

    fn handlers(&self) -> Vec<Handler> {
        Message::handlers(|e: &mut Self| &mut e.message).into()
    }
}
