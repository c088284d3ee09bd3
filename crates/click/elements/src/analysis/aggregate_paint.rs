//! `AggregatePaint(BITS, INCREMENTAL)`: sets packets' aggregate annotation to their paint.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `BITS`: number of the paint's low bits; 8 by default.
//! - `INCREMENTAL`: appends them to the bits of the existing aggregate; false by default.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("AggregatePaint", || Box::<AggregatePaint>::default()).ports("1/1");

#[derive(Debug, Default)]
pub struct AggregatePaint {
    bits: u32,
    incremental: bool,
}

impl Element for AggregatePaint {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        self.bits = 8;
        args.read_p("BITS", &mut self.bits);
        args.read("INCREMENTAL", &mut self.incremental);
        args.complete()?;
        match self.bits {
            1..=8 => Ok(()),
            _ => Err(cx.error("number of bits must be between 1 and 8")),
        }
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            let notes = packet.notes_mut();
            let value = u32::from(notes.paint()) & ((1 << self.bits) - 1);
            let old = if self.incremental { notes.u32(Annotations::AGGREGATE) << self.bits } else { 0 };
            notes.set_u32(Annotations::AGGREGATE, old | value);
        }
    }
}
