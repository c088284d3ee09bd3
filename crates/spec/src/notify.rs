//! When a port's peer is notified.

use serde::{Deserialize, Serialize};

/// Which ways of avoiding notifications a port uses with its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notify {
    /// One notification a burst instead of one a frame.
    pub batch: bool,
    /// Notifications of a turn are combined into one at its end, and are held back for this many nanoseconds at most.
    /// 0: they are not combined.
    pub combine: u64,
    /// At most one notification in this many nanoseconds. 0: no limit.
    pub moderate: u64,
    /// No notification while the peer's flag disables it.
    pub suppress: bool,
    /// The peer is asked to notify only while its queue is not polled.
    pub poll: bool,
}

impl Default for Notify {
    /// Everything but combining and moderation.
    fn default() -> Notify {
        Notify { batch: true, combine: 0, moderate: 0, suppress: true, poll: true }
    }
}
