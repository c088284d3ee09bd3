//! `Null`: passes packets on unchanged.
//!
//! Ports: one input, one output, push or pull. No arguments, no handlers.
use alloc::boxed::Box;
use ringway_click::{Class, Element};

pub static CLASS: Class = Class::new("Null", || Box::new(Null)).ports("1/1").passed();

#[derive(Debug)]
pub struct Null;

impl Element for Null {}
