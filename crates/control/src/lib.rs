//! The control process: the fabric file, the control API, and what the fabric consists of.

pub mod api;
mod change;
mod control;
mod data;
mod engine;
pub mod file;
pub mod function;
mod functions;
mod guests;
pub mod kinds;
mod lookups;
pub mod open;
mod pages;
mod placement;
pub mod run_dir;

pub use control::{ControlError, Options, Program, run};
