//! Running a router, and building its replacement meanwhile.
use super::pace::Pace;
use super::signals::Signals;
use super::surroundings::wait;
use ringway_click::{Progress, Router, Turn};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Time slice for building a replacement; packets then get a multiple of it.
const BUILD: Duration = Duration::from_micros(100);
const SHARE: u32 = 3;

/// Runs a router until it stops; a replacement takes its place.
pub fn drive(router: &Rc<RefCell<Router>>) {
    let signals = Rc::new(RefCell::new(Signals::default()));
    let mut pace = Pace::default();
    let mut retired: Vec<Router> = Vec::new();
    loop {
        let mut running = router.borrow_mut();
        signals.borrow_mut().look(&mut running);
        let turn = running.turn();
        if let Some(successor) = running.successor() {
            retired.push(std::mem::replace(&mut *running, successor));
            continue;
        }
        // A replaced router is also disposed of in steps.
        let began = Instant::now();
        while let Some(old) = retired.last_mut() {
            if old.dispose() == Progress::Done {
                retired.pop();
            }
            if began.elapsed() >= BUILD {
                break;
            }
        }
        if let Some(replacement) = running.replacement() {
            drop(running);
            let mut breath =
                Breath { router: router.clone(), signals: signals.clone(), since: Instant::now() };
            let (rebuild, built) = replacement.build(Box::new(move || breath.take()));
            router.borrow_mut().replaced(rebuild, built);
            continue;
        }
        match turn {
            Turn::Stopped => return,
            Turn::Idle | Turn::IdleUntil(_) if !retired.is_empty() => {
                wait(&mut running, Some(Duration::ZERO))
            }
            turn => pace.rest(&mut running, turn, None),
        }
    }
}

/// Lets a router handle packets while another one is built.
struct Breath {
    router: Rc<RefCell<Router>>,
    signals: Rc<RefCell<Signals>>,
    /// Time of the last slice.
    since: Instant,
}

impl Breath {
    fn take(&mut self) {
        let now = Instant::now();
        let built = now - self.since;
        if built < BUILD {
            return;
        }
        let mut running = self.router.borrow_mut();
        loop {
            self.signals.borrow_mut().look(&mut running);
            wait(&mut running, Some(Duration::ZERO));
            if running.turn() != Turn::Busy || now.elapsed() >= built * SHARE {
                break;
            }
        }
        self.since = Instant::now();
    }
}
