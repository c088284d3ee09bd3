//! Elements that search packets for patterns.
pub mod ids_matcher;
pub mod ids_rules;
mod patterns;
mod rule;
mod streams;
mod windows;
