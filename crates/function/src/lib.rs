//! Functions: Click configurations that run under an operating system.
//!
//! [`click`] is the driver: what Click's program `click` does. Elements that need an operating system live in
//! [`elements`].

mod attachment;
pub mod click;
pub mod elements;
pub mod file;
pub mod handed;
