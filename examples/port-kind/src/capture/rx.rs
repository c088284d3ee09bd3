//! The receive queue: writes each frame as a record of the file.

use super::peer::SharedFile;
use ringway_frame::{Burst, Caps, CountersRef, LARGEST, Lost, Needs, Reason, RxQueue};
use ringway_mem::Turn;
use ringway_wire::pcap::Header;
use std::io::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// A queue that is never full: a slow disk delays its worker.
pub struct CaptureRx {
    slot: SharedFile,
    snap_len: u32,
    counters: CountersRef,
    /// Records of a burst, written together.
    records: Vec<u8>,
}

impl CaptureRx {
    /// A queue that writes to the file in `slot`, and counts write errors in `counters`.
    pub fn new(slot: SharedFile, snap_len: u32, counters: CountersRef) -> CaptureRx {
        CaptureRx { slot, snap_len, counters, records: Vec::new() }
    }
}

impl RxQueue for CaptureRx {
    fn caps(&mut self, _turn: &Turn<'_>) -> Option<Caps> {
        let is_open = self.slot.try_lock().is_ok_and(|slot| slot.is_some());
        // A capture contains complete checksums, and segments as sent on a wire.
        is_open.then_some(Caps { offloads: Needs::NONE, largest: LARGEST })
    }

    fn reserve(&mut self, _turn: &Turn<'_>, _burst: &Burst<'_>, which: &[u16]) -> usize {
        which.len()
    }

    fn put(&mut self, _turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> Lost {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        self.records.clear();
        for &frame in which {
            let frame = usize::from(frame);
            let len = burst.meta(frame).len;
            let kept = len.min(self.snap_len);
            self.records.extend(Header::ethernet().record_header(now, kept, len));
            let start = self.records.len();
            self.records.resize(start + kept as usize, 0);
            burst.read(frame, 0, &mut self.records[start..]);
        }
        let slot = self.slot.try_lock();
        let written = slot
            .is_ok_and(|mut slot| slot.as_mut().is_some_and(|file| file.write_all(&self.records).is_ok()));
        if written { Lost::default() } else { Lost::count(&self.counters, Reason::System, burst, which) }
    }

    fn publish(&mut self, _turn: &Turn<'_>) {}
}
