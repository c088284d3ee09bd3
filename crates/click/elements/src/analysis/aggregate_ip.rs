//! `AggregateIP(FIELD, INCREMENTAL, UNSHIFT_IP_ADDR)`: sets packets' aggregate annotation to a header field.
//!
//! Ports: one input, one output, push or pull; a second output, push, gets packets without the field, which are
//! dropped if there is no second output: packets that are too short, later fragments, other protocols.
//!
//! Arguments:
//! - `FIELD`: a field by name: `ip` with `vers`, `hl`, `tos`, `dscp`, `ecn`, `len`, `id`, `off`, `rf`, `df`, `mf`,
//!   `fragoff`, `ttl`, `proto`, `sum`, `src`, `dst`; `udp` with `sport`, `dport`, `len`, `sum`; `tcp` with `sport`,
//!   `dport`, `seq`, `ackno`, `hl`, `flags`, `urg`, `ack`, `psh`, `rst`, `syn`, `fin`, `win`, `sum`, `urp`; `icmp`
//!   with `type`, `code`, `sum`; `sport`, `dport`. Or by position after `ip`, `transp`, `payload` or a protocol:
//!   `[BYTE]`, `[BYTE:COUNT]`, `[FIRST-LAST]`, and the same in bits in braces. `/BITS` selects its first bits, `&
//!   MASK` those of a contiguous mask. The field must be within one 32-bit word.
//! - `INCREMENTAL`: appends it to the bits of the existing aggregate; false by default.
//! - `UNSHIFT_IP_ADDR`: keeps parts of addresses at their position in the address; false by default.
//!
//! Handlers: `header`, `bit_offset`, `bit_length`, `field` (read).
use super::ip_field::{Header, IpField};
use crate::packet::divert;
use ringway_click::arg::Raw;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("AggregateIP", || Box::<AggregateIp>::default()).ports("1/1-2").processing("a/ah");

/// The bits of the IPv4 header that hold addresses.
const ADDRESSES: core::ops::Range<u32> = 96..160;

#[derive(Debug)]
pub struct AggregateIp {
    field: IpField,
    shift: u32,
    mask: u32,
    incremental: bool,
}

impl Default for AggregateIp {
    fn default() -> Self {
        let field = IpField { header: Header::Ip, offset: 0, length: 1 };
        Self { field, shift: 0, mask: 0, incremental: false }
    }
}

impl Element for AggregateIp {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut text, mut unshift) = (Raw::default(), false);
        args.read_mp("FIELD", &mut text);
        args.read("INCREMENTAL", &mut self.incremental);
        args.read("UNSHIFT_IP_ADDR", &mut unshift);
        args.complete()?;
        let field = IpField::parse(&text.0, &cx.scope()).map_err(|error| cx.error(error))?;
        let last = field.offset + field.length - 1;
        if field.offset / 32 != last / 32 {
            return Err(cx.error("field specification does not fit within a single word"));
        }
        if field.length == 32 && self.incremental {
            return Err(cx.error("'INCREMENTAL' is incompatible with field length 32"));
        }
        let mask = u32::MAX >> (32 - field.length);
        let shift = 31 - last % 32;
        let stays = unshift && field.header == Header::Ip && ADDRESSES.contains(&field.offset);
        (self.mask, self.shift) = if stays { (mask << shift, 0) } else { (mask, shift) };
        self.field = field;
        Ok(())
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        divert(burst, cx, |packet, _| {
            let Some(word) = self.field.word(packet) else { return false };
            let value = word >> self.shift & self.mask;
            let notes = packet.notes_mut();
            let old =
                if self.incremental { notes.u32(Annotations::AGGREGATE) << self.field.length } else { 0 };
            notes.set_u32(Annotations::AGGREGATE, old.wrapping_add(value));
            true
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("header", |e: &Self| e.field.header),
            Handler::read("bit_offset", |e: &Self| e.field.offset),
            Handler::read("bit_length", |e: &Self| e.field.length),
            Handler::read("field", |e: &Self| e.field),
        ]
        .into()
    }
}
