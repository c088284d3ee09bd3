//! `Align(MODULUS, OFFSET)`: passes packets on. No element here depends on the alignment of packets in memory.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `MODULUS`, `OFFSET`: read and checked.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("Align", || Box::new(Align)).ports("1/1");

#[derive(Clone, Copy, Debug)]
pub struct Align;

impl Element for Align {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let (mut modulus, mut offset) = (0u32, 0u32);
        args.read_mp("MODULUS", &mut modulus);
        args.read_mp("OFFSET", &mut offset);
        args.complete()?;
        if !matches!(modulus, 2 | 4 | 8) {
            return Err(cx.error("MODULUS must be 2, 4, or 8"));
        }
        if offset >= modulus {
            return Err(cx.error("OFFSET must be smaller than MODULUS"));
        }
        Ok(())
    }
}
