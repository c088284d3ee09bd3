//! `FlowStrip(LENGTH)`: removes bytes from the front of packets, as Strip (FastClick).
//!
//! Ports: one input, one output, push or pull.
//!
//! Arguments:
//! - `LENGTH`: number of bytes; shorter packets become empty.
//!
//! No handlers.
use crate::standard::strip::Strip;
use alloc::boxed::Box;
use ringway_click::Class;

pub static CLASS: Class = Class::new("FlowStrip", || Box::<Strip>::default()).ports("1/1");
