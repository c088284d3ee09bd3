//! Active queue management.
use ringway_click::Class;

pub mod adaptive_red;
pub mod co_del;
mod queues;
pub mod red;

pub const CLASSES: &[&Class] = &[&adaptive_red::CLASS, &co_del::CLASS, &red::CLASS];
