//! Elements for ICMP over IPv4.
use ringway_click::Class;

pub mod check_icmp_header;
pub mod icmp_error;
pub mod icmp_ip_encap;
pub mod icmp_ping_encap;
pub mod icmp_ping_responder;
pub mod icmp_ping_source;
pub mod icmp_send_pings;
pub(crate) mod message;

pub const CLASSES: &[&Class] = &[
    &check_icmp_header::CLASS,
    &icmp_error::CLASS,
    &icmp_ip_encap::CLASS,
    &icmp_ping_encap::CLASS,
    &icmp_ping_responder::CLASS,
    &icmp_ping_source::CLASS,
    &icmp_send_pings::CLASS,
];
