//! Elements that keep queues short: active queue management.
use crate::Class;

pub mod red;

/// This group's classes, by name.
pub const CLASSES: &[&Class] = &[&red::CLASS];
