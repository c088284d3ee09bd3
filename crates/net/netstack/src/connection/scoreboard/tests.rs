use super::*;
use proptest::prelude::*;

fn stamp(at: u64) -> Stamp {
    Stamp { sent_at: at, ..Stamp::default() }
}

#[test]
fn a_block_is_reported_once_and_rounded_inwards() {
    let mut scoreboard = Scoreboard::default();
    scoreboard.sent(0, 1000, stamp(1));
    let mut seen = Vec::new();
    scoreboard.sack(150, 450, 100, |record| seen.push((record.start, record.end)));
    scoreboard.sack(150, 550, 100, |record| seen.push((record.start, record.end)));
    assert_eq!(seen, [(200, 400), (400, 500)]);
    assert_eq!((scoreboard.in_flight, scoreboard.sacked_bytes), (700, 300));
    assert_eq!(scoreboard.oldest().map(|record| (record.start, record.end)), Some((0, 200)));
    let mut before = |sent_at, end| scoreboard.newest_before((sent_at, end)).map(|record| record.start);
    assert_eq!(
        [before(1, 201), before(1, 1001), before(2, 0), before(0, 9)],
        [Some(0), Some(500), Some(500), None]
    );
    assert_eq!([before(1, 1000), before(1, 200)], [Some(0), None], "a record is not before its own end");
    scoreboard.mark(0, Fate::Lost);
    assert_eq!((scoreboard.first_lost().map(|record| record.end), scoreboard.lost_bytes), (Some(200), 200));
    scoreboard.resent(0, 100, stamp(2));
    assert_eq!((scoreboard.in_flight, scoreboard.first_lost().map(|record| record.start)), (600, Some(100)));
}

#[test]
fn the_cost_of_an_acknowledgment_does_not_grow_with_the_holes() {
    const COUNT: u64 = 50_000;
    let mut scoreboard = Scoreboard::default();
    // Frames of 40 segments, as a device segments them.
    for frame in 0..COUNT / 40 {
        scoreboard.sent(frame * 40, frame * 40 + 40, stamp(frame));
    }
    let (mut acknowledgments, mut lost) = (0, 0);
    // Each tenth segment is lost; each acknowledgment has the last three blocks, and RACK's look follows.
    for segment in (0..COUNT).filter(|segment| segment % 10 != 0) {
        let block = segment - segment % 10;
        for before in [0, 10, 20] {
            if let Some(start) = block.checked_sub(before) {
                let end = if before == 0 { segment + 1 } else { start + 10 };
                scoreboard.sack(start + 1, end, 1, |_| ());
            }
        }
        while let Some(first) = scoreboard.oldest()
            && first.end <= segment
        {
            scoreboard.mark(first.start, Fate::Lost);
            lost += 1;
        }
        acknowledgments += 1;
    }
    assert_eq!((lost, scoreboard.lost_bytes), (COUNT / 10, COUNT / 10));
    assert_eq!(scoreboard.len() as u64, COUNT / 5, "runs of SACKed segments are one record each");
    let looks = scoreboard.looked_at / acknowledgments;
    assert!(looks <= 8, "{looks} records for an acknowledgment with {lost} holes");
    scoreboard.acknowledge(COUNT, |_| ());
    assert!(scoreboard.is_empty());
}

/// As many segments in flight, each a record.
fn with_records(count: u64) -> Scoreboard {
    let mut scoreboard = Scoreboard::default();
    (0..count).for_each(|segment| scoreboard.sent(segment, segment + 1, stamp(segment)));
    scoreboard
}

#[test]
fn a_block_over_many_records_moves_the_order_once() {
    const COUNT: u64 = 100_000;
    for step in [1, 2, 3] {
        let mut scoreboard = with_records(COUNT);
        // The second half, some of it marked before, in flight and lost.
        let before = (COUNT / 2..COUNT - COUNT / 10).rev().filter(|segment| step > 1 && segment % step == 0);
        let mut delivered = 0;
        before.for_each(|segment| scoreboard.sack(segment, segment + 1, 1, |_| delivered += 1));
        scoreboard.mark(COUNT / 2 + 5, Fate::Lost);
        scoreboard.moved = 0;
        scoreboard.sack(COUNT / 2, COUNT - 2, 1, |_| delivered += 1);
        assert_eq!((delivered, scoreboard.len() as u64), (COUNT / 2 - 2, COUNT / 2 + 3));
        assert!(scoreboard.moved <= COUNT, "{} places for one block", scoreboard.moved);
        assert_eq!((scoreboard.lost_bytes, scoreboard.sacked_bytes), (0, COUNT / 2 - 2));
    }
}

#[test]
fn a_block_that_needs_more_records_than_the_limit_is_rounded_inwards_to_whole_ones() {
    let mut scoreboard = Scoreboard::default();
    let count = RECORDS as u64;
    (0..count).for_each(|segment| scoreboard.sent(segment * 10, segment * 10 + 10, stamp(segment)));
    let mut seen = Vec::new();
    scoreboard.sack(12, 18, 1, |record| seen.push((record.start, record.end)));
    scoreboard.sack(12, 22, 1, |record| seen.push((record.start, record.end)));
    assert_eq!((seen.len(), scoreboard.len()), (0, RECORDS));
    scoreboard.sack(32, 50, 1, |record| seen.push((record.start, record.end)));
    scoreboard.sack(62, 88, 1, |record| seen.push((record.start, record.end)));
    assert_eq!((seen, scoreboard.len()), (vec![(40, 50), (70, 80), (80, 88)], RECORDS));
    scoreboard.acknowledge(65, |_| ());
    scoreboard.sack(92, 98, 1, |_| ());
    assert_eq!(scoreboard.sacked_bytes, 18 + 6);
}

#[test]
fn memory_is_counted_and_returned_while_the_connection_is_in_use() {
    const COUNT: u64 = 50_000;
    let mut scoreboard = with_records(10);
    assert_eq!(scoreboard.memory(), 0, "a few records are part of each connection");
    scoreboard = with_records(COUNT);
    let most = scoreboard.memory();
    assert!(most >= COUNT as usize * (size_of::<Node>() + 4), "{most}");
    // A peer that acknowledges one by one, and leaves some that are lost, marked, and in flight.
    let left = COUNT - 20;
    scoreboard.mark(left + 3, Fate::Lost);
    scoreboard.sack(left + 5, left + 9, 1, |_| ());
    scoreboard.resent(left + 3, left + 4, stamp(COUNT));
    scoreboard.mark(left + 4, Fate::Lost);
    assert_eq!(scoreboard.newest_before((left + 2, 0)).map(|record| record.start), Some(left + 1));
    (1..=left).for_each(|una| scoreboard.acknowledge(una, |_| ()));
    assert!(scoreboard.memory() <= 4 * KEPT * size_of::<Node>(), "{} of {most}", scoreboard.memory());
    assert_eq!(
        (scoreboard.len(), scoreboard.in_flight, scoreboard.lost_bytes, scoreboard.sacked_bytes),
        (17, 15, 1, 4)
    );
    assert_eq!(scoreboard.first_lost().map(|record| record.start), Some(left + 4));
    assert_eq!(scoreboard.newest_before((left + 2, 0)).map(|record| record.start), Some(left + 1));
    let ends = (scoreboard.oldest(), scoreboard.newest_before((u64::MAX, 0)));
    assert_eq!([ends.0, ends.1].map(|record| record.map(|record| record.start)), [left, left + 3].map(Some));

    let mut scoreboard = with_records(COUNT);
    scoreboard.sack(1, COUNT, 1, |_| ());
    assert_eq!(
        (scoreboard.len(), scoreboard.memory()),
        (2, 0),
        "nor does a peer that acknowledges nothing keep it"
    );
}

/// All records, in order.
fn all(scoreboard: &Scoreboard) -> Vec<Record> {
    (0..scoreboard.len()).filter_map(|place| scoreboard.at(place)).collect()
}

/// A scoreboard as a vector of records, to compare with.
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
        steps in prop::collection::vec((0u8..10, 0u64..60, 1u64..20, 0u64..3), 0..200),
    ) {
        let (mut scoreboard, mut model) = (Scoreboard::default(), Model::default());
        let (mut una, mut nxt, mut now) = (0, 0, 0);
        for (what, from, len, time) in steps {
            now += time;
            let mut seen = Vec::new();
            match what {
                0..=2 => {
                    scoreboard.sent(nxt, nxt + len, stamp(now));
                    model.sent(nxt, nxt + len, stamp(now));
                    nxt += len;
                }
                3 | 4 => {
                    let (start, end) = (una + from, (una + from + len).min(nxt));
                    scoreboard.sack(start, end, 3, |record| seen.push(record));
                    prop_assert_eq!(&seen, &model.sack(start, end, 3));
                }
                5 => {
                    una = (una + from / 4).min(nxt);
                    scoreboard.acknowledge(una, |record| seen.push(record));
                    let shapes = |seen: &[Record]| seen.iter().map(shape).collect::<Vec<_>>();
                    prop_assert_eq!(shapes(&seen), shapes(&model.acknowledge(una)));
                }
                // Marked records keep a stamp that no longer counts, so none is taken back.
                6 => {
                    scoreboard.lose_all(false);
                    model.lose_all(false);
                }
                7 => {
                    scoreboard.find_all();
                    model.find_all();
                }
                8 => {
                    if let Some(records) = &mut scoreboard.memory {
                        records.rebuild();
                    }
                }
                _ => {
                    if let Some(lost) = scoreboard.first_lost() {
                        let end = (lost.start + len).min(lost.end);
                        scoreboard.resent(lost.start, end, stamp(now));
                        model.resent(lost.start, end, stamp(now));
                    } else if let Some(oldest) = scoreboard.oldest() {
                        scoreboard.mark(oldest.start, Fate::Lost);
                        model.records.iter_mut().filter(|r| r.start == oldest.start).for_each(|r| {
                            r.fate = Fate::Lost;
                        });
                    }
                }
            }
            prop_assert_eq!(
                all(&scoreboard).iter().map(shape).collect::<Vec<_>>(),
                model.records.iter().map(shape).collect::<Vec<_>>()
            );
            let oldest = model.in_flight().min_by_key(|record| (record.stamp.sent_at, record.start));
            prop_assert_eq!(scoreboard.oldest(), oldest);
            prop_assert_eq!(scoreboard.first_lost(), model.first_lost());
            for key in [(now.saturating_sub(from / 8), una + from), (now, nxt), (now / 2, una)] {
                prop_assert_eq!(scoreboard.newest_before(key), model.newest_before(key));
            }
            let again = model.in_flight().filter(|record| record.retransmitted).map(|r| r.len());
            prop_assert_eq!(scoreboard.retransmitted, again.sum::<u64>());
        }
    }

    #[test]
    fn counts_equal_the_records(
        steps in prop::collection::vec((0u8..5, 0u64..40, 1u64..20), 0..80),
    ) {
        let mut scoreboard = Scoreboard::default();
        let (mut una, mut nxt) = (0, 0);
        for (at, (what, from, len)) in steps.into_iter().enumerate() {
            match what {
                0 | 1 => {
                    scoreboard.sent(nxt, nxt + len, stamp(at as u64));
                    nxt += len;
                }
                2 => scoreboard.sack(una + from, (una + from + len).min(nxt), 3, |_| ()),
                3 => {
                    una = (una + from / 4).min(nxt);
                    scoreboard.acknowledge(una, |_| ());
                }
                _ => {
                    scoreboard.lose_all(from == 0);
                    if let Some(lost) = scoreboard.first_lost() {
                        scoreboard.resent(lost.start, (lost.start + len).min(lost.end), stamp(at as u64));
                    }
                }
            }
            let mut sums = [0; 3];
            let mut expected = una;
            for record in all(&scoreboard) {
                prop_assert_eq!(record.start, expected);
                expected = record.end;
                sums[record.fate as usize] += record.len();
            }
            prop_assert_eq!(expected, nxt);
            prop_assert_eq!(sums, [scoreboard.in_flight, scoreboard.lost_bytes, scoreboard.sacked_bytes]);
            prop_assert_eq!(scoreboard.first_lost().is_none(), scoreboard.lost_bytes == 0);
        }
    }
}
