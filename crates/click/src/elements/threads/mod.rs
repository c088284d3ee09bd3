//! Elements that say which thread does what.
use crate::Class;

pub mod static_thread_sched;

/// This group's classes, by name.
pub const CLASSES: &[&Class] = &[&static_thread_sched::CLASS];
