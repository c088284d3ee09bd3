//! `SetIPECN(ECN)`: sets the explicit congestion notification of IPv4 packets.
//!
//! Ports: one input, one output, push or pull. Packets without a complete header pass unchanged.
//!
//! Arguments:
//! - `ECN`: `0` to `3`, `no` (or `-`), `ect1` (`ECT(1)`), `ect2` (`ECT(0)`), `ce` (`CE`) (RFC 3168).
//!
//! Handlers: `ecn` (read, write). The checksum is updated.
use crate::field::{Field, SetField};
use crate::packet::ipv4_mut;
use ringway_click::arg::{ArgError, Scope};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("SetIPECN", || Box::<SetField<Ecn>>::default()).ports("1/1").live();

/// The field.
struct Ecn;

impl Field for Ecn {
    const ARGUMENT: &'static str = "ECN";
    const HANDLER: &'static str = "ecn";

    fn parse(text: &str, _: &Scope) -> Result<u8, ArgError> {
        match text {
            "0" | "no" | "-" => Ok(0),
            "1" | "ect1" | "ECT(1)" => Ok(1),
            "2" | "ect2" | "ECT(0)" => Ok(2),
            "3" | "ce" | "CE" => Ok(3),
            _ => Err(ArgError::other("bad ECN argument")),
        }
    }

    fn set(packet: &mut Packet, value: u8) {
        if let Some(header) = ipv4_mut(packet) {
            header.set_tos(header.tos & !3 | value);
        }
    }
}
