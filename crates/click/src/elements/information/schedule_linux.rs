//! `ScheduleLinux(...)`: tells that other processes run too, which they do anyway; it does nothing here.
//!
//! Ports: none. Arguments: any.
use crate::arg::Args;
use crate::{Class, Context, Element, Failed, Reach};
use alloc::boxed::Box;

/// Facts.
pub static CLASS: Class = Class::new("ScheduleLinux", || Box::new(ScheduleLinux)).reach(Reach::Each);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct ScheduleLinux;

impl Element for ScheduleLinux {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.take_rest();
        args.complete()
    }
}
