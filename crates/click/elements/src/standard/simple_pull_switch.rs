//! `SimplePullSwitch(INPUT)`: pulls from one input, which a handler selects, without notification of emptiness.
//!
//! Ports: any number of pull inputs, one pull output.
//!
//! Arguments:
//! - `INPUT`: the input; 0 by default, negative for none.
//!
//! Handlers: `switch` (read, write), `config` (read): the input.
use super::pull_switch::PullSwitch;
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("SimplePullSwitch", || Box::new(PullSwitch::silent())).ports("-/1").processing("l").live();
