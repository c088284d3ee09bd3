//! `Truncate(LENGTH, EXTRA_LENGTH)`: truncates packets.
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `LENGTH`: maximum length in bytes.
//! - `EXTRA_LENGTH`: whether the removed bytes are added to the extra length annotation; true by default.
//!
//! Handlers: `nbytes` (read, write): LENGTH.
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("Truncate", || Box::<Truncate>::default()).ports("1/1").live().metadata(Metadata::Resolve);

#[derive(Debug, Default)]
pub struct Truncate {
    length: u32,
    extra: bool,
}

impl Element for Truncate {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        self.extra = true;
        args.read_mp("LENGTH", &mut self.length);
        args.read("EXTRA_LENGTH", &mut self.extra);
        args.complete()
    }

    fn action(&mut self, burst: &mut PacketBurst, _: &mut Context<'_>) {
        for packet in burst.iter_mut() {
            let cut = packet.len().saturating_sub(self.length as usize);
            packet.take(cut);
            if self.extra && cut > 0 {
                let extra = packet.notes().u32(Annotations::EXTRA_LENGTH);
                packet.notes_mut().set_u32(Annotations::EXTRA_LENGTH, extra.saturating_add(cut as u32));
            }
        }
    }

    fn handlers(&self) -> Vec<Handler> {
        [Handler::field("nbytes", |e: &mut Self| &mut e.length)].into()
    }
}
