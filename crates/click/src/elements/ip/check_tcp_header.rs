//! `CheckTCPHeader(VERBOSE, DETAILS)`: lets only IPv4 packets with a sound TCP header and checksum pass.
//!
//! Ports: one input; one output, and optionally a push output for bad packets.
//!
//! Arguments:
//! - `VERBOSE`: says each bad packet, not only the first.
//! - `DETAILS`: counts bad packets by reason.
//!
//! Handlers: `drops`, and with DETAILS `drop_details` (read). The IPv4 header must be noted and checked already.
use super::transport::Transport;
use crate::arg::Args;
use crate::elements::check::Check;
use crate::elements::packet::u16_at;
use crate::{Class, Context, Element, Failed, Handler, HandlerError, Metadata, Packet, PacketBurst};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// Facts.
pub static CLASS: Class = Class::new("CheckTCPHeader", || Box::<CheckTcpHeader>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .metadata(Metadata::Resolve);

const REASONS: &[&str] = &["not TCP", "bad packet length", "bad TCP checksum"];

/// Checks headers.
#[derive(Debug, Default)]
pub struct CheckTcpHeader {
    check: Check,
}

impl Element for CheckTcpHeader {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        self.check = Check::read(args, "TCP", REASONS).named();
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        self.check.filter(burst, cx, check);
    }

    fn handlers(&self) -> Vec<Handler> {
        self.check.handlers()
    }

    fn read(&mut self, name: &str, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(self.check.text(name))
    }
}

fn check(packet: &mut Packet) -> Result<(), usize> {
    let data = packet.network_data().unwrap_or_default();
    let transport = Transport::of(data).filter(|transport| transport.protocol == 6).ok_or(0usize)?;
    let bytes = transport.slice(data).ok_or(1usize)?;
    let header = usize::from(u16_at(bytes, 12) >> 12) * 4;
    if header < 20 || bytes.len() < header {
        return Err(1);
    }
    let mut sum = transport.pseudo(bytes.len());
    sum.add(bytes);
    if sum.is_valid() { Ok(()) } else { Err(2) }
}
