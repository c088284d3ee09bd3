//! This program's own elements, one file each.
use ringway_click::{Class, Documentation};

pub mod size_histogram;

/// Their classes.
pub const CLASSES: &[&Class] = &[&size_histogram::CLASS];

/// Their documentation.
pub const DOCUMENTATION: Documentation = include!(concat!(env!("OUT_DIR"), "/documentation.rs"));
