//! Running a router, and building its replacement meanwhile.
use crate::{Progress, Router, Turn};
use alloc::boxed::Box;
use alloc::rc::Rc;
use alloc::vec::Vec;
use core::cell::RefCell;

/// Time slice in nanoseconds for building a replacement; packets then get a multiple of it.
const BUILD: u64 = 100_000;
const SHARE: u64 = 3;

/// The surroundings of a router that runs.
pub trait Driver {
    /// Nanoseconds that never go back.
    fn now(&mut self) -> u64;
    /// Before each turn: reports what can't wait, such as signals.
    fn look(&mut self, router: &mut Router);
    /// Reports descriptors that are ready now.
    fn poll(&mut self, router: &mut Router);
    /// After a turn: reports descriptors that are ready, if it is time; if there is nothing to do, sleeps until there
    /// is.
    fn rest(&mut self, router: &mut Router, turn: Turn);
}

/// Runs a router until it stops; a replacement takes its place.
pub fn drive<D: Driver + 'static>(router: &Rc<RefCell<Router>>, driver: &Rc<RefCell<D>>) {
    let mut retired: Vec<Router> = Vec::new();
    loop {
        let mut running = router.borrow_mut();
        driver.borrow_mut().look(&mut running);
        let turn = running.turn();
        if let Some(successor) = running.successor() {
            retired.push(core::mem::replace(&mut *running, successor));
            continue;
        }
        dispose(&mut retired, driver);
        if let Some(replacement) = running.replacement() {
            drop(running);
            let since = driver.borrow_mut().now();
            let mut breath = Breath { router: router.clone(), driver: driver.clone(), since };
            let (rebuild, built) = replacement.build(Box::new(move || {
                breath.take();
                true
            }));
            router.borrow_mut().replaced(rebuild, built);
            continue;
        }
        match turn {
            Turn::Stopped => return,
            Turn::Idle | Turn::IdleUntil(_) if !retired.is_empty() => driver.borrow_mut().poll(&mut running),
            turn => driver.borrow_mut().rest(&mut running, turn),
        }
    }
}

/// Disposes of replaced routers in steps.
fn dispose<D: Driver>(retired: &mut Vec<Router>, driver: &Rc<RefCell<D>>) {
    if retired.is_empty() {
        return;
    }
    let began = driver.borrow_mut().now();
    while let Some(old) = retired.last_mut() {
        if old.dispose() == Progress::Done {
            retired.pop();
        }
        if driver.borrow_mut().now().saturating_sub(began) >= BUILD {
            break;
        }
    }
}

/// Lets a router handle packets while another one is built.
struct Breath<D> {
    router: Rc<RefCell<Router>>,
    driver: Rc<RefCell<D>>,
    /// Time of the last slice.
    since: u64,
}

impl<D: Driver> Breath<D> {
    fn take(&mut self) {
        let mut driver = self.driver.borrow_mut();
        let now = driver.now();
        let built = now.saturating_sub(self.since);
        if built < BUILD {
            return;
        }
        let mut running = self.router.borrow_mut();
        loop {
            driver.look(&mut running);
            driver.poll(&mut running);
            if running.turn() != Turn::Busy || driver.now().saturating_sub(now) >= built * SHARE {
                break;
            }
        }
        self.since = driver.now();
    }
}
