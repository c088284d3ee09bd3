//! A configuration on several threads.
//!
//! Each thread has a router for the whole configuration, containing only the elements that run there. The
//! first thread is the driver's: it reads signals, handles handler calls, and sends orders to the others as
//! letters, which they process between two turns. They never wait for the first thread, so there is no
//! deadlock.
mod console;
mod mailbox;
mod others;
mod worker;

use ringway_click::{Rebuild, Router, Succession};

/// The `hotconfig` handler of a configuration on several threads: all of them would have to change at once.
pub(super) struct Refusal;

impl Rebuild for Refusal {
    fn rebuild(&mut self, _: &str, _: Succession) -> Result<Router, String> {
        Err("several threads run this configuration, which can't be replaced then; leave out --threads"
            .into())
    }
}

pub(super) use others::{OtherThreads, Plan, Reach};
