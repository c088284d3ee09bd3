//! `Idle`: drops what is pushed to it and gives nothing when pulled.
//!
//! Ports: any number of inputs and outputs, each push or pull. No arguments, no handlers.
use crate::{Class, Context, Element, Metadata, NoteKind, PacketBurst, Search, arg::Args, element::Failed};
use alloc::boxed::Box;

/// Facts.
pub static CLASS: Class = Class::new("Idle", || Box::new(Idle))
    .ports("-/-")
    .processing("a/a")
    .flow("x/y")
    .metadata(Metadata::Ignores);

/// Never does anything.
#[derive(Debug)]
pub struct Idle;

impl Element for Idle {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        let note = cx.new_note(NoteKind::Empty, Search::Stop);
        cx.sleep(note);
        args.complete()
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.clear();
    }

    fn pull(&mut self, _: usize, _: usize, _: &mut PacketBurst, _: &mut Context<'_>) {}
}
