//! Elements that rewrite addresses and ports, with flow tables.
use ringway_click::Class;

pub mod base;
mod change;
pub mod ftp_port_mapper;
pub mod icmp_ping_rewriter;
pub mod icmp_rewriter;
pub mod ip_addr_pair_rewriter;
pub mod ip_addr_rewriter;
pub mod ip_rewriter;
pub mod ip_rewriter_patterns;
pub mod key;
mod mapper;
pub mod pattern;
pub mod port_block_mapper;
pub mod round_robin_ip_mapper;
pub mod sequence;
pub mod source_ip_hash_mapper;
pub mod table;
pub mod tcp_rewriter;
pub mod udp_rewriter;

pub const CLASSES: &[&Class] = &[
    &ftp_port_mapper::CLASS,
    &icmp_ping_rewriter::CLASS,
    &icmp_rewriter::CLASS,
    &ip_addr_pair_rewriter::CLASS,
    &ip_addr_rewriter::CLASS,
    &ip_rewriter::CLASS,
    &ip_rewriter_patterns::CLASS,
    &port_block_mapper::CLASS,
    &round_robin_ip_mapper::CLASS,
    &source_ip_hash_mapper::CLASS,
    &tcp_rewriter::CLASS,
    &udp_rewriter::CLASS,
];
