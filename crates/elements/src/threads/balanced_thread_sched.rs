//! `BalancedThreadSched(INTERVAL, INCREASING)`: shares a configuration out among threads. With
//! `ringway click -j N` the parts of it that have nothing to do with one another, and that no StaticThreadSched
//! speaks of, are dealt out to the threads with least to do, those with most sources and sinks first; once, so
//! nothing moves later. Without, one thread runs everything.
//!
//! Ports: none.
//!
//! Arguments:
//! - `INTERVAL`: milliseconds from one time to the next, 1000 by default; changes nothing.
//! - `INCREASING`: whether the tasks that cost least come first, true by default; changes nothing.
use alloc::boxed::Box;
use ringway_click::arg::Args;
use ringway_click::{Class, Context, Element, Failed, Reach};

pub static CLASS: Class =
    Class::new("BalancedThreadSched", || Box::new(BalancedThreadSched)).reach(Reach::Each);

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
