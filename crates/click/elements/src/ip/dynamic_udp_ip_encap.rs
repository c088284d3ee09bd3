//! `DynamicUDPIPEncap(SRC, SPORT, DST, DPORT, CHECKSUM, INTERVAL)`: prepends UDP and IPv4 headers to packets, with
//! increasing ports.
//!
//! Ports, arguments and handlers: those of `UDPIPEncap`, and
//! - `INTERVAL`: number of packets after which both ports are incremented; never if 0, as by default.
use super::udp_ip_encap::UdpIpEncap;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("DynamicUDPIPEncap", || Box::new(UdpIpEncap::dynamic()))
    .ports("1/1")
    .flags("A")
    .live()
    .metadata(Metadata::Resolve);
