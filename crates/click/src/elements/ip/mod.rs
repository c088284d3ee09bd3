//! Elements that read and write IP headers.
use crate::Class;

/// This group's classes, by name.
pub const CLASSES: &[&Class] = &[];
