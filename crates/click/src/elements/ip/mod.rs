//! Elements that read and write IP headers.
use crate::Class;

pub mod check_ip_header;

/// This group's classes, by name.
pub const CLASSES: &[&Class] = &[&check_ip_header::CLASS];
