//! The fabric file, the control API, guests: the control process.

pub mod file;
pub mod guest;
