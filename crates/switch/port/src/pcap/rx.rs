//! The RX queue, which records frames, or discards them.

use super::Shared;
use ringway_frame::{Burst, Caps, LARGEST, Lost, Needs, Reason, RxQueue};
use ringway_host::{Mapping, since_1970};
use ringway_mem::Turn;
use ringway_ring::capture::{Geometry, Producer, Record};
use std::sync::Arc;

/// The memory through which recorded frames go to `control`.
#[derive(Debug)]
pub(super) struct Recording {
    pub memory: Arc<Mapping>,
    pub geometry: Geometry,
    /// Differs for each memory that the port was given.
    pub number: u64,
}

/// A queue that copies frames into the recording's memory.
pub(super) struct RecordRx {
    shared: Arc<Shared>,
    producer: Option<(u64, Producer)>,
    bytes: Box<[u8]>,
}

impl RecordRx {
    pub fn new(shared: Arc<Shared>) -> RecordRx {
        RecordRx { shared, producer: None, bytes: vec![0; LARGEST as usize].into_boxed_slice() }
    }
}

impl RxQueue for RecordRx {
    fn caps(&mut self, _turn: &Turn<'_>) -> Option<Caps> {
        // Recorded frames are complete: with checksums, and segmented.
        Some(Caps { offloads: Needs::NONE, largest: LARGEST })
    }

    fn reserve(&mut self, _turn: &Turn<'_>, _burst: &Burst<'_>, which: &[u16]) -> usize {
        which.len()
    }

    fn put(&mut self, turn: &Turn<'_>, burst: &Burst<'_>, which: &[u16]) -> Lost {
        let Some(recording) = self.shared.recording.read(turn) else { return Lost::default() };
        let Some(lane) = recording.geometry.lane(recording.memory.words(), 0) else { return Lost::default() };
        let producer = match &mut self.producer {
            Some((number, producer)) if *number == recording.number => producer,
            other => &mut other.insert((recording.number, Producer::new(&lane))).1,
        };
        let mut lost = Lost::default();
        for frame in which {
            let index = usize::from(*frame);
            producer.receive(&lane, 0);
            let count = burst.read(index, 0, &mut self.bytes);
            let record = Record { port: 0, kind: 0, time: since_1970(), len: burst.meta(index).len };
            if !producer.push(&lane, &record, &self.bytes[..count]) {
                lost += Lost::count(&self.shared.counters, Reason::Full, burst, &[*frame]);
            }
        }
        producer.publish(&lane);
        lost
    }

    fn publish(&mut self, _turn: &Turn<'_>) {}
}
