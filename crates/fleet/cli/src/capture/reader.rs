//! Copies from all workers, in the order of their times.

use ringway_fabric::MessageStream;
use ringway_fabric::capture::CaptureEvent;
use ringway_host::{Mapping, since_1970, wait_readable};
use ringway_ring::capture::{Consumer, Geometry, Statistics};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// How far a frame's time may be behind the time at which it is read, in nanoseconds.
const MAX_AHEAD: u64 = 1_000_000_000;

/// A captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Index of its port in the capture.
    pub port: u16,
    /// What happened to it.
    pub event: CaptureEvent,
    /// Nanoseconds since 1970.
    pub time: u64,
    /// Length of the frame in bytes.
    pub len: u32,
    /// The first bytes of the frame.
    pub data: Vec<u8>,
}

/// Reads the memory of a capture.
pub struct Reader {
    memory: Arc<Mapping>,
    geometry: Geometry,
    consumers: Vec<Consumer>,
    /// Frames that were read, and are too young to be passed on.
    waiting: Vec<Frame>,
    /// When the memory was read before.
    before: u64,
    /// The connection that keeps the capture.
    stream: MessageStream,
}

impl Reader {
    /// A reader of a capture's memory.
    pub fn new(memory: Option<&OwnedFd>, stream: MessageStream) -> Result<Reader, String> {
        let memory = memory.ok_or("the fabric's answer has no memory")?;
        let memory = Mapping::sealed(memory).map_err(|error| error.to_string())?;
        let geometry = Geometry::of(memory.words()).ok_or(
            "the fabric runs another version of Ringway, whose captures this one can't read; \
             use the version that brought it up",
        )?;
        let consumers = vec![Consumer::default(); geometry.lanes()];
        Ok(Reader { memory, geometry, consumers, waiting: Vec::new(), before: 0, stream })
    }

    /// The next frames; `is_last`: all that there are. Frames that were seen while the memory was read wait, since a
    /// worker may not have shown an older one yet.
    pub fn next(&mut self, is_last: bool) -> Result<Vec<Frame>, String> {
        let began = since_1970();
        for (number, consumer) in self.consumers.iter_mut().enumerate() {
            let Some(lane) = self.geometry.lane(self.memory.words(), number) else { continue };
            let waiting = &mut self.waiting;
            let read = consumer.drain(&lane, |record, data| {
                let (event, data) = (CaptureEvent::of_kind(record.kind), data.to_vec());
                // Attack: a `data` process that was taken over, and frames that would wait for ever.
                let time = record.time.min(began.saturating_add(MAX_AHEAD));
                waiting.push(Frame { port: record.port, event, time, len: record.len, data });
            });
            read.map_err(|_| "the copies of the data process can't be read; capture again")?;
        }
        self.waiting.sort_by_key(|frame| frame.time);
        let horizon = std::mem::replace(&mut self.before, began);
        let count = match is_last {
            true => self.waiting.len(),
            false => self.waiting.partition_point(|frame| frame.time <= horizon),
        };
        Ok(self.waiting.drain(..count).collect())
    }

    /// Whether the fabric has ended the capture.
    pub fn is_over(&self) -> bool {
        // `control` sends nothing more, so that only the end of the stream makes it readable.
        wait_readable(&[self.stream.as_fd()], Some(0)).is_ok_and(|ready| ready.first() == Some(&true))
    }

    /// The statistics of each port.
    pub fn statistics(&self) -> Vec<Statistics> {
        let lanes =
            || (0..self.geometry.lanes()).filter_map(|lane| self.geometry.lane(self.memory.words(), lane));
        let of = |port| {
            lanes().map(|lane| lane.statistics(port)).fold(Statistics::default(), |sum, one| Statistics {
                received: sum.received.wrapping_add(one.received),
                accepted: sum.accepted.wrapping_add(one.accepted),
                dropped: sum.dropped.wrapping_add(one.dropped),
            })
        };
        (0..self.geometry.ports()).map(of).collect()
    }

    /// Frames of any port for which a worker found no lane.
    pub fn missed(&self) -> u64 {
        self.geometry.missed(self.memory.words())
    }
}
