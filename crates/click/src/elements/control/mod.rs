//! Elements that steer a configuration: scripts, errors, messages.
use crate::Class;

pub mod driver_manager;
pub mod script;

/// This group's classes, by name.
pub const CLASSES: &[&Class] = &[&driver_manager::CLASS, &script::CLASS];
