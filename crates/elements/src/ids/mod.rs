//! Elements that search packets for patterns.
use ringway_click::Class;

pub mod ids_matcher;
mod patterns;
mod streams;
mod windows;

pub const CLASSES: &[&Class] = &[&ids_matcher::CLASS];
