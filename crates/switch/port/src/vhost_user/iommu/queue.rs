//! A queue's side of its guest's IOTLB.

use super::Granted;
use ringway_frame::{CountersRef, add};
use ringway_mem::iotlb::Lookaside;

/// A queue's cached translations, and the miss that blocks it.
#[derive(Default)]
pub(in crate::vhost_user) struct Seeker {
    /// Whether it serves an RX queue. RX and TX count hits separately, since two threads may serve them.
    receives: bool,
    /// Allocated on first use, so only behind an IOMMU.
    aside: Option<Box<Lookaside>>,
    /// Version of the IOTLB that lacks the translation the queue needs next.
    blocked: Option<u64>,
    /// Whether the queue's last lookup missed.
    lacks: bool,
}

impl Seeker {
    /// The seeker of an RX queue.
    pub(in crate::vhost_user) fn receiving() -> Seeker {
        Seeker { receives: true, ..Seeker::default() }
    }

    /// Forgets the last miss: the ring has a new description, or is tried again.
    pub(in crate::vhost_user) fn restart(&mut self) {
        (self.blocked, self.lacks) = (None, false);
    }

    #[inline]
    pub(in crate::vhost_user) fn aside(&mut self) -> &mut Lookaside {
        self.aside.get_or_insert_default()
    }

    /// Whether the IOTLB is unchanged since the queue's last miss, so that another lookup would miss too.
    #[inline]
    pub(in crate::vhost_user) fn is_blocked(&self, granted: Option<&Granted>) -> bool {
        match (self.blocked, granted) {
            (Some(version), Some(granted)) => granted.iotlb.version() == version,
            _ => false,
        }
    }

    /// Whether the queue has an outstanding IOTLB miss.
    pub(in crate::vhost_user) fn awaits_translation(&self) -> bool {
        self.lacks
    }

    /// Whether the queue may sleep until an IOTLB update; the session thread then wakes it.
    pub(in crate::vhost_user) fn sleep(&self, granted: Option<&Granted>) -> bool {
        let Some(granted) = granted.filter(|_| self.is_blocked(granted)) else { return false };
        granted.miss_queue.set_waiting(true);
        // An update before `set_waiting` does not wake the queue, so check the version again.
        let sleeps = self.is_blocked(Some(granted));
        if !sleeps {
            granted.miss_queue.set_waiting(false);
        }
        sleeps
    }

    /// After a burst: counts hits and posts misses.
    #[inline]
    pub(in crate::vhost_user) fn report(&mut self, granted: &Granted, counters: &CountersRef) {
        let Some(aside) = &mut self.aside else { return };
        if aside.hits > 0 {
            let hits = if self.receives { &counters.iotlb_rx_hits } else { &counters.iotlb_hits };
            add(hits, std::mem::take(&mut aside.hits));
        }
        if !aside.missed().is_empty() {
            self.lack(granted);
        }
    }

    #[cold]
    fn lack(&mut self, granted: &Granted) {
        let Some(aside) = &mut self.aside else { return };
        // Misses that found no room on the miss queue recur in the next turn.
        let is_posted = granted.miss_queue.post(aside.missed());
        aside.forget_missed();
        (self.blocked, self.lacks) = (is_posted.then_some(aside.version()), true);
    }
}

/// Runs `$body` with `$translate` bound to the translator for addresses in the ring of `$vring`.
macro_rules! through {
    ($queue:expr, $vring:expr, $turn:expr, $translate:ident => $body:expr) => {
        match &$vring.iommu {
            None => {
                let mut direct = ringway_mem::Direct::new($vring.memory(), &mut $queue.hint);
                let $translate = &mut direct;
                $body
            }
            Some(granted) => {
                let mut lookup =
                    ringway_mem::iotlb::Lookup::new(&granted.iotlb, $turn, $queue.seeker.aside());
                let $translate = &mut lookup;
                let result = $body;
                $queue.seeker.report(granted, &$queue.counters);
                result
            }
        }
    };
}
pub(in crate::vhost_user) use through;
