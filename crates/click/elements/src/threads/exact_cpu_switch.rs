//! `ExactCPUSwitch`: sends packets to the output of the current thread, counting only threads that push to the element
//! (FastClick). Connected elements run on one thread here, so that is output 0.
//!
//! Ports: one push input, one or more push outputs. No arguments, no handlers.
use super::cpu_switch::CpuSwitch;
use alloc::boxed::Box;
use ringway_click::Class;

pub static CLASS: Class =
    Class::new("ExactCPUSwitch", || Box::<CpuSwitch>::default()).ports("1/1-").processing("h");
