//! Elements that measure traffic: they look at timestamps and at aggregates, numbers that stand for a packet's flow
//! or network.
use crate::Class;

pub mod aggregate_ip_flows;
pub mod aggregate_length;
pub mod aggregate_paint;
mod fragments;
pub mod time_filter;

/// This group's classes, by name.
pub const CLASSES: &[&Class] =
    &[&aggregate_ip_flows::CLASS, &aggregate_length::CLASS, &aggregate_paint::CLASS, &time_filter::CLASS];

#[cfg(test)]
mod tests;
