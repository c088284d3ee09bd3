//! Click's configuration language: converts text to a flat graph of elements, or to errors with positions.
//!
//! The language is that of Click's manual page click(5). Names of anonymous elements, the order of elements
//! and connections, and error texts equal Click's, since configurations, tests and tools depend on them. The
//! crate does not depend on a runtime: it queries element classes through traits. [`Limits`] bound the
//! resources that a configuration can use. [`Source`] is the entry point; read `source.rs` first, then
//! `parse/mod.rs`.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod archive;
pub mod check;
pub mod config;
mod diagnostic;
mod elaborate;
mod environment;
mod graph;
mod landmark;
mod lexer;
mod limits;
pub mod near;
mod parse;
mod source;
pub mod tools;
mod tree;
mod unparse;

pub use diagnostic::{Diagnostic, Diagnostics, Severity};
pub use environment::{Anything, Environment};
pub use graph::{Connection, Element, Graph, Port, Requirement};
pub use landmark::Landmark;
pub use limits::Limits;
pub use source::{Parsed, Source};
