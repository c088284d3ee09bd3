//! Elements that control a configuration: scripts, errors, messages.
use ringway_click::Class;

pub mod driver_manager;
pub mod error;
pub mod message;
pub mod random_seed;
pub mod script;

pub const CLASSES: &[&Class] =
    &[&driver_manager::CLASS, &error::CLASS, &message::CLASS, &random_seed::CLASS, &script::CLASS];
