//! The elements, a file each, in groups; each group lists its classes.
use crate::Class;

mod check;
pub mod ethernet;
pub mod icmp;
pub mod ip;
pub mod ip6;
mod packet;
pub mod rate;
pub mod rewriter;
mod stamp;
pub mod standard;

/// Every group's classes.
pub const GROUPS: &[&[&Class]] =
    &[standard::CLASSES, ethernet::CLASSES, ip::CLASSES, icmp::CLASSES, ip6::CLASSES, rewriter::CLASSES];

#[cfg(test)]
mod tests;
