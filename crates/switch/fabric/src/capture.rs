//! Captures: copies of ports' frames for clients, in shared memory that `data` never waits for.
//!
//! A [`CaptureBuffer`] is one capture's memory, a [`CapturePoint`] a port that is captured. Without any, a worker
//! checks one flag a burst. `forward/capture.rs` has the places where frames are captured, `forward/live_trace.rs`
//! those where it is recorded what happens to them.

use crate::proto::{Capture, Traced};
use ringway_frame::{Burst, Reason};
use ringway_host::{HostError, Mapping, since_1970};
use ringway_ring::capture::{Geometry, Producer, Record};
use ringway_wire::filter::{Filter, FilterError, Subject};
use ringway_wire::pcapng::Direction;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

/// Most captures of a fabric at a time. Attack: clients whose captures make a port's frames be copied without end.
pub const CAPTURES: usize = 16;
/// Most ports of a capture.
pub const CAPTURED_PORTS: usize = 1024;
/// Longest part of a frame that is copied.
pub const LONGEST_COPY: u32 = 256 << 10;

/// What happened to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureEvent {
    /// Inbound if the port's peer sent it, outbound if it is for the peer.
    pub direction: Direction,
    /// Why it was dropped, if it was.
    pub drop: Option<Reason>,
    /// Whether only one of the frames that were copied together was dropped, and it is not known which.
    pub is_uncertain: bool,
}

const OUTBOUND: u16 = 1;
const UNCERTAIN: u16 = 2;

impl CaptureEvent {
    /// A frame that passes in this direction.
    pub fn passing(direction: Direction) -> CaptureEvent {
        CaptureEvent { direction, drop: None, is_uncertain: false }
    }

    /// As a record's kind.
    pub fn to_kind(self) -> u16 {
        let reason = self.drop.map_or(0, |reason| reason as u16 + 1);
        let outbound = if self.direction == Direction::Outbound { OUTBOUND } else { 0 };
        reason << 8 | outbound | if self.is_uncertain { UNCERTAIN } else { 0 }
    }

    /// From a record's kind; an unknown reason counts as none.
    pub fn of_kind(kind: u16) -> CaptureEvent {
        let direction = if kind & OUTBOUND != 0 { Direction::Outbound } else { Direction::Inbound };
        let reason = usize::from(kind >> 8).checked_sub(1);
        let drop = reason.and_then(|reason| Reason::ALL.get(reason)).copied();
        CaptureEvent { direction, drop, is_uncertain: kind & UNCERTAIN != 0 }
    }
}

/// Why a capture can't begin.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// Its expression is wrong.
    #[error("the filter, {0}")]
    Filter(#[from] FilterError),
    /// The memory has another layout.
    #[error("the shared memory of the capture has an unknown layout")]
    Layout,
    /// The system refused.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// A lane's state, for one worker at a time.
#[derive(Debug)]
struct Writer {
    producer: Producer,
    bytes: Vec<u8>,
}

/// A capture's memory and settings.
#[derive(Debug)]
pub struct CaptureBuffer {
    memory: Arc<Mapping>,
    geometry: Geometry,
    filter: Filter,
    settings: Capture,
    writers: Vec<Mutex<Writer>>,
}

impl CaptureBuffer {
    /// A capture into `memory`, a sealed memfd that [`Geometry::initialize`] prepared.
    pub fn new(memory: &OwnedFd, settings: Capture) -> Result<CaptureBuffer, CaptureError> {
        let filter = Filter::parse(&settings.filter)?;
        let memory = Mapping::sealed(memory)?;
        let geometry = Geometry::of(memory.words()).ok_or(CaptureError::Layout)?;
        let lanes = (0..geometry.lanes()).filter_map(|lane| geometry.lane(memory.words(), lane));
        let writer = |lane| Mutex::new(Writer { producer: Producer::new(&lane), bytes: Vec::new() });
        let writers = lanes.map(writer).collect();
        Ok(CaptureBuffer { memory, geometry, filter, settings, writers })
    }

    /// The names of its ports.
    pub fn ports(&self) -> &[String] {
        &self.settings.ports
    }

    /// The lane of a worker, or another one that is free. Never waits: a worker whose thread a peer blocks may have its
    /// lane locked.
    fn writer(&self, worker: usize) -> Option<(usize, MutexGuard<'_, Writer>)> {
        let count = self.writers.len().max(1);
        (0..count).map(|offset| (worker + offset) % count).find_map(|lane| {
            match self.writers.get(lane)?.try_lock() {
                Ok(writer) => Some((lane, writer)),
                Err(TryLockError::WouldBlock) => None,
                Err(TryLockError::Poisoned(poisoned)) => Some((lane, poisoned.into_inner())),
            }
        })
    }

    fn wants(&self, event: CaptureEvent) -> bool {
        let Capture { inbound, outbound, drops, verdicts, .. } = self.settings;
        if verdicts {
            return false;
        }
        match event.drop {
            Some(_) if !event.is_uncertain => drops,
            _ => {
                if event.direction == Direction::Outbound {
                    outbound
                } else {
                    inbound
                }
            }
        }
    }

    /// Copies frames of `burst` as port number `port` of the capture.
    fn add(
        &self,
        worker: usize,
        port: u16,
        event: CaptureEvent,
        burst: &Burst<'_>,
        frames: impl Iterator<Item = usize>,
    ) {
        if !self.wants(event) {
            return;
        }
        let found = self.writer(worker);
        let lane = found.as_ref().and_then(|(lane, _)| self.geometry.lane(self.memory.words(), *lane));
        let (Some((_, mut writer)), Some(lane)) = (found, lane) else {
            return self.geometry.miss(self.memory.words(), frames.count() as u64);
        };
        let Writer { producer, bytes } = &mut *writer;
        let most = self.settings.snap_len.min(LONGEST_COPY) as usize;
        for frame in frames {
            let len = burst.meta(frame).len;
            producer.receive(&lane, port);
            // The filter may need any byte.
            let read = if self.filter.is_empty() { most.min(len as usize) } else { len as usize };
            bytes.resize(read, 0);
            let count = burst.read(frame, 0, bytes);
            bytes.truncate(count);
            if !self.filter.matches(&Subject { data: bytes, len, direction: event.direction }) {
                continue;
            }
            bytes.truncate(most);
            let record = Record { port, kind: event.to_kind(), time: since_1970(), len };
            producer.push(&lane, &record, bytes);
        }
        producer.publish(&lane);
    }
}

/// A frame that a port's peer sent, and what happened to it, as a capture with [`Capture::verdicts`] has it.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveFrame<'f> {
    /// What happened to it.
    pub traced: Traced,
    /// Its first bytes.
    pub data: &'f [u8],
}

impl<'f> LiveFrame<'f> {
    /// As the bytes of a record.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Its names and numbers have a JSON form.
        let json = serde_json::to_vec(&self.traced).unwrap_or_default();
        let len = u32::try_from(json.len()).unwrap_or(0);
        [&len.to_le_bytes(), &json[..], self.data].concat()
    }

    /// From the bytes of a record; `None` if they are none.
    pub fn of(bytes: &'f [u8]) -> Option<LiveFrame<'f>> {
        let (len, rest) = bytes.split_first_chunk()?;
        let (json, data) = rest.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)?;
        Some(LiveFrame { traced: serde_json::from_slice(json).ok()?, data })
    }
}

impl CaptureBuffer {
    /// Whether it gets what happens to frames, instead of the frames.
    pub fn has_verdicts(&self) -> bool {
        self.settings.verdicts
    }

    /// Adds a frame of `len` bytes that port number `port` of the capture sent at `time`, and what happened to it.
    fn add_live(&self, worker: usize, port: u16, frame: &LiveFrame<'_>, (time, len): (u64, u32)) {
        let LiveFrame { traced, data } = frame;
        let subject = Subject { data, len, direction: Direction::Inbound };
        let found = self.writer(worker);
        let lane = found.as_ref().and_then(|(lane, _)| self.geometry.lane(self.memory.words(), *lane));
        let (Some((_, mut writer)), Some(lane)) = (found, lane) else {
            return self.geometry.miss(self.memory.words(), 1);
        };
        writer.producer.receive(&lane, port);
        if self.filter.matches(&subject) {
            let data = &data[..data.len().min(self.settings.snap_len as usize)];
            let bytes = LiveFrame { traced: traced.clone(), data }.to_bytes();
            let kind = CaptureEvent::passing(Direction::Inbound).to_kind();
            writer.producer.push(&lane, &Record { port, kind, time, len }, &bytes);
        }
        writer.producer.publish(&lane);
    }
}

/// A port whose frames are captured.
#[derive(Clone, Debug)]
pub struct CapturePoint {
    /// Changes when a port that was not captured is captured again.
    pub epoch: u64,
    /// The captures, and the number of the port in each.
    pub list: Vec<(Arc<CaptureBuffer>, u16)>,
}

impl CapturePoint {
    /// Whether a capture gets what happens to frames.
    pub fn has_verdicts(&self) -> bool {
        self.list.iter().any(|(buffer, _)| buffer.has_verdicts())
    }

    /// Adds a frame, and what happened to it, to the captures that get that.
    pub fn add_live(&self, worker: usize, frame: &LiveFrame<'_>, times: (u64, u32)) {
        for (buffer, port) in self.list.iter().filter(|(buffer, _)| buffer.has_verdicts()) {
            buffer.add_live(worker, *port, frame, times);
        }
    }

    /// Copies frames of `burst`.
    pub fn add(
        &self,
        worker: usize,
        event: CaptureEvent,
        burst: &Burst<'_>,
        frames: impl Iterator<Item = usize> + Clone,
    ) {
        for (buffer, port) in &self.list {
            buffer.add(worker, *port, event, burst, frames.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_frame_is_read_back_and_damaged_bytes_are_refused() {
        let traced = Traced { lookup: "known".into(), ..Traced::default() };
        let bytes = LiveFrame { traced, data: &[1, 2, 3] }.to_bytes();
        let read = LiveFrame::of(&bytes).unwrap();
        assert_eq!((&*read.traced.lookup, read.data), ("known", &[1, 2, 3][..]));
        assert!((0..bytes.len() - 3).all(|len| LiveFrame::of(&bytes[..len]).is_none()));
        assert_eq!(LiveFrame::of(&[0xff; 9]), None);
    }

    #[test]
    fn kinds_have_every_reason() {
        for direction in [Direction::Inbound, Direction::Outbound] {
            for drop in Reason::ALL.iter().map(|reason| Some(*reason)).chain([None]) {
                for is_uncertain in [false, true] {
                    let event = CaptureEvent { direction, drop, is_uncertain };
                    assert_eq!(CaptureEvent::of_kind(event.to_kind()), event);
                }
            }
        }
        assert_eq!(CaptureEvent::of_kind(0xff00), CaptureEvent::passing(Direction::Inbound));
    }
}
