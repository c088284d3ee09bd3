//! What was sent and is not yet acknowledged: one record for each run of bytes with the same fate.

use super::rate::Stamp;
use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Records of one connection. Attack: SACK blocks that split each other would make one for each segment of the
/// window; beyond the limit, a block that covers a record only in part is ignored.
const RECORDS: usize = 1 << 17;
/// No record.
const NONE: u32 = u32::MAX;

/// What is known about a record's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    InFlight,
    Lost,
    Sacked,
}

/// Bytes that were sent together.
#[derive(Clone, Copy, Debug, PartialEq)]
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

    fn time(&self) -> (u64, u64) {
        (self.stamp.sent_at, self.start)
    }
}

/// A record's place in memory, and its neighbours in the order of time if it is in flight.
#[derive(Debug)]
struct Node {
    record: Record,
    is_used: bool,
    before: u32,
    after: u32,
}

/// The memory of a scoreboard. Places of records that are gone are used again, so that a stream that goes on
/// allocates nothing.
#[derive(Debug)]
struct Records {
    nodes: Vec<Node>,
    free: Vec<u32>,
    /// The records in order of their bytes, which follow each other. New ones are added at the end, acknowledged ones
    /// removed from the front; a split or a join moves the shorter side, four bytes a record.
    order: VecDeque<u32>,
    /// The first and the last of those in flight in the order in which they were sent.
    oldest: u32,
    newest: u32,
    /// One of those in flight, from which [`Scoreboard::newest_before`] searches.
    cursor: u32,
    /// The lost ones by their start, and some that are not lost any more.
    lost: BinaryHeap<Reverse<(u64, u32)>>,
}

/// The records of a connection.
#[derive(Debug, Default)]
pub(crate) struct Scoreboard {
    /// Only while it is in use: most connections of a server are idle.
    memory: Option<Box<Records>>,
    /// Bytes by their fate.
    pub in_flight: u64,
    pub lost_bytes: u64,
    pub sacked_bytes: u64,
    /// Bytes in flight that were sent more than once.
    pub retransmitted: u64,
    /// Records that SACK blocks and acknowledgments looked at.
    #[cfg(test)]
    looked_at: u64,
}

impl Records {
    fn new() -> Records {
        Records {
            nodes: Vec::new(),
            free: Vec::new(),
            order: VecDeque::new(),
            oldest: NONE,
            newest: NONE,
            cursor: NONE,
            lost: BinaryHeap::new(),
        }
    }

    fn record(&self, number: u32) -> &Record {
        &self.nodes[number as usize].record
    }

    fn get(&self, number: u32) -> Option<Record> {
        self.nodes.get(number as usize).map(|node| node.record)
    }

    /// Stores a record that is in no list yet.
    fn store(&mut self, record: Record) -> u32 {
        let node = Node { record, is_used: true, before: NONE, after: NONE };
        match self.free.pop() {
            Some(number) => {
                self.nodes[number as usize] = node;
                number
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        }
    }

    /// Frees a record that is in no list.
    fn discard(&mut self, number: u32) {
        self.nodes[number as usize].is_used = false;
        self.free.push(number);
    }

    /// The place in the order of the record that covers `offset`, or of the first one if that is later.
    fn place(&self, offset: u64) -> usize {
        self.order.partition_point(|number| self.record(*number).start <= offset).saturating_sub(1)
    }

    /// The record that begins at `start`.
    fn find(&self, start: u64) -> Option<u32> {
        let is_there =
            |number: &u32| self.nodes.get(*number as usize).is_some_and(|n| n.record.start == start);
        // Mostly it is the one that was sent first.
        let oldest = Some(self.oldest).filter(is_there);
        oldest.or_else(|| self.order.get(self.place(start)).copied().filter(is_there))
    }

    /// Puts a record into the order of time behind `before`; `NONE`: at the front.
    fn link(&mut self, number: u32, before: u32) {
        let after = match self.nodes.get_mut(before as usize) {
            Some(node) => core::mem::replace(&mut node.after, number),
            None => core::mem::replace(&mut self.oldest, number),
        };
        match self.nodes.get_mut(after as usize) {
            Some(node) => node.before = number,
            None => self.newest = number,
        }
        let node = &mut self.nodes[number as usize];
        (node.before, node.after) = (before, after);
    }

    /// The same where it belongs, which is mostly at the end.
    fn link_in_order(&mut self, number: u32) {
        let time = self.record(number).time();
        let mut before = self.newest;
        while self.nodes.get(before as usize).is_some_and(|node| node.record.time() > time) {
            before = self.nodes[before as usize].before;
        }
        self.link(number, before);
    }

    fn unlink(&mut self, number: u32) {
        let Node { before, after, .. } = self.nodes[number as usize];
        match self.nodes.get_mut(before as usize) {
            Some(node) => node.after = after,
            None => self.oldest = after,
        }
        match self.nodes.get_mut(after as usize) {
            Some(node) => node.before = before,
            None => self.newest = before,
        }
        if self.cursor == number {
            self.cursor = before;
        }
    }

    /// Adds a record to the lost ones.
    fn lose(&mut self, number: u32) {
        if self.lost.len() > 2 * self.order.len() + 64 {
            self.lost.clear();
            let lost =
                self.order.iter().filter(|number| self.nodes[**number as usize].record.fate == Fate::Lost);
            let nodes = &self.nodes;
            self.lost.extend(lost.map(|number| Reverse((nodes[*number as usize].record.start, *number))));
        }
        self.lost.push(Reverse((self.record(number).start, number)));
    }
}

impl Scoreboard {
    fn records(&mut self) -> &mut Records {
        self.memory.get_or_insert_with(|| Box::new(Records::new()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.memory.as_ref().is_none_or(|records| records.order.is_empty())
    }

    /// Whether it is empty, and has memory.
    pub(crate) fn is_spare(&self) -> bool {
        self.memory.as_ref().is_some_and(|records| records.order.is_empty())
    }

    /// Returns the memory of an empty scoreboard.
    pub(crate) fn release(&mut self) {
        if self.is_empty() {
            *self = Scoreboard::default();
        }
    }

    pub(crate) fn first(&self) -> Option<Record> {
        let records = self.memory.as_ref()?;
        records.get(*records.order.front()?)
    }

    pub(crate) fn last(&self) -> Option<Record> {
        let records = self.memory.as_ref()?;
        records.get(*records.order.back()?)
    }

    /// The first lost record.
    pub(crate) fn first_lost(&mut self) -> Option<Record> {
        if self.lost_bytes == 0 {
            return None;
        }
        let records = self.memory.as_mut()?;
        loop {
            let Reverse((start, number)) = *records.lost.peek()?;
            let node = &records.nodes[number as usize];
            if node.is_used && node.record.start == start && node.record.fate == Fate::Lost {
                return Some(node.record);
            }
            records.lost.pop();
        }
    }

    /// The record in flight that was sent first.
    pub(crate) fn oldest(&self) -> Option<Record> {
        let records = self.memory.as_ref()?;
        records.get(records.oldest)
    }

    /// Of the records in flight that were sent before the one that was sent at `sent_at` and ends at `end`, the one
    /// that was sent last. The search begins where the last one ended, so that it passes each record once while
    /// `sent_at` grows.
    pub(crate) fn newest_before(&mut self, (sent_at, end): (u64, u64)) -> Option<Record> {
        let records = self.memory.as_mut()?;
        let is_before = |node: &Node| (node.record.stamp.sent_at, node.record.end) < (sent_at, end);
        while let Some(node) = records.nodes.get(records.cursor as usize)
            && !is_before(node)
        {
            records.cursor = node.before;
        }
        loop {
            let next = match records.nodes.get(records.cursor as usize) {
                Some(node) => node.after,
                None => records.oldest,
            };
            if !records.nodes.get(next as usize).is_some_and(is_before) {
                return records.get(records.cursor);
            }
            records.cursor = next;
        }
    }

    /// Counts a record's bytes.
    fn count(&mut self, record: &Record) {
        match record.fate {
            Fate::InFlight => {
                self.in_flight += record.len();
                self.retransmitted += if record.retransmitted { record.len() } else { 0 };
            }
            Fate::Lost => self.lost_bytes += record.len(),
            Fate::Sacked => self.sacked_bytes += record.len(),
        }
    }

    fn uncount(&mut self, record: &Record) {
        match record.fate {
            Fate::InFlight => {
                self.in_flight -= record.len();
                self.retransmitted -= if record.retransmitted { record.len() } else { 0 };
            }
            Fate::Lost => self.lost_bytes -= record.len(),
            Fate::Sacked => self.sacked_bytes -= record.len(),
        }
    }

    /// Changes a record's fate and what belongs to it.
    fn change(&mut self, number: u32, new: Record) {
        let old = *self.records().record(number);
        self.uncount(&old);
        self.count(&new);
        let lost = self.lost_bytes > 0;
        let records = self.records();
        let stays = new.fate == old.fate && new.time() == old.time();
        if old.fate == Fate::InFlight && !stays {
            records.unlink(number);
        }
        if !lost {
            records.lost.clear();
        }
        records.nodes[number as usize].record = new;
        match new.fate {
            _ if stays => {}
            Fate::InFlight => records.link_in_order(number),
            Fate::Lost => records.lose(number),
            Fate::Sacked => {}
        }
    }

    /// Adds bytes that were sent for the first time.
    pub(crate) fn sent(&mut self, start: u64, end: u64, stamp: Stamp) {
        let record = Record { start, end, fate: Fate::InFlight, retransmitted: false, stamp };
        self.count(&record);
        let records = self.records();
        let number = records.store(record);
        records.order.push_back(number);
        records.link_in_order(number);
    }

    /// Records that `start .. end`, a part of one record from its start on, was sent again.
    pub(crate) fn resent(&mut self, start: u64, end: u64, stamp: Stamp) {
        let Some(number) = self.memory.as_ref().and_then(|records| records.find(start)) else { return };
        if self.records().record(number).end > end {
            self.split(end);
        }
        // It may end where it begins: then it is the one before that was split.
        let record = *self.records().record(number);
        self.change(number, Record { fate: Fate::InFlight, retransmitted: true, stamp, ..record });
    }

    /// Makes a record end at `at`, if one covers it.
    fn split(&mut self, at: u64) {
        if let Some(records) = &self.memory
            && !records.order.is_empty()
        {
            self.split_at(records.place(at), at);
        }
    }

    /// The same for the record at a place of the order. Whether there is one more now.
    fn split_at(&mut self, place: usize, at: u64) -> bool {
        let records = self.records();
        let Some(&number) = records.order.get(place) else { return false };
        let left = *records.record(number);
        if at <= left.start || at >= left.end {
            return false;
        }
        records.nodes[number as usize].record.end = at;
        let right = records.store(Record { start: at, ..left });
        records.order.insert(place + 1, right);
        match left.fate {
            Fate::InFlight => records.link(right, number),
            Fate::Lost => records.lose(right),
            Fate::Sacked => {}
        }
        true
    }

    /// Changes the fate of a record.
    pub(crate) fn mark(&mut self, start: u64, fate: Fate) {
        if let Some(number) = self.memory.as_ref().and_then(|records| records.find(start)) {
            let record = *self.records().record(number);
            self.change(number, Record { fate, ..record });
        }
    }

    /// Removes everything before `una`; calls `delivered` for each record.
    pub(crate) fn acknowledge(&mut self, una: u64, mut delivered: impl FnMut(Record)) {
        while let Some(first) = self.first().filter(|first| first.start < una) {
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            let first = if first.end > una {
                self.split_at(0, una);
                Record { end: una, ..first }
            } else {
                first
            };
            self.uncount(&first);
            let lost = self.lost_bytes > 0;
            let records = self.records();
            if let Some(number) = records.order.pop_front() {
                if first.fate == Fate::InFlight {
                    records.unlink(number);
                }
                records.discard(number);
            }
            if !lost {
                records.lost.clear();
            }
            delivered(first);
        }
    }

    /// Marks `start .. end` as received; calls `delivered` for each record that was not marked before. Within
    /// a record, boundaries are rounded inwards to multiples of `mss`: an honest receiver reports whole
    /// segments.
    pub(crate) fn sack(&mut self, start: u64, end: u64, mss: u64, mut delivered: impl FnMut(Record)) {
        let Some(records) = &self.memory else { return };
        let mut place = records.place(start);
        while let Some(record) = self.at(place).filter(|record| record.start < end) {
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            if record.fate == Fate::Sacked || record.end <= start {
                place += 1;
                continue;
            }
            let inwards = |bytes: u64| bytes - bytes % mss;
            let from = match start.checked_sub(record.start) {
                Some(skipped) => record.start + inwards(skipped + mss - 1),
                None => record.start,
            };
            let to = if end >= record.end { record.end } else { record.start + inwards(end - record.start) };
            let partial = from > record.start || to < record.end;
            if from >= to || (partial && self.len() >= RECORDS) {
                place += 1;
                continue;
            }
            place += usize::from(self.split_at(place, from));
            let rest = usize::from(self.split_at(place, to));
            if let Some(marked) = self.at(place) {
                delivered(marked);
                place = self.mark_sacked(place, marked) + 1 + rest;
            }
        }
    }

    /// The record at a place of the order.
    fn at(&self, place: usize) -> Option<Record> {
        let records = self.memory.as_ref()?;
        records.get(*records.order.get(place)?)
    }

    fn len(&self) -> usize {
        self.memory.as_ref().map_or(0, |records| records.order.len())
    }

    /// Marks a record, and joins it with marked neighbours; returns its place.
    fn mark_sacked(&mut self, mut place: usize, record: Record) -> usize {
        let Some(&number) = self.records().order.get(place) else { return place };
        self.change(number, Record { fate: Fate::Sacked, ..record });
        let is_sacked = |record: Option<Record>| record.filter(|record| record.fate == Fate::Sacked);
        let before = place.checked_sub(1).and_then(|before| is_sacked(self.at(before)));
        let after = is_sacked(self.at(place + 1));
        let records = self.records();
        let joined = &mut records.nodes[number as usize].record;
        joined.start = before.map_or(joined.start, |before| before.start);
        joined.end = after.map_or(joined.end, |after| after.end);
        if after.is_some()
            && let Some(gone) = records.order.remove(place + 1)
        {
            records.discard(gone);
        }
        if before.is_some()
            && let Some(gone) = records.order.remove(place - 1)
        {
            records.discard(gone);
            place -= 1;
        }
        place
    }

    /// After a timeout: everything that is not selectively acknowledged is lost; with `reneged`, all of it
    /// (RFC 2018, 8). Returns the bytes newly lost.
    pub(crate) fn lose_all(&mut self, reneged: bool) -> u64 {
        let before = self.lost_bytes;
        for place in 0..self.len() {
            if let Some(record) = self.at(place)
                && (record.fate == Fate::InFlight || (reneged && record.fate == Fate::Sacked))
            {
                let number = self.records().order[place];
                self.change(number, Record { fate: Fate::Lost, ..record });
            }
        }
        self.lost_bytes - before
    }

    /// Takes back that records are lost, after a spurious timeout or recovery.
    pub(crate) fn find_all(&mut self) {
        let Some(records) = &mut self.memory else { return };
        let mut found: Vec<(u64, u64, u32)> = Vec::new();
        for &number in &records.order {
            let record = &mut records.nodes[number as usize].record;
            if record.fate == Fate::Lost {
                record.fate = Fate::InFlight;
                self.in_flight += record.len();
                self.retransmitted += if record.retransmitted { record.len() } else { 0 };
            }
            if record.fate == Fate::InFlight {
                found.push((record.stamp.sent_at, record.start, number));
            }
        }
        self.lost_bytes = 0;
        records.lost.clear();
        // All of them at once: where each belongs would have to be searched for.
        found.sort_unstable();
        (records.oldest, records.newest, records.cursor) = (NONE, NONE, NONE);
        for (.., number) in found {
            records.link(number, records.newest);
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
        let mut before = |sent_at, end| board.newest_before((sent_at, end)).map(|record| record.start);
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
        assert_eq!(board.len() as u64, COUNT / 5, "runs of SACKed segments are one record each");
        let looks = board.looked_at / acknowledgments;
        assert!(looks <= 8, "{looks} records for an acknowledgment with {lost} holes");
        board.acknowledge(COUNT, |_| ());
        assert!(board.is_empty());
    }

    /// All records, in order.
    fn all(board: &Scoreboard) -> Vec<Record> {
        (0..board.len()).filter_map(|place| board.at(place)).collect()
    }

    /// The same in the plainest way.
    #[derive(Default)]
    struct Model {
        records: Vec<Record>,
    }

    impl Model {
        fn split(&mut self, at: u64) {
            if let Some(place) = self.records.iter().position(|r| r.start < at && at < r.end) {
                let right = Record { start: at, ..self.records[place] };
                self.records[place].end = at;
                self.records.insert(place + 1, right);
            }
        }

        fn sent(&mut self, start: u64, end: u64, stamp: Stamp) {
            self.records.push(Record { start, end, fate: Fate::InFlight, retransmitted: false, stamp });
        }

        fn resent(&mut self, start: u64, end: u64, stamp: Stamp) {
            self.split(end);
            for record in self.records.iter_mut().filter(|record| record.start == start) {
                (record.fate, record.retransmitted, record.stamp) = (Fate::InFlight, true, stamp);
            }
        }

        fn acknowledge(&mut self, una: u64) -> Vec<Record> {
            self.split(una);
            let count = self.records.iter().take_while(|record| record.end <= una).count();
            self.records.drain(..count).collect()
        }

        fn sack(&mut self, start: u64, end: u64, mss: u64) -> Vec<Record> {
            let mut delivered = Vec::new();
            for record in self.records.clone() {
                let up = |bytes: u64| bytes.next_multiple_of(mss);
                let from = record.start + up(start.saturating_sub(record.start));
                let to = if end >= record.end {
                    record.end
                } else {
                    record.start + end.saturating_sub(record.start) / mss * mss
                };
                if record.fate == Fate::Sacked || record.end <= start || from >= to {
                    continue;
                }
                self.split(from);
                self.split(to);
                for marked in self.records.iter_mut().filter(|record| record.start == from) {
                    delivered.push(*marked);
                    marked.fate = Fate::Sacked;
                }
            }
            let both = |pair: &[Record]| pair.iter().all(|record| record.fate == Fate::Sacked);
            while let Some(place) = self.records.windows(2).position(both) {
                let gone = self.records.remove(place + 1);
                // The stamp of a joined record is that of the part that was marked last.
                let keeps = delivered.contains(&Record { fate: Fate::InFlight, ..gone })
                    || delivered.contains(&Record { fate: Fate::Lost, ..gone });
                let left = &mut self.records[place];
                if keeps {
                    (left.stamp, left.retransmitted) = (gone.stamp, gone.retransmitted);
                }
                left.end = gone.end;
            }
            delivered
        }

        fn lose_all(&mut self, reneged: bool) {
            for record in &mut self.records {
                if record.fate == Fate::InFlight || reneged && record.fate == Fate::Sacked {
                    record.fate = Fate::Lost;
                }
            }
        }

        fn find_all(&mut self) {
            self.records.iter_mut().filter(|r| r.fate == Fate::Lost).for_each(|r| r.fate = Fate::InFlight);
        }

        fn in_flight(&self) -> impl Iterator<Item = Record> {
            self.records.iter().filter(|record| record.fate == Fate::InFlight).copied()
        }

        fn first_lost(&self) -> Option<Record> {
            self.records.iter().find(|record| record.fate == Fate::Lost).copied()
        }

        fn newest_before(&self, key: (u64, u64)) -> Option<Record> {
            let before = self.in_flight().filter(|record| (record.stamp.sent_at, record.end) < key);
            before.max_by_key(|record| (record.stamp.sent_at, record.end))
        }
    }

    /// What a record is, without the rest of its stamp; of a marked one only its bytes count.
    fn shape(record: &Record) -> (u64, u64, Fate, Option<(bool, u64)>) {
        let sent = (record.retransmitted, record.stamp.sent_at);
        (record.start, record.end, record.fate, (record.fate != Fate::Sacked).then_some(sent))
    }

    proptest! {
        #[test]
        fn it_does_what_a_plain_list_does(
            steps in prop::collection::vec((0u8..9, 0u64..60, 1u64..20, 0u64..3), 0..200),
        ) {
            let (mut board, mut model) = (Scoreboard::default(), Model::default());
            let (mut una, mut nxt, mut now) = (0, 0, 0);
            for (what, from, len, time) in steps {
                now += time;
                let mut seen = Vec::new();
                match what {
                    0..=2 => {
                        board.sent(nxt, nxt + len, stamp(now));
                        model.sent(nxt, nxt + len, stamp(now));
                        nxt += len;
                    }
                    3 | 4 => {
                        let (start, end) = (una + from, (una + from + len).min(nxt));
                        board.sack(start, end, 3, |record| seen.push(record));
                        prop_assert_eq!(&seen, &model.sack(start, end, 3));
                    }
                    5 => {
                        una = (una + from / 4).min(nxt);
                        board.acknowledge(una, |record| seen.push(record));
                        let shapes = |seen: &[Record]| seen.iter().map(shape).collect::<Vec<_>>();
                        prop_assert_eq!(shapes(&seen), shapes(&model.acknowledge(una)));
                    }
                    // Marked records keep a stamp that no longer counts, so none is taken back.
                    6 => {
                        board.lose_all(false);
                        model.lose_all(false);
                    }
                    7 => {
                        board.find_all();
                        model.find_all();
                    }
                    _ => {
                        if let Some(lost) = board.first_lost() {
                            let end = (lost.start + len).min(lost.end);
                            board.resent(lost.start, end, stamp(now));
                            model.resent(lost.start, end, stamp(now));
                        } else if let Some(oldest) = board.oldest() {
                            board.mark(oldest.start, Fate::Lost);
                            model.records.iter_mut().filter(|r| r.start == oldest.start).for_each(|r| {
                                r.fate = Fate::Lost;
                            });
                        }
                    }
                }
                prop_assert_eq!(
                    all(&board).iter().map(shape).collect::<Vec<_>>(),
                    model.records.iter().map(shape).collect::<Vec<_>>()
                );
                let oldest = model.in_flight().min_by_key(|record| (record.stamp.sent_at, record.start));
                prop_assert_eq!(board.oldest(), oldest);
                prop_assert_eq!(board.first_lost(), model.first_lost());
                for key in [(now.saturating_sub(from / 8), una + from), (now, nxt), (now / 2, una)] {
                    prop_assert_eq!(board.newest_before(key), model.newest_before(key));
                }
                let again = model.in_flight().filter(|record| record.retransmitted).map(|r| r.len());
                prop_assert_eq!(board.retransmitted, again.sum::<u64>());
            }
        }

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
                for record in all(&board) {
                    prop_assert_eq!(record.start, expected);
                    expected = record.end;
                    sums[record.fate as usize] += record.len();
                }
                prop_assert_eq!(expected, nxt);
                prop_assert_eq!(sums, [board.in_flight, board.lost_bytes, board.sacked_bytes]);
                prop_assert_eq!(board.first_lost().is_none(), board.lost_bytes == 0);
            }
        }
    }
}
