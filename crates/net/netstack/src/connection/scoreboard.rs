//! What was sent and is not yet acknowledged: one record for each run of bytes with the same fate.

use super::rate::Stamp;
use crate::codec::{BYTES, Bound, Field, Reader, fields, variants};
use alloc::boxed::Box;
use alloc::collections::{BinaryHeap, VecDeque};
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Records of one connection. Attack: SACK blocks that split each other would make one for each segment of the
/// window; beyond the limit, a block that covers a record only in part is ignored.
const RECORDS: usize = 1 << 17;
/// Memory up to this size is not counted: each connection that sends has so much, as it has its other state.
const SMALL: usize = 4096;
/// Records whose memory is kept while most of it is free.
const KEPT: usize = 1024;
/// No record.
const NONE: u32 = u32::MAX;

/// What is known about a record's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    InFlight,
    Lost,
    Sacked,
}

variants!(Fate { InFlight, Lost, Sacked });

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

/// The memory of a scoreboard. Places of records that are gone are used again, so that a stream whose window stays
/// the same allocates nothing.
#[derive(Debug)]
struct Records {
    nodes: Vec<Node>,
    free: Vec<u32>,
    /// The records in order of their bytes, which follow each other. New ones are added at the end, acknowledged ones
    /// removed from the front; a split, or the join of a whole run, moves the shorter side once, four bytes a record.
    order: VecDeque<u32>,
    /// The first and the last record in flight, in the order in which they were sent.
    oldest: u32,
    newest: u32,
    /// A record in flight, from which [`Scoreboard::newest_before`] searches.
    cursor: u32,
    /// The lost records by their start, and some that are not lost any more.
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
    /// Places of the order that splits and joins moved.
    #[cfg(test)]
    moved: u64,
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

    /// Puts a record into the order of time at the place of its time, which is mostly the end.
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

    /// Bytes of memory that the records take.
    fn memory(&self) -> usize {
        size_of::<Records>()
            + self.nodes.capacity() * size_of::<Node>()
            + (self.free.capacity() + self.order.capacity()) * size_of::<u32>()
            + self.lost.capacity() * size_of::<Reverse<(u64, u32)>>()
    }

    /// Returns memory, if less than an eighth of it is used. At least seven eighths of the records were discarded since
    /// this was done last; they pay for the copies of the others.
    fn shrink(&mut self) {
        if self.nodes.len() > KEPT && self.order.len() < self.nodes.len() / 8 {
            self.rebuild();
        }
    }

    /// Has memory only for the records that there are.
    fn rebuild(&mut self) {
        let mut old = core::mem::replace(self, Records::new());
        self.nodes.reserve_exact(old.order.len());
        self.order.reserve_exact(old.order.len());
        for &number in &old.order {
            let node = &mut old.nodes[number as usize];
            let new = self.store(node.record);
            self.order.push_back(new);
            if node.record.fate == Fate::Lost {
                self.lose(new);
            }
            // The walk in the order of time needs only the links to the later ones.
            node.before = new;
        }
        let mut next = old.oldest;
        while let Some(node) = old.nodes.get(next as usize) {
            self.link(node.before, self.newest);
            next = node.after;
        }
        self.cursor = old.nodes.get(old.cursor as usize).map_or(NONE, |node| node.before);
    }
}

impl Scoreboard {
    fn records(&mut self) -> &mut Records {
        self.memory.get_or_insert_with(|| Box::new(Records::new()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.memory.as_ref().is_none_or(|records| records.order.is_empty())
    }

    /// Its bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        let bytes = self.memory.as_ref().map_or(0, |records| records.memory());
        if bytes > SMALL { bytes } else { 0 }
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
        // The range may end where it begins: then it is the one before that was split.
        let record = *self.records().record(number);
        self.change(number, Record { fate: Fate::InFlight, retransmitted: true, stamp, ..record });
    }

    /// Makes a record end at `at`, if one covers it.
    pub(crate) fn split(&mut self, at: u64) {
        if let Some(records) = &self.memory
            && !records.order.is_empty()
        {
            self.split_at(records.place(at), at);
        }
    }

    /// Makes the record at a place of the order end at `at`, if it covers `at`. Returns whether there is one more
    /// record now.
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
        #[cfg(test)]
        {
            self.moved += (place + 1).min(self.len() - place - 2) as u64;
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
        if let Some(records) = &mut self.memory {
            records.shrink();
        }
    }

    /// Marks `start .. end` as received; calls `delivered` for each record that was not marked before. Within
    /// a record, boundaries are rounded inwards to multiples of `mss`: an honest receiver reports whole
    /// segments.
    pub(crate) fn sack(&mut self, start: u64, end: u64, mss: u64, delivered: impl FnMut(Record)) {
        let Some(records) = self.memory.as_ref().filter(|_| start < end) else { return };
        let (mut first, mut last) = (records.place(start), records.place(end - 1));
        let (Some(head), Some(tail)) = (self.at(first), self.at(last).filter(|tail| tail.start < end)) else {
            return;
        };
        let inwards = |bytes: u64| bytes - bytes % mss;
        let from = match start.checked_sub(head.start) {
            Some(skipped) if head.fate != Fate::Sacked => head.start + inwards(skipped + mss - 1),
            _ => head.start,
        };
        let to = if end >= tail.end || tail.fate == Fate::Sacked {
            tail.end
        } else {
            tail.start + inwards(end - tail.start)
        };
        let (cuts_head, cuts_tail) = (from > head.start, to < tail.end);
        let is_full = self.len() >= RECORDS;
        let is_one = first == last;
        if is_one && (from >= to || (is_full && (cuts_head || cuts_tail))) {
            return;
        }
        if from >= head.end || (is_full && cuts_head) {
            first += 1;
        } else if self.split_at(first, from) {
            (first, last) = (first + 1, last + 1);
        }
        // A run becomes one record, so that there is place for the rest of its last one.
        if to <= tail.start || (cuts_tail && !is_one && self.len() - (last - first) >= RECORDS) {
            last -= 1;
        } else {
            self.split_at(last, to);
        }
        if first <= last {
            self.mark_sacked(first, last, delivered);
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

    /// Marks a run of records, and joins it with marked neighbours. Attack: a block over half of the window's records,
    /// each of which would move the rest of the order if they were removed one by one.
    fn mark_sacked(&mut self, mut first: usize, mut last: usize, mut delivered: impl FnMut(Record)) {
        let mut marked = None;
        for place in first..=last {
            #[cfg(test)]
            {
                self.looked_at += 1;
            }
            let Some(record) = self.at(place).filter(|record| record.fate != Fate::Sacked) else { continue };
            delivered(record);
            self.uncount(&record);
            self.sacked_bytes += record.len();
            if record.fate == Fate::InFlight {
                let records = self.records();
                records.unlink(records.order[place]);
            }
            marked = Some(record);
        }
        let Some(marked) = marked else { return };
        let is_sacked = |record: Option<Record>| record.is_some_and(|record| record.fate == Fate::Sacked);
        first -= usize::from(first > 0 && is_sacked(self.at(first - 1)));
        last += usize::from(is_sacked(self.at(last + 1)));
        let (Some(left), Some(right)) = (self.at(first), self.at(last)) else { return };
        #[cfg(test)]
        if first < last {
            self.moved += (first + 1).min(self.len() - last - 1) as u64;
        }
        let lost = self.lost_bytes > 0;
        let records = self.records();
        let joined = Record { start: left.start, end: right.end, fate: Fate::Sacked, ..marked };
        records.nodes[records.order[first] as usize].record = joined;
        for gone in records.order.drain(first + 1..=last) {
            records.nodes[gone as usize].is_used = false;
            records.free.push(gone);
        }
        if !lost {
            records.lost.clear();
        }
        records.shrink();
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
        let Some(records) = self.memory.as_mut().filter(|_| self.lost_bytes > 0) else { return };
        let mut found: Vec<(u64, u64, u32)> = Vec::new();
        for Reverse((start, number)) in records.lost.drain() {
            let node = &mut records.nodes[number as usize];
            let record = &mut node.record;
            if node.is_used && record.start == start && record.fate == Fate::Lost {
                record.fate = Fate::InFlight;
                self.in_flight += record.len();
                self.retransmitted += if record.retransmitted { record.len() } else { 0 };
                found.push((record.stamp.sent_at, start, number));
            }
        }
        self.lost_bytes = 0;
        found.sort_unstable();
        // One pass over both: where each belongs would have to be searched for.
        let mut after = records.oldest;
        for (sent_at, start, number) in found {
            while let Some(node) = records.nodes.get(after as usize)
                && node.record.time() < (sent_at, start)
            {
                after = node.after;
            }
            let before = records.nodes.get(after as usize).map_or(records.newest, |node| node.before);
            records.link(number, before);
        }
    }

    /// Removes everything.
    pub(crate) fn clear(&mut self) {
        *self = Scoreboard::default();
    }
}

/// A record without its place, which is behind that of the one before it.
struct Moved {
    len: u64,
    fate: Fate,
    retransmitted: bool,
    stamp: Stamp,
}

fields!(Moved { len: BYTES, fate: Bound::Any, retransmitted: Bound::Any, stamp: Bound::Any });

impl Scoreboard {
    /// Writes the records.
    pub(crate) fn save(&self, to: &mut Vec<u8>) {
        self.len().put(to);
        for Record { start, end, fate, retransmitted, stamp } in (0..self.len()).filter_map(|at| self.at(at))
        {
            Moved { len: end - start, fate, retransmitted, stamp }.put(to);
        }
    }

    /// The records that [`Scoreboard::save`] wrote, which are those of `start .. end`. `newest` has the largest
    /// counters of the connection.
    pub(crate) fn restore(from: &mut Reader<'_>, start: u64, end: u64, newest: &Stamp) -> Option<Scoreboard> {
        let mut new = Scoreboard::default();
        let mut at = start;
        let mut in_flight: Vec<(u64, u64, u32)> = Vec::new();
        for _ in 0..usize::take(from, Bound::Most(RECORDS as u64))? {
            let Moved { len, fate, retransmitted, stamp } = Moved::take(from, Bound::Any)?;
            if len == 0 || stamp.delivered > newest.delivered || stamp.lost > newest.lost {
                return None;
            }
            let record = Record { start: at, end: at + len, fate, retransmitted, stamp };
            at = record.end;
            new.count(&record);
            let records = new.records();
            let number = records.store(record);
            records.order.push_back(number);
            match fate {
                Fate::InFlight => in_flight.push((stamp.sent_at, record.start, number)),
                Fate::Lost => records.lose(number),
                Fate::Sacked => {}
            }
        }
        // Attack: records in the opposite order, each of which would look for its place from the end.
        in_flight.sort_unstable();
        for (_, _, number) in in_flight {
            let records = new.records();
            records.link(number, records.newest);
        }
        (at == end).then_some(new)
    }
}

#[cfg(test)]
mod tests;
