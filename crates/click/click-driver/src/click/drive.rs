//! A router's surroundings in a process.
use super::pace::Pace;
use super::signals::Signals;
use super::surroundings::wait;
use ringway_click::{Driver, Router, Turn};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Signals, descriptors and the clock of this process.
struct Surroundings {
    signals: Signals,
    pace: Pace,
    start: Instant,
}

impl Driver for Surroundings {
    fn now(&mut self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn look(&mut self, router: &mut Router) {
        self.signals.look(router);
    }

    fn poll(&mut self, router: &mut Router) {
        wait(router, Some(Duration::ZERO));
    }

    fn rest(&mut self, router: &mut Router, turn: Turn) {
        self.pace.rest(router, turn, None);
    }
}

/// Runs a router until it stops; a replacement takes its place.
pub fn drive(router: &Rc<RefCell<Router>>) {
    let surroundings =
        Surroundings { signals: Signals::default(), pace: Pace::default(), start: Instant::now() };
    ringway_click::drive(router, &Rc::new(RefCell::new(surroundings)));
}
