//! Elements that read and write IPv4 headers.
pub use names::parse_protocol;

use core::net::Ipv4Addr;
use ringway_click::arg::{Arg, ArgError, Prefix, Scope};
use ringway_click::prelude::*;

pub mod check_ip_header;
pub mod check_ip_header2;
pub mod check_tcp_header;
pub mod check_udp_header;
pub mod dec_ip_ttl;
pub mod dynamic_udp_ip_encap;
pub(crate) mod encap;
pub mod erase_ip_payload;
mod filter;
pub mod fix_ip_src;
pub mod get_ip_address;
pub mod ip_classifier;
pub mod ip_encap;
pub mod ip_filter;
pub mod ip_fragmenter;
pub mod ip_gw_options;
pub mod ip_input_combo;
mod ip_line;
pub mod ip_mirror;
pub mod ip_name_info;
pub mod ip_output_combo;
pub mod ip_print;
pub mod ip_reassembler;
pub mod mark_ip_ce;
pub mod mark_ip_header;
pub(crate) mod names;
pub mod radix_ip_lookup;
mod route_lines;
mod route_table;
mod route_trie;
pub mod set_ip_address;
pub mod set_ip_checksum;
pub mod set_ip_dscp;
pub mod set_ip_ecn;
pub mod set_rand_ip_address;
pub mod set_tcp_checksum;
pub mod set_udp_checksum;
pub mod static_ip_lookup;
pub mod store_ip_address;
pub mod strip_ip_header;
pub mod strip_to_network_header;
pub(crate) mod transport;
pub mod truncate_ip_payload;
pub mod udp_ip_encap;
pub mod unstrip_ip_header;

/// A prefix as Click prints it: with its length, or with its mask if the mask has holes.
pub(crate) fn prefix_text(prefix: &Prefix) -> String {
    match prefix.length() {
        Some(length) => format!("{}/{length}", prefix.address),
        None => format!("{}/{}", prefix.address, prefix.mask),
    }
}

/// Parses an address, which counts as a prefix of 32 bits, or a prefix. A name of both is read as the address.
pub(crate) fn bare_prefix(text: &str, scope: &Scope) -> Result<Prefix, ArgError> {
    match Ipv4Addr::parse(text, scope) {
        Ok(address) => Ok(Prefix { address, mask: Ipv4Addr::BROADCAST }),
        Err(_) => Prefix::parse(text, scope),
    }
}
