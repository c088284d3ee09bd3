//! Elements that control a configuration: scripts, errors, messages.
pub mod driver_manager;
pub mod error;
pub mod message;
pub mod random_seed;
pub mod script;
