//! `Paint(COLOR, ANNO)`: sets packets' paint annotation.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `COLOR`: 0 to 255.
//! - `ANNO`: another one-byte annotation; `PAINT` by default.
//!
//! Handlers: `color` (read, write).
use ringway_click::arg::{Annotation, POSITIONAL};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("Paint", || Box::<Paint>::default()).ports("1/1").live();

/// Parses ANNO: the offset of a one-byte annotation.
pub(super) fn paint_annotation(args: &mut Args) -> usize {
    let mut annotation = Annotation { offset: Annotations::PAINT, size: 1 };
    args.read_with("ANNO", POSITIONAL, &mut annotation, |text, scope| Annotation::of_size(text, 1, scope));
    annotation.offset
}

#[derive(Debug, Default)]
pub struct Paint {
    color: u8,
    at: usize,
}

impl Element for Paint {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("COLOR", &mut self.color);
        self.at = paint_annotation(args);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.iter_mut().for_each(|packet| packet.notes_mut().set_u8(self.at, self.color));
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::field("color", |e: &mut Self| &mut e.color).error("syntax error")].into()
    }
}
