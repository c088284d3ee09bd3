//! What was sent and is not yet acknowledged: one record for each run of bytes with the same fate.

use super::rate::Stamp;
use alloc::collections::{BTreeMap, BTreeSet};

/// Records of one connection. Attack: SACK blocks that split each other would make one for each segment of the
/// window; beyond the limit, a block that covers a record only in part is ignored.
const RECORDS: usize = 1 << 17;

/// What is known about a record's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    InFlight,
    Lost,
    Sacked,
}

/// Bytes that were sent together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    pub start: u64,
    pub end: u64,
    pub fate: Fate,
    /// Whether it was sent more than once.
    pub retransmitted: bool,
    pub stamp: Stamp,
}

impl Record {
    pub(crate) fn len(&self) -> u64 {
        self.end - self.start
    }
}

/// The records in order of their bytes; those in flight also in order of time; those lost.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    records: BTreeMap<u64, Record>,
    by_time: BTreeSet<(u64, u64)>,
    lost: BTreeSet<u64>,
    /// Bytes by their fate.
    pub in_flight: u64,
    pub lost_bytes: u64,
    pub sacked_bytes: u64,
    /// Bytes in flight that were sent more than once.
    pub retransmitted: u64,
    /// Whether the maps have memory, which they keep when they are empty.
    has_memory: bool,
    /// Records that SACK blocks and acknowledgments looked at.
    #[cfg(test)]
    looked_at: u64,
}

impl Scoreboard {
    pub(crate) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Whether it is empty, and has memory.
    pub(crate) fn is_spare(&self) -> bool {
        self.is_empty() && self.has_memory
    }

    /// Returns the memory of empty maps.
    pub(crate) fn release(&mut self) {
        if self.is_empty() {
            *self = Scoreboard::default();
        }
    }

    pub(crate) fn first(&self) -> Option<Record> {
        self.records.first_key_value().map(|(_, record)| *record)
    }

    pub(crate) fn last(&self) -> Option<Record> {
        self.records.last_key_value().map(|(_, record)| *record)
    }

    /// The first lost record.
    pub(crate) fn first_lost(&self) -> Option<Record> {
        self.records.get(self.lost.first()?).copied()
    }

    /// The record in flight that was sent first. O(log n), as the other look-ups.
    pub(crate) fn oldest(&self) -> Option<Record> {
        let (_, start) = self.by_time.first()?;
        self.records.get(start).copied()
    }

    /// Of the records in flight that were sent before the one that was sent at `sent_at` and ends at `end`, the one
    /// that was sent last.
    pub(crate) fn newest_before(&self, (sent_at, end): (u64, u64)) -> Option<Record> {
        // Records do not overlap: of those that begin before `end`, only the last one may end there or after it.
        let mut starts = self.by_time.range(..(sent_at, end)).rev().map(|(_, start)| start);
        let is_before = |record: &&Record| (record.stamp.sent_at, record.end) < (sent_at, end);
        let first = self.records.get(starts.next()?);
        let record = first.filter(is_before).or_else(|| self.records.get(starts.next()?));
        record.copied()
    }

    fn index(&mut self, record: &Record) {
        match record.fate {
            Fate::InFlight => {
                self.by_time.insert((record.stamp.sent_at, record.start));
                self.in_flight += record.len();
                self.retransmitted += if record.retransmitted { record.len() } else { 0 };
            }
            Fate::Lost => {
                self.lost.insert(record.start);
                self.lost_bytes += record.len();
            }
            Fate::Sacked => self.sacked_bytes += record.len(),
        }
    }

    fn unindex(&mut self, record: &Record) {
        match record.fate {
            Fate::InFlight => {
                self.by_time.remove(&(record.stamp.sent_at, record.start));
                self.in_flight -= record.len();
                self.retransmitted -= if record.retransmitted { record.len() } else { 0 };
            }
            Fate::Lost => {
                self.lost.remove(&record.start);
                self.lost_bytes -= record.len();
            }
            Fate::Sacked => self.sacked_bytes -= record.len(),
        }
    }

    fn put(&mut self, record: Record) {
        self.has_memory = true;
        self.index(&record);
        self.records.insert(record.start, record);
    }

    fn take(&mut self, start: u64) -> Option<Record> {
        let record = self.records.remove(&start)?;
        self.unindex(&record);
        Some(record)
    }

    /// Adds bytes that were sent for the first time.
    pub(crate) fn sent(&mut self, start: u64, end: u64, stamp: Stamp) {
        self.put(Record { start, end, fate: Fate::InFlight, retransmitted: false, stamp });
    }

    /// Records that `start .. end`, a part of one record from its start on, was sent again.
    pub(crate) fn resent(&mut self, start: u64, end: u64, stamp: Stamp) {
        self.split(end);
        if let Some(record) = self.take(start) {
            self.put(Record { fate: Fate::InFlight, retransmitted: true, stamp, ..record });
        }
    }

    /// Makes a record end at `at`, if one covers it.
    fn split(&mut self, at: u64) {
        let Some((_, &record)) = self.records.range(..at).next_back() else { return };
        if record.end <= at {
            return;
        }
        self.take(record.start);
        self.put(Record { end: at, ..record });
        self.put(Record { start: at, ..record });
    }

    /// Changes the fate of a record.
    pub(crate) fn mark(&mut self, start: u64, fate: Fate) {
        if let Some(record) = self.take(start) {
            self.put(Record { fate, ..record });
        }
    }

    /// Removes everything before `una`; calls `delivered` for each record.
    pub(crate) fn acknowledge(&mut self, una: u64, mut delivered: impl FnMut(Record)) {
        self.split(una);
        while let Some(first) = self.first().filter(|first| first.end <= una) {
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            self.take(first.start);
            delivered(first);
        }
    }

    /// Marks `start .. end` as received; calls `delivered` for each record that was not marked before. Within
    /// a record, boundaries are rounded inwards to multiples of `mss`: an honest receiver reports whole
    /// segments.
    pub(crate) fn sack(&mut self, start: u64, end: u64, mss: u64, mut delivered: impl FnMut(Record)) {
        let first = self.records.range(..=start).next_back().map_or(start, |(&first, _)| first);
        let mut at = first;
        while at < end
            && let Some((_, &record)) = self.records.range(at..end).next()
        {
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            at = record.end;
            if record.fate == Fate::Sacked || record.end <= start {
                continue;
            }
            let inwards = |bytes: u64| bytes - bytes % mss;
            let from = match start.checked_sub(record.start) {
                Some(skipped) => record.start + inwards(skipped + mss - 1),
                None => record.start,
            };
            let to = if end >= record.end { record.end } else { record.start + inwards(end - record.start) };
            let partial = from > record.start || to < record.end;
            if from >= to || (partial && self.records.len() >= RECORDS) {
                continue;
            }
            self.split(from);
            self.split(to);
            if let Some(marked) = self.take(from) {
                delivered(marked);
                self.put_sacked(Record { fate: Fate::Sacked, ..marked });
            }
        }
    }

    /// Adds a marked record, joined with marked neighbours.
    fn put_sacked(&mut self, mut record: Record) {
        let before = self.records.range(..record.start).next_back().map(|(_, before)| *before);
        if let Some(before) = before.filter(|b| b.fate == Fate::Sacked && b.end == record.start) {
            self.take(before.start);
            record.start = before.start;
        }
        if self.records.get(&record.end).is_some_and(|after| after.fate == Fate::Sacked)
            && let Some(after) = self.take(record.end)
        {
            record.end = after.end;
        }
        self.put(record);
    }

    /// After a timeout: everything that is not selectively acknowledged is lost; with `reneged`, all of it
    /// (RFC 2018, 8). Returns the bytes newly lost.
    pub(crate) fn lose_all(&mut self, reneged: bool) -> u64 {
        let before = self.lost_bytes;
        let starts: alloc::vec::Vec<u64> = self
            .records
            .values()
            .filter(|record| record.fate == Fate::InFlight || (reneged && record.fate == Fate::Sacked))
            .map(|record| record.start)
            .collect();
        for start in starts {
            self.mark(start, Fate::Lost);
        }
        self.lost_bytes - before
    }

    /// Takes back that records are lost, after a spurious timeout or recovery.
    pub(crate) fn find_all(&mut self) {
        while let Some(start) = self.lost.first().copied() {
            self.mark(start, Fate::InFlight);
        }
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) {
        *self = Scoreboard::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stamp(at: u64) -> Stamp {
        Stamp { sent_at: at, ..Stamp::default() }
    }

    #[test]
    fn a_block_is_reported_once_and_rounded_inwards() {
        let mut board = Scoreboard::default();
        board.sent(0, 1000, stamp(1));
        let mut seen = Vec::new();
        board.sack(150, 450, 100, |record| seen.push((record.start, record.end)));
        board.sack(150, 550, 100, |record| seen.push((record.start, record.end)));
        assert_eq!(seen, [(200, 400), (400, 500)]);
        assert_eq!((board.in_flight, board.sacked_bytes), (700, 300));
        assert_eq!(board.oldest().map(|record| (record.start, record.end)), Some((0, 200)));
        let before = |sent_at, end| board.newest_before((sent_at, end)).map(|record| record.start);
        assert_eq!(
            [before(1, 201), before(1, 1001), before(2, 0), before(0, 9)],
            [Some(0), Some(500), Some(500), None]
        );
        assert_eq!([before(1, 1000), before(1, 200)], [Some(0), None], "a record is not before its own end");
        board.mark(0, Fate::Lost);
        assert_eq!((board.first_lost().map(|record| record.end), board.lost_bytes), (Some(200), 200));
        board.resent(0, 100, stamp(2));
        assert_eq!((board.in_flight, board.first_lost().map(|record| record.start)), (600, Some(100)));
    }

    #[test]
    fn the_cost_of_an_acknowledgment_does_not_grow_with_the_holes() {
        const COUNT: u64 = 50_000;
        let mut board = Scoreboard::default();
        // Frames of 40 segments, as a device segments them.
        for frame in 0..COUNT / 40 {
            board.sent(frame * 40, frame * 40 + 40, stamp(frame));
        }
        let (mut acknowledgments, mut lost) = (0, 0);
        // Each tenth segment is lost; each acknowledgment has the last three blocks, and RACK's look follows.
        for segment in (0..COUNT).filter(|segment| segment % 10 != 0) {
            let block = segment - segment % 10;
            for before in [0, 10, 20] {
                if let Some(start) = block.checked_sub(before) {
                    let end = if before == 0 { segment + 1 } else { start + 10 };
                    board.sack(start + 1, end, 1, |_| ());
                }
            }
            while let Some(first) = board.oldest()
                && first.end <= segment
            {
                board.mark(first.start, Fate::Lost);
                lost += 1;
            }
            acknowledgments += 1;
        }
        assert_eq!((lost, board.lost_bytes), (COUNT / 10, COUNT / 10));
        assert_eq!(board.records.len() as u64, COUNT / 5, "runs of SACKed segments are one record each");
        let looks = board.looked_at / acknowledgments;
        assert!(looks <= 8, "{looks} records for an acknowledgment with {lost} holes");
        board.acknowledge(COUNT, |_| ());
        assert!(board.is_empty());
    }

    proptest! {
        #[test]
        fn counts_equal_the_records(
            steps in prop::collection::vec((0u8..5, 0u64..40, 1u64..20), 0..80),
        ) {
            let mut board = Scoreboard::default();
            let (mut una, mut nxt) = (0, 0);
            for (at, (what, from, len)) in steps.into_iter().enumerate() {
                match what {
                    0 | 1 => {
                        board.sent(nxt, nxt + len, stamp(at as u64));
                        nxt += len;
                    }
                    2 => board.sack(una + from, (una + from + len).min(nxt), 3, |_| ()),
                    3 => {
                        una = (una + from / 4).min(nxt);
                        board.acknowledge(una, |_| ());
                    }
                    _ => {
                        board.lose_all(from == 0);
                        if let Some(lost) = board.first_lost() {
                            board.resent(lost.start, (lost.start + len).min(lost.end), stamp(at as u64));
                        }
                    }
                }
                let mut sums = [0; 3];
                let mut expected = una;
                for record in board.records.values() {
                    prop_assert_eq!(record.start, expected);
                    expected = record.end;
                    sums[record.fate as usize] += record.len();
                }
                prop_assert_eq!(expected, nxt);
                prop_assert_eq!(sums, [board.in_flight, board.lost_bytes, board.sacked_bytes]);
                prop_assert_eq!(board.lost.is_empty(), board.lost_bytes == 0);
            }
        }
    }
}
