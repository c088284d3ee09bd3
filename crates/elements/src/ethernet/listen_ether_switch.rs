//! `ListenEtherSwitch(TIMEOUT)`: a learning Ethernet switch that copies every frame to one more output.
//!
//! Ports: any number of push inputs, as many push outputs, and one more output.
//!
//! Arguments and handlers: those of `EtherSwitch`.
use super::ether_switch::EtherSwitch;
use alloc::boxed::Box;
use ringway_click::Class;

pub static CLASS: Class = Class::new("ListenEtherSwitch", || Box::new(EtherSwitch::new(true)))
    .ports("-/=+")
    .processing("h")
    .flow("#/[^#]")
    .live();
