//! `Idle`: drops pushed packets, and returns none when pulled.
//!
//! Ports: any number of inputs and outputs, each push or pull. No arguments.
//!
//! Handlers: `count` (read): dropped packets.
use ringway_click::prelude::*;
use ringway_click::{NoteKind, Search};

pub static CLASS: Class = Class::new("Idle", || Box::<Idle>::default())
    .ports("-/-")
    .processing("a/a")
    .flow("x/y")
    .metadata(Metadata::Ignores);

#[derive(Debug, Default)]
pub struct Idle {
    count: u64,
    /// Whether it provides no empty notifier.
    silent: bool,
}

impl Idle {
    /// An element without an empty notifier.
    pub(super) fn silent() -> Self {
        Self { silent: true, ..Self::default() }
    }
}

impl Element for Idle {
    fn configure(&mut self, args: &mut Args, cx: &mut Context<'_>) -> Result<(), Failed> {
        if !self.silent {
            let note = cx.new_note(NoteKind::Empty, Search::Stop);
            cx.sleep(note);
        }
        args.complete()
    }

    fn push(&mut self, _: usize, burst: &mut PacketBurst, _: &mut Context<'_>) {
        self.count += burst.len() as u64;
        burst.clear();
    }

    fn pull(&mut self, _: usize, _: usize, _: &mut PacketBurst, _: &mut Context<'_>) {}

    fn handlers(&self) -> Vec<Handler> {
        [Handler::counter("count", |e: &mut Self| &mut e.count)].into()
    }
}
