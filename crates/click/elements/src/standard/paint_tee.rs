//! `PaintTee(COLOR, ANNO)`: sends copies of packets whose paint annotation is COLOR to output 1.
//!
//! Ports: one input; one output, push or pull, and optionally a push output.
//!
//! Arguments: as for `Paint`.
//!
//! Handlers: `color` (read, write).
use super::paint::paint_annotation;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("PaintTee", || Box::<PaintTee>::default()).ports("1/1-2").processing("a/ah");

#[derive(Debug, Default)]
pub struct PaintTee {
    color: u8,
    at: usize,
}

impl Element for PaintTee {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("COLOR", &mut self.color);
        self.at = paint_annotation(args);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        for packet in burst.iter().filter(|packet| packet.notes().u8(self.at) == self.color) {
            cx.push(1, packet.clone());
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::field("color", |e: &mut Self| &mut e.color).error("syntax error")].into()
    }
}
