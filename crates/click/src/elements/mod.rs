//! The elements, a file each, in groups; each group lists its classes.
use crate::Class;

pub mod ip;
pub mod rate;
pub mod standard;

/// Every group's classes.
pub const GROUPS: &[&[&Class]] = &[standard::CLASSES, ip::CLASSES];
