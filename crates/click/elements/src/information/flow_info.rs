//! `FlowInfo(...)`: flow codes for programs that read configurations; has no effect here.
//!
//! Ports: none. Arguments: any.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("FlowInfo", || Box::new(FlowInfo)).reach(Reach::Each);

#[derive(Clone, Copy, Debug)]
pub struct FlowInfo;

impl Element for FlowInfo {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.take_rest();
        args.complete()
    }
}
