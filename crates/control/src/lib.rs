//! The fabric file, the control API, guests: the control process.

pub mod api;
mod change;
mod control;
mod data;
mod engine;
pub mod file;
pub mod function;
mod functions;
pub mod guest;
mod guests;
pub mod kinds;
pub mod open;
mod pages;
pub mod place;
pub mod place_plugins;
pub mod run_dir;

pub use control::{ControlError, Options, Program, run};
