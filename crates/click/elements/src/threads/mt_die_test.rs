//! `MTDieTest(NTHREADS)`: stops the driver from several tasks, once each, for tests.
//!
//! Ports: none.
//!
//! Arguments:
//! - `NTHREADS`: number of tasks; 16 by default.
//!
//! No handlers.
use crate::packet::bounded;
use ringway_click::arg::KEYWORD;
use ringway_click::prelude::*;

pub static CLASS: Class = Class::new("MTDieTest", || Box::<MtDieTest>::default());

#[derive(Debug, Default)]
pub struct MtDieTest {
    tasks: u32,
}

impl Element for MtDieTest {
    fn configure(&mut self, args: &mut Args, _: &mut Context<'_>) -> Result<(), Failed> {
        self.tasks = 16;
        args.read_with("NTHREADS", KEYWORD, &mut self.tasks, bounded(0, 1 << 10));
        args.complete()
    }

    fn initialize(&mut self, cx: &mut Context<'_>) -> Result<(), Failed> {
        for _ in 0..self.tasks {
            cx.new_task(true);
        }
        Ok(())
    }

    fn run_task(&mut self, _: Task, cx: &mut Context<'_>) -> bool {
        cx.stop();
        true
    }
}
