//! The part of a trace to emit, by packets' timestamps.
use ringway_click::arg::{Args, Nanoseconds};

/// The time to which the end is relative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum From {
    #[default]
    Epoch,
    FirstRecord,
    Start,
}

/// Start and end of the emitted packets.
#[derive(Debug, Default)]
pub(super) struct TimeWindow {
    start: u64,
    /// Whether START is relative to the first record.
    start_relative: bool,
    end: u64,
    end_from: From,
    /// Whether there is an end that is not reached yet.
    ends: bool,
    /// Whether relative times are resolved, by the first record.
    prepared: bool,
}

impl TimeWindow {
    /// Whether there is an end that is not reached yet.
    pub(super) fn ends(&self) -> bool {
        self.ends
    }

    /// Reads `START` or `START_AFTER`, and `END`, `END_AFTER` or `INTERVAL`.
    pub(super) fn read(&mut self, args: &mut Args) {
        let (mut starts, mut ends) = ([None::<Nanoseconds>; 2], [None::<Nanoseconds>; 3]);
        for (name, time) in ["START", "START_AFTER"].into_iter().zip(&mut starts) {
            args.read(name, time);
        }
        for (name, time) in ["END", "END_AFTER", "INTERVAL"].into_iter().zip(&mut ends) {
            args.read(name, time);
        }
        if starts.iter().flatten().count() > 1 {
            args.error("START and START_AFTER are mutually exclusive");
        }
        if ends.iter().flatten().count() > 1 {
            args.error("END, END_AFTER, and INTERVAL are mutually exclusive");
        }
        self.start = starts.iter().flatten().next().map_or(0, |time| time.0);
        self.start_relative = starts[0].is_none();
        let kinds = [From::Epoch, From::FirstRecord, From::Start];
        let end = ends.iter().zip(kinds).find_map(|(time, from)| time.map(|time| (time.0, from)));
        self.ends = end.is_some();
        (self.end, self.end_from) = end.unwrap_or_default();
    }

    /// Resolves relative times at the first record. Returns whether this is the first record.
    pub(super) fn prepare(&mut self, time: u64) -> bool {
        if self.prepared {
            return false;
        }
        if self.start_relative {
            self.start = self.start.saturating_add(time);
        }
        self.end = self.end.saturating_add(match self.end_from {
            From::Epoch => 0,
            From::FirstRecord => time,
            From::Start => self.start,
        });
        self.prepared = true;
        true
    }

    /// Whether a record is before the start. After the first record that isn't, this is always false.
    pub(super) fn is_before(&mut self, time: u64) -> bool {
        if time >= self.start {
            self.start = 0;
        }
        time < self.start
    }

    /// Whether a record is the first at or after the end.
    pub(super) fn reaches_end(&mut self, time: u64) -> bool {
        let reached = self.ends && time >= self.end;
        self.ends &= !reached;
        reached
    }

    /// Moves the end.
    pub(super) fn extend(&mut self, by: u64, ends: bool) {
        self.end = self.end.saturating_add(by);
        self.ends |= ends;
    }

    /// The next record counts as the first for timing; the window's times remain as they are.
    pub(super) fn reset(&mut self) {
        (self.prepared, self.start_relative, self.end_from) = (false, false, From::Epoch);
    }
}
