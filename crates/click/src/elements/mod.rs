//! The elements, a file each, in groups; each group lists its classes.
use crate::Class;

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

#[cfg(test)]
mod tests;
