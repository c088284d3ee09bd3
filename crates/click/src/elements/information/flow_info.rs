//! `FlowInfo(...)`: tells flow codes for programs that read configurations; it does nothing here.
//!
//! Ports: none. Arguments: any.
use crate::arg::Args;
use crate::{Class, Context, Element, Failed, Reach};
use alloc::boxed::Box;

/// Facts.
pub static CLASS: Class = Class::new("FlowInfo", || Box::new(FlowInfo)).reach(Reach::Each);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct FlowInfo;

impl Element for FlowInfo {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.take_rest();
        args.complete()
    }
}
