//! Elements that search packets for patterns.
use ringway_click::Class;

pub mod ids_matcher;
mod patterns;
mod streams;
mod windows;

/// This group's classes, by name.
pub const CLASSES: &[&Class] = &[&ids_matcher::CLASS];
