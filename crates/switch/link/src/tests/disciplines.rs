//! Drop-tail, RED, CoDel and FQ-CoDel.

use super::{MS, Note, drain, drops, link, send};
use crate::{Capacity, CoDelSettings, Delay, Link, Profile, Queue, Reason};
use alloc::vec::Vec;

/// 10 Mb/s: 1250 bytes take 1 ms.
fn bottleneck(queue: Queue) -> Link<Note> {
    link(Profile { rate: Some(10_000_000), queue, ..Profile::default() })
}

const SETTINGS: CoDelSettings = CoDelSettings { target: 5 * MS, interval: 100 * MS, ecn: false };

#[test]
fn a_full_queue_drops_its_tail() {
    let mut link = bottleneck(Queue::DropTail { limit: Capacity::Frames(4), mark: None });
    (0..10).for_each(|number| link.send(Note::new(number, 1250), 0));
    let numbers: Vec<u64> = drain(&mut link).iter().map(|(note, _)| note.number).collect();
    assert_eq!((numbers, drops(&link, Reason::Full)), (Vec::from([0, 1, 2, 3, 4]), 5));
}

#[test]
fn capacities_are_bytes_or_round_trips_too() {
    for (limit, held) in [(Capacity::Bytes(5000), 4), (Capacity::BandwidthDelay(2.0), 8)] {
        // A round trip of 4 ms at 10 Mb/s has four frames.
        let queue = Queue::DropTail { limit, mark: None };
        let delay = Delay::Constant(2 * MS);
        let mut link = link(Profile { rate: Some(10_000_000), queue, delay, ..Profile::default() });
        (0..50).for_each(|number| link.send(Note::new(number, 1250), 0));
        assert_eq!(link.backlog().0, held, "{limit:?}");
    }
}

#[test]
fn frames_behind_the_threshold_are_marked() {
    let mut link = bottleneck(Queue::DropTail { limit: Capacity::Frames(100), mark: Some(2500) });
    for number in 0..6 {
        link.send(Note { capable: number != 5, ..Note::new(number, 1250) }, 0);
    }
    let marked: Vec<u64> =
        drain(&mut link).iter().filter(|(note, _)| note.marked).map(|(note, _)| note.number).collect();
    assert_eq!((marked, link.counters().marked), (Vec::from([4]), 1));
}

/// Sends a frame of 1250 bytes every 0.8 ms for `seconds`; returns each frame's time in the queue, in milliseconds.
fn overloaded(link: &mut Link<Note>, seconds: u64, capable: bool) -> Vec<(Note, u64)> {
    let mut arrived = Vec::new();
    for number in 0..seconds * 1250 {
        let now = number * MS * 4 / 5;
        link.send(Note { capable, ..Note::new(number, 1250) }, now);
        arrived.extend(core::iter::from_fn(|| link.receive(now)));
    }
    arrived.extend(drain(link));
    let waited = |(note, at): (Note, u64)| (note.clone(), (at - note.number * MS * 4 / 5) / MS);
    arrived.into_iter().map(waited).collect()
}

#[test]
fn codel_bounds_the_delay_of_an_unresponsive_flow() {
    let limit = Capacity::Frames(10_000);
    let mut plain = bottleneck(Queue::DropTail { limit, mark: None });
    let last = overloaded(&mut plain, 30, false).last().map(|(_, waited)| *waited);
    assert!(last.is_some_and(|waited| waited > 5_000), "{last:?}");
    let mut codel = bottleneck(Queue::CoDel { settings: SETTINGS, limit });
    let waits = overloaded(&mut codel, 30, false);
    let late = waits[waits.len() / 2..].iter().map(|(_, waited)| *waited).max();
    assert!(late.is_some_and(|waited| waited < 500), "{late:?}");
    assert!(drops(&codel, Reason::Early) > 1_000 && drops(&codel, Reason::Full) == 0);
}

/// RFC 8289, 4.1: a queue that empties within an interval is good, however long it was.
#[test]
fn codel_leaves_bursts_alone() {
    let mut link = bottleneck(Queue::CoDel { settings: SETTINGS, limit: Capacity::Frames(1000) });
    for burst in 0..20 {
        (0..80).for_each(|number| link.send(Note::new(number, 1250), burst * 200 * MS));
        assert_eq!(drain(&mut link).len(), 80);
    }
    assert_eq!(drops(&link, Reason::Early), 0);
}

/// RFC 8289, 5.3: intervals between drops shrink with the square root of their number.
#[test]
fn codel_drops_ever_more_often() {
    let mut link = bottleneck(Queue::CoDel { settings: SETTINGS, limit: Capacity::Frames(100_000) });
    // All at once, each 1 ms to serialize: frame 5 is the first that waited for 5 ms, so that frames are dropped from
    // 105 ms on: the next after 100 ms, then after 100 ms / sqrt(2), 100 ms / sqrt(3).
    (0..2_000).for_each(|number| link.send(Note::new(number, 1250), 0));
    let mut dropped = Vec::new();
    for now in 0..350 {
        let before = drops(&link, Reason::Early);
        while link.receive(now * MS).is_some() {}
        dropped.extend((before..drops(&link, Reason::Early)).map(|_| now));
    }
    assert_eq!(dropped, [105, 205, 276, 334]);
}

/// A change of other properties leaves the discipline's state alone.
#[test]
fn a_changed_rate_keeps_codel_s_state() {
    let queue = Queue::CoDel { settings: SETTINGS, limit: Capacity::Frames(100_000) };
    let mut link = bottleneck(queue.clone());
    (0..2_000).for_each(|number| link.send(Note::new(number, 1250), 0));
    while link.receive(300 * MS).is_some() {}
    assert_eq!(drops(&link, Reason::Early), 3);
    link.change(Profile { rate: Some(9_000_000), queue, ..Profile::default() }, 300 * MS).unwrap();
    while link.receive(340 * MS).is_some() {}
    assert_eq!(drops(&link, Reason::Early), 4, "its next drop is due at 334 ms as before");
}

#[test]
fn codel_marks_instead_if_it_may() {
    let settings = CoDelSettings { ecn: true, ..SETTINGS };
    let mut link = bottleneck(Queue::CoDel { settings, limit: Capacity::Frames(100_000) });
    let arrived = overloaded(&mut link, 5, true);
    assert_eq!((arrived.len(), drops(&link, Reason::Early)), (5 * 1250, 0));
    assert!(link.counters().marked > 20);
}

#[test]
fn fq_codel_shares_the_rate_and_favours_sparse_flows() {
    let limit = Capacity::Frames(1000);
    let mut link = bottleneck(Queue::FqCoDel { settings: SETTINGS, limit, flows: 1024, quantum: 1514 });
    let mut arrived = Vec::new();
    for number in 0..10_000_u64 {
        let now = number * MS / 4;
        // Two flows that want twice the rate each, and a sparse one.
        link.send(Note { flow: number % 2, ..Note::new(number, 1250) }, now);
        if number % 200 == 0 {
            link.send(Note { flow: 2, ..Note::new(number, 100) }, now);
        }
        arrived.extend(core::iter::from_fn(|| link.receive(now)));
    }
    let of = |flow: u64| arrived.iter().filter(|(note, _)| note.flow == flow).count();
    assert!(of(0).abs_diff(of(1)) < 40, "{} {}", of(0), of(1));
    let sparse = arrived.iter().filter(|(note, _)| note.flow == 2);
    let slowest = sparse.map(|(note, at)| at - note.number * MS / 4).max();
    assert!(slowest.is_some_and(|slowest| slowest < 4 * MS), "at most two frames are before it: {slowest:?}");
}

#[test]
fn fq_codel_drops_from_the_longest_queue() {
    let limit = Capacity::Frames(100);
    let mut link = bottleneck(Queue::FqCoDel { settings: SETTINGS, limit, flows: 64, quantum: 1514 });
    (0..20).for_each(|number| link.send(Note { flow: 1, ..Note::new(number, 1250) }, 0));
    (0..1000).for_each(|number| link.send(Note { flow: 2, ..Note::new(number, 1250) }, 0));
    let arrived = drain(&mut link);
    assert_eq!(arrived.iter().filter(|(note, _)| note.flow == 1).count(), 20);
    assert!(drops(&link, Reason::Full) > 800);
}

#[test]
fn red_drops_early_and_spares_short_bursts() {
    let queue =
        Queue::Red { min: 12_500, max: 37_500, probability: 0.1, limit: Capacity::Frames(1000), ecn: false };
    let mut burst = bottleneck(queue.clone());
    (0..40).for_each(|number| burst.send(Note::new(number, 1250), 0));
    assert_eq!(drain(&mut burst).len(), 40, "its average is still low");
    let mut link = bottleneck(queue);
    let waits = overloaded(&mut link, 60, false);
    let late = waits[waits.len() / 2..].iter().map(|(_, waited)| *waited).max();
    assert!(late.is_some_and(|waited| waited < 80), "{late:?}");
    assert!(drops(&link, Reason::Early) > 1_000 && drops(&link, Reason::Full) == 0);
}

#[test]
fn without_a_rate_no_queue_builds_up() {
    let mut link = link(Profile::default());
    send(&mut link, 5_000, 0, 1500);
    assert_eq!((link.backlog().0, drain(&mut link).len()), (0, 5_000));
}
