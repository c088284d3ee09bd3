//! `SimplePrioSched`: pulls from the first input that has a packet. It neither uses nor provides notification of empty
//! inputs.
//!
//! Ports: any number of pull inputs, one pull output. No arguments, no handlers.
use super::prio_sched::PrioSched;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("SimplePrioSched", || Box::new(PrioSched::asking_all())).ports("-/1").processing("l");
