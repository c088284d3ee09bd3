//! When a port's peer is notified.

use serde::{Deserialize, Serialize};

/// The ways in which a port avoids notifications between it and its peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notify {
    /// One notification per burst instead of one per frame.
    pub batch: bool,
    /// Combine notifications of a turn into one at its end, delaying them for this many nanoseconds at most;
    /// 0 disables this.
    pub combine: u64,
    /// At most one notification in this many nanoseconds; 0 means no limit.
    pub moderate: u64,
    /// No notification while the peer's flag disables it.
    pub suppress: bool,
    /// Enable the peer's notifications only while its queue is not polled.
    pub poll: bool,
}

impl Default for Notify {
    /// All except combining and moderation.
    fn default() -> Notify {
        Notify { batch: true, combine: 0, moderate: 0, suppress: true, poll: true }
    }
}
