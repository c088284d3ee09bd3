//! `FlowUnstrip(LENGTH)`: restores bytes that FlowStrip removed, as Unstrip (FastClick).
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `LENGTH`: number of bytes; at most 65535.
//!
//! No handlers.
use crate::standard::unstrip::Unstrip;
use alloc::boxed::Box;
use ringway_click::Class;

pub static CLASS: Class = Class::new("FlowUnstrip", || Box::<Unstrip>::default()).ports("1/1");
