//! Clocks that stand still and then jump, as when a process was stopped or a guest is resumed: overdue work is
//! caught up for at most a second.
use super::build;
use super::configuration::{configuration, sides};
use ringway_click::{Clock, Options, Recorder, Router, Time, Turn};
use ringway_click_lang::{Anything, Source};
use std::cell::Cell;
use std::rc::Rc;

const SECOND: u64 = 1_000_000_000;
const STEP: u64 = SECOND / 200;

/// Time that tests advance.
#[derive(Clone, Default)]
struct Hand(Rc<Cell<u64>>);

impl Time for Hand {
    fn wall(&mut self) -> u64 {
        self.0.get() + 1_700_000_000 * SECOND
    }

    fn steady(&mut self) -> u64 {
        self.0.get()
    }

    fn fork(&self) -> Box<dyn Time> {
        Box::new(self.clone())
    }
}

impl Hand {
    /// Lets this many nanoseconds pass at once, and the router do what is due.
    fn jump(&self, router: &mut Router, time: u64) {
        self.0.set(self.0.get() + time);
        for _ in 0..40 {
            match router.turn() {
                Turn::Busy => {}
                Turn::IdleUntil(expiry) if expiry <= self.0.get() => {}
                _ => break,
            }
        }
    }

    /// Lets this much time pass in steps.
    fn pass(&self, router: &mut Router, time: u64) {
        (0..time / STEP).for_each(|_| self.jump(router, STEP));
    }
}

fn timed(text: &str) -> Option<(Router, Hand)> {
    let hand = Hand(Rc::new(Cell::new(1_000 * SECOND)));
    let parsed = Source::new(text, "config").read(&mut Anything);
    let clock = Clock::Real(Box::new(hand.clone()));
    let options = Options { clock, ..Options::simulated(1, Recorder::default(), text) };
    let router = Router::build(parsed.graph, &ringway_elements::registry(), options).ok()?;
    Some((router, hand))
}

fn number(router: &mut Router, handler: &str) -> u64 {
    router.read(handler).unwrap().trim().parse().unwrap()
}

/// Elements that emit packets by the clock, and the number of packets a second.
const BY_THE_CLOCK: &[(&str, u64)] = &[
    ("TimedSource(0.005)", 200),
    ("RatedSource(RATE 200)", 200),
    ("ICMPPingSource(1.2.3.4, 5.6.7.8, INTERVAL 0.005)", 200),
    ("FastUDPSource(200, -1, 60, 1:1:1:1:1:1, 1.2.3.4, 5, 2:2:2:2:2:2, 5.6.7.8, 9) -> Unqueue", 200),
    ("FastUDPFlows(200, -1, 60, 1:1:1:1:1:1, 1.2.3.4, 2:2:2:2:2:2, 5.6.7.8, 9, 9) -> Unqueue", 200),
    ("EtherPauseSource(1:1:1:1:1:1, 5, INTERVAL 0.005)", 200),
    ("InfiniteSource -> Queue -> TimedUnqueue(0.005, 1)", 200),
    ("InfiniteSource -> Queue -> Burster(0.005, 1)", 200),
    ("InfiniteSource -> Queue -> RatedUnqueue(200)", 200),
    ("InfiniteSource(LENGTH 100) -> Queue -> BandwidthRatedUnqueue(20kBps)", 200),
    ("InfiniteSource -> Queue -> Shaper(200) -> Unqueue", 200),
    ("InfiniteSource(LENGTH 100) -> Queue -> BandwidthShaper(20kBps) -> Unqueue", 200),
];

#[test]
fn overdue_work_is_caught_up_for_a_second() {
    for (source, rate) in BY_THE_CLOCK {
        let text = format!("{source} -> c :: Counter -> Discard");
        let (mut router, hand) = timed(&text).unwrap_or_else(|| panic!("{text}"));
        hand.pass(&mut router, SECOND);
        let before = number(&mut router, "c.count");
        hand.pass(&mut router, SECOND);
        let steady = number(&mut router, "c.count") - before;
        assert!(steady + 5 >= *rate && steady <= rate + 5, "{text}: {steady} in a second");
        hand.jump(&mut router, 600 * SECOND);
        let caught_up = number(&mut router, "c.count") - before - steady;
        assert!(caught_up <= rate + 5, "{text}: {caught_up} at once");
        let after = number(&mut router, "c.count");
        hand.pass(&mut router, 2 * SECOND);
        let again = number(&mut router, "c.count") - after;
        assert!(again + 5 >= *rate && again <= 3 * rate, "{text}: {again} in two seconds");
    }
}

#[test]
fn a_timed_source_that_was_stopped_for_six_of_nine_seconds() {
    let (mut router, hand) = timed("TimedSource(0.005) -> c :: Counter -> Discard").unwrap();
    hand.pass(&mut router, 2 * SECOND);
    hand.jump(&mut router, 6 * SECOND);
    hand.pass(&mut router, SECOND);
    let count = number(&mut router, "c.count");
    assert!((590..=610).contains(&count), "{count}");
    // A short delay is made up for.
    hand.jump(&mut router, SECOND / 2);
    assert_eq!(number(&mut router, "c.count"), count + 100);
}

#[test]
fn no_element_works_off_an_hour_at_once() {
    let frames = [vec![0; 60]];
    for class in ringway_elements::registry().iter() {
        let text = [false, true].map(|pull| configuration(class, pull, true, &frames));
        let Some(text) = text.iter().find(|text| build(text, 1).is_some()) else { continue };
        if matches!(class.name, "Error" | "Message" | "InfiniteSource") {
            continue;
        }
        let (mut router, hand) = timed(text).unwrap();
        let outputs = sides(class, true).1;
        let emitted = |router: &mut Router| {
            (0..outputs).map(|port| number(router, &format!("out{port}.count"))).sum::<u64>()
        };
        hand.pass(&mut router, SECOND);
        let before = emitted(&mut router);
        hand.pass(&mut router, SECOND);
        let a_second = emitted(&mut router) - before;
        let before = emitted(&mut router);
        hand.jump(&mut router, 3600 * SECOND);
        let at_once = emitted(&mut router) - before;
        // Packets that it held, and a burst.
        assert!(at_once <= a_second + 64, "{}: {a_second} in a second, {at_once} at once", class.name);
    }
}
