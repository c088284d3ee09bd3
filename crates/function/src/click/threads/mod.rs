//! A configuration on several threads.
//!
//! Each thread has a router of its own, of the whole configuration, with those elements that live there. The first is
//! the driver's: it reads signals, is asked for handlers, and asks the others by letters, which they see to between
//! two turns. They never wait for it, so nobody waits in a circle.
mod console;
mod crew;
mod mailbox;
mod worker;

use ringway_click::{Rebuild, Router, Succession};

/// A `hotconfig` handler where several threads run the configuration: all of them would have to change at once.
pub(super) struct Refusal;

impl Rebuild for Refusal {
    fn rebuild(&mut self, _: &str, _: Succession) -> Result<Router, String> {
        Err("several threads run this configuration, which can't be replaced then; leave out --threads"
            .into())
    }
}

pub(super) use crew::{Crew, Plan, Reach};
