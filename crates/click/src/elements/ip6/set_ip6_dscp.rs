//! `SetIP6DSCP(DSCP)`: sets the differentiated services code point of IPv6 packets.
//!
//! Ports: one input, one output, push or pull. Packets without a header pass unchanged.
//!
//! Arguments:
//! - `DSCP`: the code point, 0 to 63 (RFC 2474).
//!
//! Handlers: `dscp` (read, write).
use crate::arg::{Args, MANDATORY_POSITIONAL};
use crate::elements::packet::{bounded, put, u16_at};
use crate::{Class, Context, Element, Failed, Handler, HandlerError, PacketBurst};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Facts.
pub static CLASS: Class = Class::new("SetIP6DSCP", || Box::<SetIp6Dscp>::default()).ports("1/1").live();

/// Sets it.
#[derive(Debug, Default)]
pub struct SetIp6Dscp {
    value: u8,
}

impl Element for SetIp6Dscp {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_with("DSCP", MANDATORY_POSITIONAL, &mut self.value, bounded(0, 63));
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            if let Some(header) = packet.network_data_mut() {
                let word = u16_at(header, 0) & !0x0fc0 | u16::from(self.value) << 6;
                put(header, 0, word.to_be_bytes());
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
        let value = cx.parse_with(value, bounded(0, 63));
        self.value = value.map_err(|error| HandlerError::failed(error.to_string()))?;
        cx.set_configuration(&self.value.to_string());
        Ok(())
    }
}
