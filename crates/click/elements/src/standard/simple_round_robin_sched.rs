//! `SimpleRoundRobinSched`: pulls from each input in turn. It neither uses nor provides notification of empty inputs.
//!
//! Ports: any number of pull inputs, one pull output. No arguments, no handlers.
use super::round_robin_sched::RoundRobinSched;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("SimpleRoundRobinSched", || Box::new(RoundRobinSched::asking_all()))
    .ports("-/1")
    .processing("l");
