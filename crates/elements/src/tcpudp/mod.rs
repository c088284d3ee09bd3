//! Sources of TCP and UDP packets, for measurements.
use ringway_click::Class;

pub mod fast_tcp_flows;
pub mod fast_udp_flows;
pub mod fast_udp_source;
mod flows;
mod pace;
pub mod tcp_fragmenter;
pub mod tcp_ip_send;
mod template;

/// This group's classes, by name.
pub const CLASSES: &[&Class] = &[
    &fast_tcp_flows::CLASS,
    &fast_udp_flows::CLASS,
    &fast_udp_source::CLASS,
    &tcp_fragmenter::CLASS,
    &tcp_ip_send::CLASS,
];
