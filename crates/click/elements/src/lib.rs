//! Click's element classes that need no operating system, one file each, in groups; each group lists its classes.
//!
//! [`registry`] has all of them. The crate uses only the public interface of `ringway-click`, the runtime, so an
//! element outside of this tree has the same abilities. Read `standard/strip.rs` first: it is a complete element.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

use ringway_click::{Class, Documentation, Registry};

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

/// Every group's classes.
const GROUPS: &[&[&Class]] = &[
    control::CLASSES,
    information::CLASSES,
    threads::CLASSES,
    standard::CLASSES,
    ethernet::CLASSES,
    ip::CLASSES,
    icmp::CLASSES,
    ip6::CLASSES,
    rewriter::CLASSES,
    analysis::CLASSES,
    aqm::CLASSES,
    flow::CLASSES,
    perflow::CLASSES,
    ids::CLASSES,
    tcpudp::CLASSES,
    tunnel::CLASSES,
    ppp::CLASSES,
];

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
    for group in GROUPS {
        registry.add(group);
    }
    registry
}

#[cfg(test)]
mod tests;
