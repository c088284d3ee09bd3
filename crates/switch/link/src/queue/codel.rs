//! Controlled Delay (RFC 8289, 5).

use super::{CoDelSettings, Fifo, Waiting};
use crate::Frame;
use crate::link::{Counters, Reason};

/// A queue of at most this many bytes is never too long: a frame of Ethernet's size.
const FRAME: usize = 1514;

/// The state of one queue; names as in the RFC's pseudocode.
#[derive(Debug)]
pub(super) struct CoDel {
    settings: CoDelSettings,
    /// When the sojourn time will have been above the target for an interval.
    first_above_time: Option<u64>,
    /// When the next frame is dropped.
    drop_next: u64,
    /// Drops since the dropping state was entered.
    count: u64,
    lastcount: u64,
    dropping: bool,
}

impl CoDel {
    pub fn new(settings: CoDelSettings) -> CoDel {
        CoDel { settings, first_above_time: None, drop_next: 0, count: 0, lastcount: 0, dropping: false }
    }

    /// The next frame, and whether it may be dropped.
    fn dodequeue<F: Frame>(&mut self, fifo: &mut Fifo<F>, now: u64) -> (Option<Waiting<F>>, bool) {
        let Some(waiting) = fifo.pop() else {
            self.first_above_time = None;
            return (None, false);
        };
        if now.saturating_sub(waiting.arrived) < self.settings.target || fifo.bytes <= FRAME {
            self.first_above_time = None;
            return (Some(waiting), false);
        }
        let above = *self.first_above_time.get_or_insert(now.saturating_add(self.settings.interval));
        (Some(waiting), now >= above)
    }

    pub fn dequeue<F: Frame>(
        &mut self,
        fifo: &mut Fifo<F>,
        now: u64,
        counters: &mut Counters,
    ) -> Option<Waiting<F>> {
        let settings = self.settings;
        let (mut next, mut may_drop) = self.dodequeue(fifo, now);
        if self.dropping {
            self.dropping = may_drop;
            while self.dropping && now >= self.drop_next {
                self.count += 1;
                if mark(&mut next, &settings, counters) {
                    self.drop_next = control_law(self.drop_next, self.count, &settings);
                    return next;
                }
                counters.drop(Reason::Early);
                (next, may_drop) = self.dodequeue(fifo, now);
                self.dropping = may_drop;
                if may_drop {
                    self.drop_next = control_law(self.drop_next, self.count, &settings);
                }
            }
            return next;
        }
        if may_drop {
            if !mark(&mut next, &settings, counters) {
                counters.drop(Reason::Early);
                (next, _) = self.dodequeue(fifo, now);
            }
            self.dropping = true;
            // If it was left recently, the rate of drops that controlled the queue is a better start than 1.
            let delta = self.count - self.lastcount;
            let is_recent = now.saturating_sub(self.drop_next) < settings.interval.saturating_mul(16);
            self.count = if delta > 1 && is_recent { delta } else { 1 };
            self.drop_next = control_law(now, self.count, &settings);
            self.lastcount = self.count;
        }
        next
    }
}

fn mark<F: Frame>(next: &mut Option<Waiting<F>>, settings: &CoDelSettings, counters: &mut Counters) -> bool {
    let marked = settings.ecn && next.as_mut().is_some_and(|waiting| waiting.frame.mark());
    counters.marked += u64::from(marked);
    marked
}

/// `t` and an interval divided by the square root of `count`.
fn control_law(t: u64, count: u64, settings: &CoDelSettings) -> u64 {
    let root = u128::from(count.min(u64::from(u32::MAX)) << 32).isqrt().max(1);
    t.saturating_add(((u128::from(settings.interval) << 16) / root) as u64)
}
