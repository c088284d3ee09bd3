//! `SetIP6DSCP(DSCP)`: sets the differentiated services code point of IPv6 packets.
//!
//! Ports: one input, one output, push or pull. Packets without a header pass unchanged.
//!
//! Arguments:
//! - `DSCP`: the code point, 0 to 63 (RFC 2474).
//!
//! Handlers: `dscp` (read, write).
use crate::field::{Field, SetField};
use ringway_click::arg::{ArgError, Scope, parse_int};
use ringway_click::prelude::*;
use ringway_wire::{Header, U16};

pub static CLASS: Class = Class::new("SetIP6DSCP", || Box::<SetField<Dscp>>::default()).ports("1/1").live();

/// The field.
struct Dscp;

impl Field for Dscp {
    const ARGUMENT: &'static str = "DSCP";
    const HANDLER: &'static str = "dscp";

    fn parse(text: &str, _: &Scope) -> Result<u8, ArgError> {
        parse_int(text, 0, 63)
    }

    fn set(packet: &mut Packet, value: u8) {
        // A truncated header is enough.
        if let Some(word) = packet.network_data_mut().and_then(U16::of_mut) {
            *word = *word & !0x0fc0 | u16::from(value) << 6;
        }
    }
}
