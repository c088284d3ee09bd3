//! Headers, checksums, flows and capture files. Read `header.rs` first, then `ipv4.rs`.
//!
//! Each header is a struct with the field names of its RFC. [`Header::of`] and its variants check the length
//! once and return a view of the bytes, whose fields are read and written in place. Bytes that a peer can
//! write must be copied first.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod arp;
pub mod bootp;
pub mod checksum;
pub mod ethernet;
pub mod fields;
pub mod filter;
pub mod flow;
mod header;
pub mod icmp;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
mod mac;
pub mod pcap;
pub mod pcapng;
pub mod stp;
pub mod summary;
pub mod tcp;
pub mod tunnel;
pub mod udp;
pub mod vlan;

mod bytes;

pub use arp::Arp;
pub use bootp::Bootp;
pub use checksum::Sum;
pub use ethernet::{EtherType, Ethernet};
pub use header::Header;
pub use icmp::{Icmp, Prefix};
pub use ip::Protocol;
pub use ipv4::Ipv4;
pub use ipv6::Ipv6;
pub use mac::{MacAddress, MacAddressError};
pub use tcp::Tcp;
pub use udp::Udp;
pub use vlan::Vlan;
pub use zerocopy::big_endian::{U16, U32, U128};
