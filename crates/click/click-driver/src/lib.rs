//! Functions: Click configurations that run under an operating system.
//!
//! [`click`] is the driver, which corresponds to Click's program `click`; [`elements`] has the elements that
//! need an operating system; [`golden`] tests configurations, [`trial`] runs one with a single frame. Read
//! `click/mod.rs` first.

mod attachment;
pub mod click;
pub mod elements;
pub mod file;
pub mod golden;
pub mod inherited;
pub mod trial;
