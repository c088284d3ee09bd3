//! `ListenEtherSwitch(TIMEOUT)`: a learning Ethernet switch that copies every frame to an additional output.
//!
//! Ports: any number of push inputs, the same number of push outputs, and one additional output.
//!
//! Arguments and handlers: those of `EtherSwitch`.
use super::ether_switch::EtherSwitch;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("ListenEtherSwitch", || Box::new(EtherSwitch::new(true)))
    .ports("-/=+")
    .processing("h")
    .flow("#/[^#]")
    .live();
