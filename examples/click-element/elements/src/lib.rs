//! Elements of one's own, one file each. They need no operating system, so that the image of VMs has them too.
#![no_std]

extern crate alloc;

use ringway_click::{Class, Documentation};

pub mod size_histogram;

/// Their classes.
pub const CLASSES: &[&Class] = &[&size_histogram::CLASS];

/// Their documentation.
pub const DOCUMENTATION: Documentation = include!(concat!(env!("OUT_DIR"), "/documentation.rs"));
