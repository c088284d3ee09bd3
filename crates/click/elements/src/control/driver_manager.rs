//! `DriverManager(INSTRUCTIONS...)`: a script that decides what happens when the driver is asked to stop.
//!
//! Ports: none.
//!
//! Arguments: instructions, see `Script`; its type is `DRIVER`. Whenever the driver is about to stop, the script
//! continues by one step; the driver stops when the script has ended.
//!
//! Handlers: those of `Script`.
use super::script::Script;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("DriverManager", || Box::new(Script::manager())).reach(Reach::Whole);
