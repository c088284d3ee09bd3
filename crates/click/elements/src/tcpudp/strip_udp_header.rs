//! `StripUDPHeader`: the same as StripTransportHeader (FastClick).
//!
//! Ports: one input, one output, push or pull. Packets without a complete TCP, UDP or ICMP header pass unchanged.
//!
//! No arguments, no handlers. UnstripTransportHeader restores the header.
use super::strip_transport_header::StripTransportHeader;
use alloc::boxed::Box;
use ringway_click::{Class, Metadata};

pub static CLASS: Class = Class::new("StripUDPHeader", || Box::<StripTransportHeader>::default())
    .ports("1/1")
    .metadata(Metadata::Resolve);
