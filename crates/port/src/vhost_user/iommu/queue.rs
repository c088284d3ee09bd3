//! A queue's side of its guest's IOMMU.

use super::Granted;
use ringway_frame::{CountersRef, add};
use ringway_mem::iotlb::Lookaside;

/// What a queue remembers of its guest's IOMMU.
#[derive(Default)]
pub(in crate::vhost_user) struct Seeker {
    /// Frames leave here; the two sides of a queue count apart, since two threads may have them.
    receives: bool,
    /// Only where there is one.
    aside: Option<Box<Lookaside>>,
    /// The version of the IOTLB at which it lacks what it wants next.
    blocked: Option<u64>,
    /// It lacked something when it last looked.
    lacks: bool,
}

impl Seeker {
    /// That of a queue where frames leave.
    pub(in crate::vhost_user) fn receiving() -> Seeker {
        Seeker { receives: true, ..Seeker::default() }
    }

    /// The ring was described anew, or is looked at anew.
    pub(in crate::vhost_user) fn restart(&mut self) {
        (self.blocked, self.lacks) = (None, false);
    }

    #[inline]
    pub(in crate::vhost_user) fn aside(&mut self) -> &mut Lookaside {
        self.aside.get_or_insert_default()
    }

    /// Whether it would find again what it lacked before.
    #[inline]
    pub(in crate::vhost_user) fn is_blocked(&self, granted: Option<&Granted>) -> bool {
        match (self.blocked, granted) {
            (Some(version), Some(granted)) => granted.iotlb.version() == version,
            _ => false,
        }
    }

    /// Whether it lacks something that is asked for.
    pub(in crate::vhost_user) fn asks(&self) -> bool {
        self.lacks
    }

    /// Whether it may sleep: it is woken when more is granted.
    pub(in crate::vhost_user) fn sleep(&self, granted: Option<&Granted>) -> bool {
        let Some(granted) = granted.filter(|_| self.is_blocked(granted)) else { return false };
        granted.board.set_waiting(true);
        // What was granted before that was said would wake nobody.
        let sleeps = self.is_blocked(Some(granted));
        if !sleeps {
            granted.board.set_waiting(false);
        }
        sleeps
    }

    /// After a burst: counts, and says what it lacks.
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
        // What found no room is found again in the next turn.
        let is_said = granted.board.post(aside.missed());
        aside.forget_missed();
        (self.blocked, self.lacks) = (is_said.then_some(aside.version()), true);
    }
}

/// Has `$body` look addresses up through `$translate`, as the ring of `$vring` has them.
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
