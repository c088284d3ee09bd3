//! `SetAnnoByte(ANNO, VALUE)`: sets a byte of packets' annotations.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `ANNO`: a one-byte annotation, by name or offset.
//! - `VALUE`: 0 to 255.
//!
//! Handlers: `anno` (read): its offset; `value` (read, write).
use ringway_click::arg::{Annotation, MANDATORY_POSITIONAL};
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("SetAnnoByte", || Box::<SetAnnoByte>::default()).ports("1/1").live();

#[derive(Debug, Default)]
pub struct SetAnnoByte {
    at: usize,
    value: u8,
}

impl Element for SetAnnoByte {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let mut annotation = Annotation::default();
        let byte = |text: &str, scope: &_| Annotation::of_size(text, 1, scope);
        args.read_with("ANNO", MANDATORY_POSITIONAL, &mut annotation, byte);
        args.read_mp("VALUE", &mut self.value);
        self.at = annotation.offset;
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.iter_mut().for_each(|packet| packet.notes_mut().set_u8(self.at, self.value));
    }

    fn handlers(&self) -> Vec<Handler> {
        [
            Handler::read("anno", |e: &Self| e.at.to_string()),
            Handler::field("value", |e: &mut Self| &mut e.value),
        ]
        .into()
    }
}
