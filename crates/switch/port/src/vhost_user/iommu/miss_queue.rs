//! The miss queue on which a queue's worker posts IOTLB misses for the session thread.

use ringway_host::EventFd;
use ringway_mem::iotlb::{Access, MISSED, Missed};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Places on a miss queue: twice the misses that one burst can record.
const PLACES: usize = 2 * MISSED;

/// A ring's miss queue. One thread at a time writes, one reads.
#[derive(Debug)]
pub(in crate::vhost_user) struct MissQueue {
    places: Box<[(AtomicU64, AtomicU8)]>,
    /// Misses written so far, and misses read so far; each side stores only its own.
    written: AtomicUsize,
    read: AtomicUsize,
    /// Whether the queue sleeps until the next IOTLB update.
    waiting: AtomicBool,
    wakeup: Wakeup,
}

/// The eventfd that wakes the session thread; set when the first session begins.
pub(in crate::vhost_user) type Wakeup = Arc<OnceLock<EventFd>>;

impl MissQueue {
    /// A miss queue that signals `wakeup` when misses are posted.
    pub(in crate::vhost_user) fn new(wakeup: Wakeup) -> MissQueue {
        MissQueue {
            places: (0..PLACES).map(|_| Default::default()).collect(),
            written: AtomicUsize::new(0),
            read: AtomicUsize::new(0),
            waiting: AtomicBool::new(false),
            wakeup,
        }
    }

    /// Posts misses; returns whether there was room for all of them.
    pub(super) fn post(&self, missed: &[Missed]) -> bool {
        let written = self.written.load(Ordering::Relaxed);
        let room = PLACES - written.wrapping_sub(self.read.load(Ordering::Acquire)).min(PLACES);
        for (step, missed) in missed.iter().take(room).enumerate() {
            let (iova, access) = &self.places[written.wrapping_add(step) % PLACES];
            iova.store(missed.iova, Ordering::Relaxed);
            access.store(missed.access.bits(), Ordering::Relaxed);
        }
        self.written.store(written.wrapping_add(missed.len().min(room)), Ordering::Release);
        if let Some(wakeup) = self.wakeup.get() {
            wakeup.signal();
        }
        missed.len() <= room
    }

    /// Takes all posted misses.
    pub(in crate::vhost_user) fn take(&self, mut each: impl FnMut(Missed)) {
        let (read, written) = (self.read.load(Ordering::Relaxed), self.written.load(Ordering::Acquire));
        for step in 0..written.wrapping_sub(read).min(PLACES) {
            let (iova, access) = &self.places[read.wrapping_add(step) % PLACES];
            let iova = iova.load(Ordering::Relaxed);
            if let Some(access) = Access::from_bits(access.load(Ordering::Relaxed)) {
                each(Missed { iova, access });
            }
        }
        self.read.store(written, Ordering::Release);
    }

    /// Sets whether the queue sleeps until the next IOTLB update.
    pub(super) fn set_waiting(&self, waits: bool) {
        self.waiting.store(waits, Ordering::SeqCst);
    }

    /// Whether the queue slept, and so must be woken; clears the flag.
    pub(in crate::vhost_user) fn take_waiting(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) && self.waiting.swap(false, Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remaining_misses_are_found_in_order_and_bounded() {
        let wakeup: Wakeup = Arc::new(OnceLock::from(EventFd::new().unwrap()));
        let miss_queue = MissQueue::new(wakeup.clone());
        let missed = |number: u64| Missed { iova: number << 12, access: Access::WRITE };
        let found = |miss_queue: &MissQueue| {
            let mut found = Vec::new();
            miss_queue.take(|missed| found.push(missed.iova >> 12));
            found
        };
        for round in 0..5 {
            let some: Vec<Missed> = (0..200).map(|number| missed(number + round)).collect();
            assert!(miss_queue.post(&some));
            assert!(wakeup.get().unwrap().clear());
            assert_eq!(found(&miss_queue), (round..200 + round).collect::<Vec<_>>());
        }
        let many: Vec<Missed> = (0..PLACES as u64 + 1).map(missed).collect();
        assert!(!miss_queue.post(&many));
        assert!(!miss_queue.post(&many));
        assert_eq!(found(&miss_queue).len(), PLACES);
        assert!(found(&miss_queue).is_empty());
    }
}
