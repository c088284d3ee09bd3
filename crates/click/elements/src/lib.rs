//! Click's element classes that need no operating system, one file each, in groups.
//!
//! [`registry`] has all of them. The crate uses only the public interface of `ringway-click`, the runtime, so an
//! element outside of this tree has the same abilities. Read `standard/strip.rs` first: it is a complete element.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

use ringway_click::{Class, Documentation, Registry};

mod aliases;
mod analysis;
mod aqm;
mod check;
mod control;
mod departures;
mod ethernet;
mod field;
mod flow;
mod icmp;
mod ids;
mod information;
mod ip;
mod ip6;
mod packet;
mod perflow;
pub mod platform;
mod ppp;
mod printout;
mod rate;
mod rewriter;
mod search;
mod shape;
mod standard;
pub mod summary;
mod tcpudp;
mod threads;
mod token_bucket;
mod tunnel;

pub use ip::parse_protocol;

/// Every `CLASS` of this crate, in the order of groups and files.
const CLASSES: &[&Class] = include!(concat!(env!("OUT_DIR"), "/classes.rs"));

/// The documentation of this crate's classes.
const DOCUMENTATION: Documentation = include!(concat!(env!("OUT_DIR"), "/documentation.rs"));

/// A registry of this crate's classes, with their documentation.
pub fn registry() -> Registry {
    let mut registry = classes();
    registry.document(DOCUMENTATION);
    registry
}

/// A registry of this crate's classes. The documentation, which is large, is not part of programs that call only this.
pub fn classes() -> Registry {
    let mut registry = Registry::empty();
    registry.add(CLASSES);
    registry.add(aliases::ALIASES);
    registry
}

#[cfg(test)]
mod tests;
