//! `ICMPSendPings(SRC, DST, INTERVAL, IDENTIFIER, DATA, LIMIT, ACTIVE, VERBOSE, STOP, MIRROR)`: sends ICMP echo
//! requests; an older name of ICMPPingSource.
//!
//! Ports, arguments and handlers: those of `ICMPPingSource`.
use super::icmp_ping_source::IcmpPingSource;
use alloc::boxed::Box;
use ringway_click::{Class, Metadata};

pub static CLASS: Class = Class::new("ICMPSendPings", || Box::<IcmpPingSource>::default())
    .ports("0-1/1")
    .processing("h/a")
    .flags("S1")
    .metadata(Metadata::Ignores);
