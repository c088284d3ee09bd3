//! Sources of TCP and UDP packets for measurements, and elements for transport headers.
pub mod fast_tcp_flows;
pub mod fast_udp_flows;
pub mod fast_udp_source;
mod flows;
mod pace;
pub mod strip_transport_header;
pub mod tcp_fragmenter;
pub mod tcp_ip_send;
pub(crate) mod template;
#[cfg(test)]
mod tests;
pub mod toy_tcp;
pub mod unstrip_transport_header;
pub mod web_gen;
