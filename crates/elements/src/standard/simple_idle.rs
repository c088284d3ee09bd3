//! `SimpleIdle`: drops what is pushed to it and gives nothing when pulled, and tells nobody so.
//!
//! Ports: any number of inputs and outputs, each push or pull. No arguments.
//!
//! Handlers: `count` (read): packets dropped.
use super::idle::Idle;
use alloc::boxed::Box;
use ringway_click::{Class, Metadata};

pub static CLASS: Class = Class::new("SimpleIdle", || Box::new(Idle::silent()))
    .ports("-/-")
    .processing("a/a")
    .flow("x/y")
    .metadata(Metadata::Ignores);
