//! The statistics that the device writes to the guest's memory. Workers only add.

use crate::pieces::Cast;
use core::sync::atomic::{AtomicU64, Ordering};
use ringway_frame::add;

/// Bytes of the statistics in memory.
pub(crate) const LEN: usize = 64;

/// The counters, each written by one thread at a time.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub sent: AtomicU64,
    pub not_sent: AtomicU64,
    received: AtomicU64,
    pub bad: AtomicU64,
    unicast: AtomicU64,
    broadcast: AtomicU64,
    multicast: AtomicU64,
}

/// Counts of one burst.
#[derive(Debug, Default)]
pub(crate) struct Tally([u64; 3]);

impl Tally {
    #[inline]
    pub fn count(&mut self, cast: Cast) {
        self.0[cast as usize] += 1;
    }
}

impl Stats {
    pub fn received(&self, tally: &Tally) {
        let Tally([unicast, multicast, broadcast]) = *tally;
        add(&self.received, unicast + multicast + broadcast);
        add(&self.unicast, unicast);
        add(&self.multicast, multicast);
        add(&self.broadcast, broadcast);
    }

    /// As they are in memory; there are no collisions, misaligned frames or underruns.
    pub fn dump(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        let fields = [
            (0, 8, &self.sent),
            (8, 8, &self.received),
            (16, 8, &self.not_sent),
            (24, 4, &self.bad),
            (40, 8, &self.unicast),
            (48, 8, &self.broadcast),
            (56, 4, &self.multicast),
        ];
        for (at, len, count) in fields {
            bytes[at..at + len].copy_from_slice(&count.load(Ordering::Relaxed).to_le_bytes()[..len]);
        }
        bytes
    }
}
