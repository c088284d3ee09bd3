//! Sources of TCP and UDP packets for measurements, and elements for transport headers.
use ringway_click::Class;

pub mod fast_tcp_flows;
pub mod fast_udp_flows;
pub mod fast_udp_source;
mod flows;
mod pace;
pub mod strip_tcp_header;
pub mod strip_transport_header;
pub mod strip_udp_header;
pub mod tcp_fragmenter;
pub mod tcp_ip_send;
pub(crate) mod template;
#[cfg(test)]
mod tests;
pub mod toy_tcp;
pub mod unstrip_transport_header;
pub mod web_gen;

pub const CLASSES: &[&Class] = &[
    &fast_tcp_flows::CLASS,
    &fast_udp_flows::CLASS,
    &fast_udp_source::CLASS,
    &strip_tcp_header::CLASS,
    &strip_transport_header::CLASS,
    &strip_udp_header::CLASS,
    &tcp_fragmenter::CLASS,
    &tcp_ip_send::CLASS,
    &toy_tcp::CLASS,
    &unstrip_transport_header::CLASS,
    &web_gen::CLASS,
];
