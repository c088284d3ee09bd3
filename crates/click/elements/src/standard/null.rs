//! `Null`: passes packets on unchanged.
//!
//! Ports: one input, one output, push or pull. No arguments, no handlers.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("Null", || Box::new(Null)).ports("1/1").passed();

#[derive(Debug)]
pub struct Null;

impl Element for Null {}
