//! `CheckPaint(COLOR, ANNO)`: sends packets whose paint annotation is not COLOR to output 1, or drops them.
//!
//! Ports: one input; one output, push or pull, and optionally a push output.
//!
//! Arguments: as for `Paint`.
//!
//! Handlers: `color` (read, write).
use super::paint::paint_annotation;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("CheckPaint", || Box::<CheckPaint>::default()).ports("1/1-2").processing("a/ah");

#[derive(Debug, Default)]
pub struct CheckPaint {
    color: u8,
    at: usize,
}

impl Element for CheckPaint {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("COLOR", &mut self.color);
        self.at = paint_annotation(args);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        burst.filter_map(|packet| {
            if packet.notes().u8(self.at) == self.color {
                return Some(packet);
            }
            cx.push(1, packet);
            None
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::field("color", |e: &mut Self| &mut e.color).error("syntax error")].into()
    }
}
