//! `SetIPDSCP(DSCP)`: sets the differentiated services code point of IPv4 packets.
//!
//! Ports: one input, one output, push or pull. Packets without a complete header pass unchanged.
//!
//! Arguments:
//! - `DSCP`: the code point, 0 to 63 (RFC 2474).
//!
//! Handlers: `dscp` (read, write). The checksum is updated.
use crate::field::{Field, SetField};
use crate::packet::ipv4_mut;
use ringway_click::arg::{ArgError, Scope, parse_int};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("SetIPDSCP", || Box::<SetField<Dscp>>::default()).ports("1/1").live();

/// The field.
struct Dscp;

impl Field for Dscp {
    const ARGUMENT: &'static str = "DSCP";
    const HANDLER: &'static str = "dscp";

    fn parse(text: &str, _: &Scope) -> Result<u8, ArgError> {
        parse_int(text, 0, 63)
    }

    fn set(packet: &mut Packet, value: u8) {
        if let Some(header) = ipv4_mut(packet) {
            header.set_tos(header.tos & 3 | value << 2);
        }
    }
}
