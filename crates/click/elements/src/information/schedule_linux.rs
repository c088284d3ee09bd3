//! `ScheduleLinux(...)`: yields to other processes in Click's kernel module; has no effect here.
//!
//! Ports: none. Arguments: any.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("ScheduleLinux", || Box::new(ScheduleLinux)).reach(Reach::Each);

#[derive(Clone, Copy, Debug)]
pub struct ScheduleLinux;

impl Element for ScheduleLinux {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.take_rest();
        args.complete()
    }
}
