//! `ClickyInfo(...)`: how the program Clicky draws a configuration; has no effect here.
//!
//! Ports: none. Arguments: any.
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("ClickyInfo", || Box::new(ClickyInfo)).reach(Reach::Each);

#[derive(Clone, Copy, Debug)]
pub struct ClickyInfo;

impl Element for ClickyInfo {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        args.take_rest();
        args.complete()
    }
}
