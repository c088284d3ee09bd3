//! Elements for ICMP over IPv4.
pub mod check_icmp_header;
pub mod icmp_error;
pub mod icmp_ip_encap;
pub mod icmp_ping_encap;
pub mod icmp_ping_responder;
pub mod icmp_ping_source;
pub(crate) mod message;
