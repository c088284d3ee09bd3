//! Whether a worker keeps up with a source.

use std::cell::Cell;

/// Time constant, in nanoseconds, of the moving average by which a source's load is judged.
const MEMORY: u64 = 10_000_000;

/// Whether frames wait for the worker of a source, and of the instances of a function to which its frames go: in the
/// source, or in the queue of an instance.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// The share of time in which frames waited, as a moving average; [`MEMORY`] is all of the time.
    share: u64,
    /// When the share last rose above a half, unless it has fallen below an eighth since.
    since: Option<u64>,
    /// When the last take was, and whether frames have waited since then.
    last: u64,
    waits: bool,
    /// The queue of an instance on the worker in which frames wait.
    queue: Cell<Option<u32>>,
    /// Whether the first frame waits for a destination, so that those behind it do, whatever the worker does.
    is_blocked: bool,
}

impl Backlog {
    /// The first frame waits for a destination or not. What was seen before counts no more if it does.
    #[inline]
    pub(super) fn block(&mut self, is_blocked: bool) {
        self.is_blocked = is_blocked;
        if is_blocked {
            (self.share, self.since) = (0, None);
        }
    }

    /// Another take. `waits`: it found a whole burst, or half of what the queue holds.
    #[inline]
    pub(super) fn see(&mut self, waits: bool, now: u64) {
        let time = now.saturating_sub(self.last).min(MEMORY);
        let has_frames = self.queue.take().is_some() || self.waits;
        let has_waited = has_frames && !self.is_blocked;
        let waited = if has_waited { MEMORY } else { 0 };
        self.share = (self.share * (MEMORY - time) + waited * time) / MEMORY;
        (self.last, self.waits) = (now, waits);
        if self.share > MEMORY / 2 {
            self.since = self.since.or(Some(now));
        } else if self.share < MEMORY / 8 {
            self.since = None;
        }
    }

    /// A burst of frames or more waits in this queue of an instance on the worker.
    #[inline]
    pub(super) fn waits_in(&self, queue: u32) {
        self.queue.set(Some(queue));
    }

    /// A take found no frames. `still`: whether frames wait in a queue of an instance.
    #[inline]
    pub(super) fn rest(&mut self, now: u64, still: impl Fn(u32) -> bool) {
        let queue = self.queue.get();
        if self.waits || queue.is_some() {
            self.see(false, now);
            self.queue.set(queue.filter(|queue| still(*queue)));
        }
        self.is_blocked = false;
    }

    /// A burst was passed on. `rest`: some of its frames stay.
    #[inline]
    pub(super) fn end(&mut self, rest: bool) {
        self.is_blocked &= rest;
    }

    /// Since when frames have waited most of the time.
    #[inline]
    pub(super) fn since(&self) -> Option<u64> {
        self.since
    }
}
