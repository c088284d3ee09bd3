//! `AlignmentInfo(...)`: the results of Click's `click-align`; has no effect here.
//!
//! Ports: none. Arguments: any.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("AlignmentInfo", || Box::new(AlignmentInfo)).reach(Reach::Each);

#[derive(Clone, Copy, Debug)]
pub struct AlignmentInfo;

impl Element for AlignmentInfo {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.take_rest();
        args.complete()
    }
}
