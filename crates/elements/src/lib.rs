//! Click's element classes that need no operating system, a file each, in groups; each group lists its classes.
//!
//! [`registry`] has all of them. The crate uses only the public interface of `ringway-click`, the runtime, so an
//! element outside of this tree can do whatever one of these does. Read `standard/strip.rs` first: it is a whole
//! element.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

use ringway_click::{Class, Documentation, Registry};

pub mod analysis;
pub mod aqm;
mod check;
pub mod control;
pub mod ethernet;
mod field;
pub mod flow;
pub mod icmp;
pub mod ids;
pub mod information;
pub mod ip;
pub mod ip6;
mod packet;
pub mod rate;
pub mod rewriter;
mod shape;
mod stamp;
pub mod standard;
pub mod summary;
pub mod tcpudp;
pub mod threads;
mod token_bucket;
pub mod tunnel;

/// Every group's classes.
pub const GROUPS: &[&[&Class]] = &[
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
    ids::CLASSES,
    tcpudp::CLASSES,
    tunnel::CLASSES,
];

/// The documentation of this crate's classes.
const DOCUMENTATION: Documentation = include!(concat!(env!("OUT_DIR"), "/documentation.rs"));

/// A registry of this crate's classes.
pub fn registry() -> Registry {
    let mut registry = Registry::empty();
    for group in GROUPS {
        registry.add(group);
    }
    registry.document(DOCUMENTATION);
    registry
}

#[cfg(test)]
mod tests;
