//! Captures: copies of ports' frames for clients, in shared memory that `data` never waits for.
//!
//! A [`Tap`] is one capture's memory. The topology has the taps of each port that is captured; without any, a worker
//! checks one flag a burst. `forward/capture.rs` has the places where a frame is seen.

use crate::proto::Capture;
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
pub struct Seen {
    /// Inbound if the port's peer sent it, outbound if it is for the peer.
    pub direction: Direction,
    /// Why it was dropped, if it was.
    pub drop: Option<Reason>,
    /// Whether only one of the frames that were copied together was dropped, and it is not known which.
    pub is_uncertain: bool,
}

const OUTBOUND: u16 = 1;
const UNCERTAIN: u16 = 2;

impl Seen {
    /// A frame that passes in this direction.
    pub fn passing(direction: Direction) -> Seen {
        Seen { direction, drop: None, is_uncertain: false }
    }

    /// As a record's kind.
    pub fn to_kind(self) -> u16 {
        let reason = self.drop.map_or(0, |reason| reason as u16 + 1);
        let outbound = if self.direction == Direction::Outbound { OUTBOUND } else { 0 };
        reason << 8 | outbound | if self.is_uncertain { UNCERTAIN } else { 0 }
    }

    /// From a record's kind; an unknown reason counts as none.
    pub fn of_kind(kind: u16) -> Seen {
        let direction = if kind & OUTBOUND != 0 { Direction::Outbound } else { Direction::Inbound };
        let reason = usize::from(kind >> 8).checked_sub(1);
        let drop = reason.and_then(|reason| Reason::ALL.get(reason)).copied();
        Seen { direction, drop, is_uncertain: kind & UNCERTAIN != 0 }
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
pub struct Tap {
    memory: Arc<Mapping>,
    geometry: Geometry,
    filter: Filter,
    settings: Capture,
    writers: Vec<Mutex<Writer>>,
}

impl Tap {
    /// A capture into `memory`, a sealed memfd that [`Geometry::initialize`] prepared.
    pub fn new(memory: &OwnedFd, settings: Capture) -> Result<Tap, CaptureError> {
        let filter = Filter::parse(&settings.filter)?;
        let memory = Mapping::sealed(memory)?;
        let geometry = Geometry::of(memory.words()).ok_or(CaptureError::Layout)?;
        let lanes = (0..geometry.lanes()).filter_map(|lane| geometry.lane(memory.words(), lane));
        let writer = |lane| Mutex::new(Writer { producer: Producer::new(&lane), bytes: Vec::new() });
        let writers = lanes.map(writer).collect();
        Ok(Tap { memory, geometry, filter, settings, writers })
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

    fn wants(&self, seen: Seen) -> bool {
        let Capture { inbound, outbound, drops, .. } = self.settings;
        match seen.drop {
            Some(_) if !seen.is_uncertain => drops,
            _ => {
                if seen.direction == Direction::Outbound {
                    outbound
                } else {
                    inbound
                }
            }
        }
    }

    /// Copies frames of `burst` as port number `port` of the capture.
    fn see(
        &self,
        worker: usize,
        port: u16,
        seen: Seen,
        burst: &Burst<'_>,
        frames: impl Iterator<Item = usize>,
    ) {
        if !self.wants(seen) {
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
            if !self.filter.matches(&Subject { data: bytes, len, direction: seen.direction }) {
                continue;
            }
            bytes.truncate(most);
            let record = Record { port, kind: seen.to_kind(), time: since_1970(), len };
            producer.push(&lane, &record, bytes);
        }
        producer.publish(&lane);
    }
}

/// The taps of a port.
#[derive(Clone, Debug)]
pub struct Taps {
    /// Changes when a port that was not captured is captured again.
    pub epoch: u64,
    /// The taps, and the number of the port in each.
    pub list: Vec<(Arc<Tap>, u16)>,
}

impl Taps {
    /// Copies frames of `burst`.
    pub fn see(
        &self,
        worker: usize,
        seen: Seen,
        burst: &Burst<'_>,
        frames: impl Iterator<Item = usize> + Clone,
    ) {
        for (tap, port) in &self.list {
            tap.see(worker, *port, seen, burst, frames.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_every_reason() {
        for direction in [Direction::Inbound, Direction::Outbound] {
            for drop in Reason::ALL.iter().map(|reason| Some(*reason)).chain([None]) {
                for is_uncertain in [false, true] {
                    let seen = Seen { direction, drop, is_uncertain };
                    assert_eq!(Seen::of_kind(seen.to_kind()), seen);
                }
            }
        }
        assert_eq!(Seen::of_kind(0xff00), Seen::passing(Direction::Inbound));
    }
}
