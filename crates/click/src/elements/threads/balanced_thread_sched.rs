//! `BalancedThreadSched(INTERVAL, INCREASING)`: shares tasks out among threads by what they cost. One thread
//! runs all tasks here, so there is nothing to share out: `home_thread` stays what it was.
//!
//! Ports: none.
//!
//! Arguments:
//! - `INTERVAL`: milliseconds from one time to the next; 1000 by default.
//! - `INCREASING`: whether the tasks that cost least come first; true by default.
use crate::arg::Args;
use crate::{Class, Context, Element, Failed, Reach};
use alloc::boxed::Box;

/// Facts.
pub static CLASS: Class =
    Class::new("BalancedThreadSched", || Box::new(BalancedThreadSched)).reach(Reach::Each);

/// See the module.
#[derive(Clone, Copy, Debug)]
pub struct BalancedThreadSched;

impl Element for BalancedThreadSched {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        let (mut interval, mut increasing) = (1000_i32, true);
        args.read_p("INTERVAL", &mut interval);
        args.read_p("INCREASING", &mut increasing);
        args.complete()
    }
}
