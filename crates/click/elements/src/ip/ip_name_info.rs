//! `IPNameInfo`: provides the names of IP protocols, ports, ICMP types and codes, which are always known here.
//!
//! No ports, no arguments, no handlers. It exists for compatibility with existing configurations.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("IPNameInfo", || Box::<IpNameInfo>::default()).phase(Class::INFO);

#[derive(Debug, Default)]
pub struct IpNameInfo;

impl Element for IpNameInfo {}
