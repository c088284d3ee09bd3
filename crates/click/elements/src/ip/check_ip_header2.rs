//! `CheckIPHeader2(OFFSET, [keywords])`: like `CheckIPHeader`, but without checking the checksum.
//!
//! Ports, arguments and handlers: those of `CheckIPHeader`; `CHECKSUM` is false by default.
use super::check_ip_header::CheckIpHeader;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("CheckIPHeader2", || Box::new(CheckIpHeader::trusting()))
    .ports("1/1-2")
    .processing("a/ah")
    .flags("A")
    .metadata(Metadata::Keeps);
