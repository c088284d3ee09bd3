//! `IPNameInfo`: holds the names of IP protocols, ports, ICMP types and codes, which are known in any case.
//!
//! No ports, no arguments, no handlers. It is there for old configurations.
use alloc::boxed::Box;
use ringway_click::{Class, Element};

pub static CLASS: Class = Class::new("IPNameInfo", || Box::<IpNameInfo>::default()).phase(Class::INFO);

/// Holds names.
#[derive(Debug, Default)]
pub struct IpNameInfo;

impl Element for IpNameInfo {}
