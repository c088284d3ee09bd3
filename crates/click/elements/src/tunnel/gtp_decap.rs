//! `GTPDecap`: removes GTP-U headers (3GPP TS 29.281; FastClick), with optional fields and extension headers. The
//! tunnel endpoint identifier is stored in the aggregate annotation.
//!
//! Ports: one input for packets that begin with the GTP header; one output, and optionally a push output for all other
//! packets, unchanged: other versions, no user data, invalid headers.
//!
//! Handlers: `drops` (read): packets that were not decapsulated.
use super::decap::{Decap, Tunnel};
use ringway_click::prelude::*;
use ringway_wire::Header;
use ringway_wire::tunnel::Gtp;

pub static CLASS: Class = Class::new("GTPDecap", || Box::<Decap<GtpDecap>>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct GtpDecap;

/// Length of all headers, length of the inner packet, and the tunnel endpoint identifier.
fn find(data: &[u8]) -> Option<(usize, usize, u32)> {
    let (gtp, rest) = Gtp::split(data)?;
    if gtp.flags & Gtp::VERSION != Gtp::VERSION_1 || gtp.kind != Gtp::G_PDU {
        return None;
    }
    let content = rest.get(..usize::from(gtp.length.get()))?;
    let mut at = 0;
    if gtp.flags & Gtp::OPTIONAL != 0 {
        at = 4;
        let mut kind = if gtp.flags & Gtp::EXTENSION != 0 { *content.get(3)? } else { 0 };
        // An extension header begins with its length in words of four bytes and ends with the type of the next one.
        while kind != 0 {
            let length = usize::from(*content.get(at)?).max(1) * 4;
            kind = *content.get(at + length - 1)?;
            at += length;
        }
    }
    Some((Gtp::LEN + at, content.len().checked_sub(at)?, gtp.teid.get()))
}

impl Tunnel for GtpDecap {
    fn strip(&self, packet: &mut Packet) -> bool {
        let Some((headers, length, teid)) = find(packet.data()) else { return false };
        packet.pull(headers);
        packet.take(packet.len() - length);
        packet.clear_headers();
        packet.notes_mut().set_u32(Annotations::AGGREGATE, teid);
        true
    }
}
