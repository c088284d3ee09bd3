//! `PaintRR(ANNO)`: sends packets to the output with the number of their paint annotation, modulo the number of
//! outputs (FastClick).
//!
//! Ports: one push input, one or more push outputs.
//!
//! Arguments:
//! - `ANNO`: another one-byte annotation; `PAINT` by default.
use super::paint::paint_annotation;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("PaintRR", || Box::<PaintRr>::default()).ports("1/1-").processing("h");

#[derive(Debug, Default)]
pub struct PaintRr {
    at: usize,
}

impl Element for PaintRr {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        self.at = paint_annotation(args);
        args.complete()
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let outputs = cx.noutputs();
        cx.scatter(burst, |_, packet| Some(usize::from(packet.notes().u8(self.at)) % outputs));
    }
}
