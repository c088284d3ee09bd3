//! `FlowLock`: lets packets of a flow pass one at a time (FastClick). Downstream elements run on one thread here, so it
//! has no effect.
//!
//! Ports: one input, one output, push or pull. No arguments, no handlers.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("FlowLock", || Box::new(FlowLock)).ports("1/1").passed();

#[derive(Debug)]
pub struct FlowLock;

impl Element for FlowLock {}
