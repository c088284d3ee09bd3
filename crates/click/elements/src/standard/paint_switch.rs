//! `PaintSwitch(ANNO)`: sends packets to the output with the number of their paint annotation.
//!
//! Ports: one push input, any number of push outputs; paint 255 goes to all of them.
//!
//! Arguments:
//! - `ANNO`: another one-byte annotation; `PAINT` by default.
use super::paint::paint_annotation;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("PaintSwitch", || Box::<PaintSwitch>::default()).ports("1/-").processing("h");

#[derive(Debug, Default)]
pub struct PaintSwitch {
    at: usize,
}

impl Element for PaintSwitch {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        self.at = paint_annotation(args);
        args.complete()
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.drain() {
            match packet.notes().u8(self.at) {
                u8::MAX => {
                    for output in 1..cx.noutputs() {
                        cx.push(output - 1, packet.clone());
                    }
                    cx.push(cx.noutputs().saturating_sub(1), packet);
                }
                paint => cx.push(paint.into(), packet),
            }
        }
    }
}
