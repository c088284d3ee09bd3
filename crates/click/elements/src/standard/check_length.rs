//! `CheckLength(LENGTH, EXTRA_LENGTH)`: sends packets longer than LENGTH to output 1, or drops them.
//!
//! Ports: one input; one output, push or pull, and optionally a push output.
//!
//! Arguments:
//! - `LENGTH`: maximum length in bytes.
//! - `EXTRA_LENGTH`: whether the extra length annotation counts; false by default.
//!
//! Handlers: `length` (read, write).
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("CheckLength", || Box::<CheckLength>::default())
    .ports("1/1-2")
    .processing("a/ah")
    .live()
    .metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct CheckLength {
    most: u32,
    extra: bool,
}

impl Element for CheckLength {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.read_mp("LENGTH", &mut self.most);
        args.read("EXTRA_LENGTH", &mut self.extra);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        burst.filter_map(|packet| {
            let extra = if self.extra { packet.notes().u32(Annotations::EXTRA_LENGTH) } else { 0 };
            if packet.len() as u64 + u64::from(extra) <= u64::from(self.most) {
                return Some(packet);
            }
            cx.push(1, packet);
            None
        });
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::field("length", |e: &mut Self| &mut e.most)].into()
    }
}
