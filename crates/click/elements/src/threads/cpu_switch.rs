//! `CPUSwitch`: sends packets to the output with the number of the current thread. Connected elements are always run
//! by one thread here, so this is output 0.
//!
//! Ports: one push input, one or more push outputs. No arguments, no handlers.
use ringway_click::prelude::*;

pub static CLASS: Class =
    Class::new("CPUSwitch", || Box::<CpuSwitch>::default()).ports("1/1-").processing("h");

#[derive(Clone, Copy, Debug, Default)]
pub struct CpuSwitch;

impl Element for CpuSwitch {}
