//! `Null`: passes packets on as they are.
//!
//! Ports: one input, one output, push or pull. No arguments, no handlers.
use crate::{Class, Element};
use alloc::boxed::Box;

/// Facts.
pub static CLASS: Class = Class::new("Null", || Box::new(Null)).ports("1/1").passed();

/// Does nothing.
#[derive(Debug)]
pub struct Null;

impl Element for Null {}
