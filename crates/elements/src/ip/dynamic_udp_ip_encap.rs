//! `DynamicUDPIPEncap(SRC, SPORT, DST, DPORT, CHECKSUM, INTERVAL)`: puts UDP and IPv4 headers before
//! packets, with ports that grow.
//!
//! Ports, arguments and handlers: those of `UDPIPEncap`, and
//! - `INTERVAL`: after so many packets both ports grow by one; never if 0, as by default.
use super::udp_ip_encap::UdpIpEncap;
use alloc::boxed::Box;
use ringway_click::{Class, Metadata};

pub static CLASS: Class = Class::new("DynamicUDPIPEncap", || Box::new(UdpIpEncap::dynamic()))
    .ports("1/1")
    .flags("A")
    .live()
    .metadata(Metadata::Resolve);
