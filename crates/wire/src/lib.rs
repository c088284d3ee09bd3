//! Headers, checksums, flows and capture files.
//!
//! Each header has two layers: a checked view of bytes, whose constructor has done all bounds checks, and a
//! `Repr` of legal values that can be parsed from a view and emitted again. Field names are those of the
//! header's RFC. Views borrow plain slices, so bytes that a peer can write are copied first.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod arp;
pub mod checksum;
mod error;
pub mod ethernet;
pub mod flow;
pub mod icmpv4;
pub mod icmpv6;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
mod mac;
pub mod pcap;
pub mod pcapng;
pub mod tcp;
pub mod tcp_option;
pub mod udp;
pub mod vlan;

mod bytes;

pub use checksum::Sum;
pub use error::WireError;
pub use mac::{MacAddress, MacAddressError};
