//! Click's configuration language: text in, a flat graph of elements or positioned errors out.
//!
//! The language is that of Click's manual page click(5). Names of anonymous elements, the order of elements
//! and connections, and the texts of errors are Click's own, since configurations, tests and tools compare
//! them. The crate knows nothing of a runtime; what it must know about element classes it asks through
//! traits. Whatever a configuration could make long, deep or many is bounded by [`Limits`].
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
