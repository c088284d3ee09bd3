//! `SetIPDSCP(DSCP)`: sets the differentiated services code point of IPv4 packets.
//!
//! Ports: one input, one output, push or pull. Packets without a whole header pass unchanged.
//!
//! Arguments:
//! - `DSCP`: the code point, 0 to 63 (RFC 2474).
//!
//! Handlers: `dscp` (read, write). The checksum is updated.
use crate::arg::{ArgError, Args, MANDATORY_POSITIONAL, Scope, parse_int};
use crate::elements::packet::{change_u16, ip_header_mut, u16_at};
use crate::{Class, Context, Element, Failed, Handler, HandlerError, PacketBurst};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Facts.
pub static CLASS: Class = Class::new("SetIPDSCP", || Box::<SetIpDscp>::default()).ports("1/1").live();

/// Sets it.
#[derive(Debug, Default)]
pub struct SetIpDscp {
    value: u8,
}

impl Element for SetIpDscp {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_with("DSCP", MANDATORY_POSITIONAL, &mut self.value, parse);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            if let Some(header) = ip_header_mut(packet) {
                let word = u16_at(header, 0) & !0xfc | u16::from(self.value) << 2;
                change_u16(header, 0, word, 10);
            }
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::both("dscp").calm()].into()
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
    parse_int(text, 0, 63)
}
