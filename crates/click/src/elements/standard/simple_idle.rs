//! `SimpleIdle`: drops what is pushed to it and gives nothing when pulled, and tells nobody so.
//!
//! Ports: any number of inputs and outputs, each push or pull. No arguments.
//!
//! Handlers: `count` (read): packets dropped.
use crate::{Class, Context, Element, Handler, HandlerError, Metadata, PacketBurst};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Facts.
pub static CLASS: Class = Class::new("SimpleIdle", || Box::<SimpleIdle>::default())
    .ports("-/-")
    .processing("a/a")
    .flow("x/y")
    .metadata(Metadata::Ignores);

/// Never does anything.
#[derive(Debug, Default)]
pub struct SimpleIdle {
    count: u64,
}

impl Element for SimpleIdle {
    fn push(&mut self, _: usize, burst: &mut PacketBurst, _: &mut Context<'_>) {
        self.count += burst.len() as u64;
        burst.clear();
    }

    fn pull(&mut self, _: usize, _: usize, _: &mut PacketBurst, _: &mut Context<'_>) {}

    fn handlers(&self) -> Vec<Handler> {
        [Handler::read("count")].into()
    }

    fn read(&mut self, _: &str, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(self.count.to_string())
    }
}
