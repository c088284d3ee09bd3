//! Emulated network cards.

mod drop;
mod linux;

use crate::keys::Group;

/// All groups of benchmarks.
pub const GROUPS: &[Group] = &[linux::E1000, linux::E1000E];
