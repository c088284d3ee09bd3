//! The guest's clock as Click's.

use crate::clock::GuestTime;
use alloc::boxed::Box;
use ringway_click::Time;

impl Time for GuestTime {
    fn wall(&mut self) -> u64 {
        self.since_1970()
    }

    fn steady(&mut self) -> u64 {
        self.now()
    }

    fn fork(&self) -> Box<dyn Time> {
        Box::new(*self)
    }
}
