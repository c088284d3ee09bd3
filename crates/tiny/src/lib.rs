//! The tiny guest's roles and drivers, which need no operating system; the image itself is `main.rs`.
//!
//! The guest's command line names a [`Role`] and its settings; [`run`] plays the role on a [`Link`] and reports
//! with one line of text. Read `role.rs` first.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod e1000;
mod frame;
mod link;
mod program;
mod role;
mod settings;

pub use e1000::{E1000, Mapped, Registers};
pub use link::{Link, LinkError};
pub use program::ProgramRing;
pub use role::{Machine, run};
pub use settings::{Role, Settings, SettingsError};
