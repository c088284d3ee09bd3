//! `BalancedThreadSched(INTERVAL, INCREASING)`: distributes a configuration over threads. With `ringway click -j N`,
//! independent parts of the configuration that are not assigned by a StaticThreadSched are assigned to the threads
//! with the least load, parts with the most sources and sinks first; only once, so nothing moves later. Without `-j`,
//! one thread runs everything.
//!
//! Ports: none.
//!
//! Arguments:
//! - `INTERVAL`: milliseconds between two distributions, 1000 by default; has no effect.
//! - `INCREASING`: whether the cheapest tasks come first, true by default; has no effect.
use ringway_click::prelude::*;

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
