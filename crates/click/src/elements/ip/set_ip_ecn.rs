//! `SetIPECN(ECN)`: sets the explicit congestion notification of IPv4 packets.
//!
//! Ports: one input, one output, push or pull. Packets without a whole header pass unchanged.
//!
//! Arguments:
//! - `ECN`: `0` to `3`, `no` (or `-`), `ect1` (`ECT(1)`), `ect2` (`ECT(0)`), `ce` (`CE`) (RFC 3168).
//!
//! Handlers: `ecn` (read, write). The checksum is updated.
use crate::arg::{ArgError, Args, MANDATORY_POSITIONAL, Scope};
use crate::elements::packet::{change_u16, ip_header_mut, u16_at};
use crate::{Class, Context, Element, Failed, Handler, HandlerError, PacketBurst};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Facts.
pub static CLASS: Class = Class::new("SetIPECN", || Box::<SetIpEcn>::default()).ports("1/1").live();

/// Sets it.
#[derive(Debug, Default)]
pub struct SetIpEcn {
    value: u8,
}

impl Element for SetIpEcn {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_with("ECN", MANDATORY_POSITIONAL, &mut self.value, parse);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            if let Some(header) = ip_header_mut(packet) {
                let word = u16_at(header, 0) & !3 | u16::from(self.value);
                change_u16(header, 0, word, 10);
            }
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::both("ecn").calm()].into()
    }

    fn read(&mut self, _: &str, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(self.value.to_string())
    }

    fn write(&mut self, _: &str, value: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let value = cx.parse_with(value, parse).map_err(|error| HandlerError::failed(error.to_string()))?;
        cx.set_configuration(&value.to_string());
        self.value = value;
        Ok(())
    }
}

fn parse(text: &str, _: &Scope) -> Result<u8, ArgError> {
    match text {
        "0" | "no" | "-" => Ok(0),
        "1" | "ect1" | "ECT(1)" => Ok(1),
        "2" | "ect2" | "ECT(0)" => Ok(2),
        "3" | "ce" | "CE" => Ok(3),
        _ => Err(ArgError::other("bad ECN argument")),
    }
}
