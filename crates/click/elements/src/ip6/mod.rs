//! Elements for IPv6 headers and neighbor discovery.
use ringway_click::Class;

pub mod address_translator;
pub mod check_ip6_header;
pub mod dec_ip6_hlim;
pub mod get_ip6_address;
pub mod icmp6_error;
pub mod ip6_encap;
pub mod ip6_fragmenter;
pub mod ip6_mirror;
pub mod ip6_nd_advertiser;
pub mod ip6_nd_solicitor;
pub mod ip6_print;
pub mod lookup_ip6_route;
pub mod mark_ip6_header;
mod neighbor;
pub mod protocol_translator46;
pub mod protocol_translator64;
pub mod set_ip6_address;
pub mod set_ip6_dscp;
mod siit;
mod translator;
pub mod udp_ip6_encap;

pub const CLASSES: &[&Class] = &[
    &address_translator::CLASS,
    &check_ip6_header::CLASS,
    &dec_ip6_hlim::CLASS,
    &get_ip6_address::CLASS,
    &icmp6_error::CLASS,
    &ip6_encap::CLASS,
    &ip6_fragmenter::CLASS,
    &ip6_mirror::CLASS,
    &ip6_nd_advertiser::CLASS,
    &ip6_nd_solicitor::CLASS,
    &ip6_print::CLASS,
    &lookup_ip6_route::CLASS,
    &mark_ip6_header::CLASS,
    &protocol_translator46::CLASS,
    &protocol_translator64::CLASS,
    &set_ip6_address::CLASS,
    &set_ip6_dscp::CLASS,
    &udp_ip6_encap::CLASS,
];
