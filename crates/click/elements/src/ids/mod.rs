//! Elements that search packets for patterns.
use ringway_click::Class;

pub mod ids_matcher;
pub mod ids_rules;
mod patterns;
mod rule;
mod streams;
mod windows;

pub const CLASSES: &[&Class] = &[&ids_matcher::CLASS, &ids_rules::CLASS];
