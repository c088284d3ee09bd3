//! `BlockThread`: blocks the thread that runs the router, for tests.
//!
//! No ports, no arguments.
//!
//! Handlers: `block` (write, from inside the configuration only): for how long; 10 seconds at most. Simulated time does
//! not pass meanwhile.
use ringway_click::arg::Nanoseconds;
use ringway_click::{Class, Element, Handler, HandlerError};
use std::time::Duration;

pub static CLASS: Class = Class::new("BlockThread", || Box::new(BlockThread));

const LONGEST: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
pub struct BlockThread;

impl Element for BlockThread {
    fn handlers(&self) -> Vec<Handler> {
        [Handler::write("block", |_: &mut Self, value, cx| {
            let time: Nanoseconds = cx.parse(value).map_err(|_| HandlerError::failed("bad TIME"))?;
            if !cx.router().clock().is_simulated() {
                std::thread::sleep(Duration::from_nanos(time.0).min(LONGEST));
            }
            Ok(())
        })
        .private()]
        .into()
    }
}
