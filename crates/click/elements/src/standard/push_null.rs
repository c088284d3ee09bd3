//! `PushNull`: passes packets on unchanged.
//!
//! Ports: one push input, one push output. No arguments, no handlers.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("PushNull", || Box::new(PushNull)).ports("1/1").processing("h").passed();

#[derive(Clone, Copy, Debug)]
pub struct PushNull;

impl Element for PushNull {}
