//! `SimpleIdle`: drops what is pushed to it and gives nothing when pulled, and tells nobody so.
//!
//! Ports: any number of inputs and outputs, each push or pull. No arguments, no handlers.
use crate::{Class, Context, Element, Metadata, PacketBurst};
use alloc::boxed::Box;

/// Facts.
pub static CLASS: Class = Class::new("SimpleIdle", || Box::new(SimpleIdle))
    .ports("-/-")
    .processing("a/a")
    .flow("x/y")
    .metadata(Metadata::Ignores);

/// Never does anything.
#[derive(Debug)]
pub struct SimpleIdle;

impl Element for SimpleIdle {
    fn push(&mut self, _: usize, burst: &mut PacketBurst, _: &mut Context<'_>) {
        burst.clear();
    }

    fn pull(&mut self, _: usize, _: usize, _: &mut PacketBurst, _: &mut Context<'_>) {}
}
