//! Elements that need an operating system, a file each.
use ringway_click::Class;

/// This crate's classes, by name.
pub const CLASSES: &[&Class] = &[];
