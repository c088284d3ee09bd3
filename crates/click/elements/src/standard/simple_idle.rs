//! `SimpleIdle`: drops pushed packets, and returns none when pulled, without notification.
//!
//! Ports: any number of inputs and outputs, each push or pull. No arguments.
//!
//! Handlers: `count` (read): dropped packets.
use super::idle::Idle;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("SimpleIdle", || Box::new(Idle::silent()))
    .ports("-/-")
    .processing("a/a")
    .flow("x/y")
    .metadata(Metadata::Ignores);
