//! Clocks that stand still and then jump, as when a process was stopped or a guest is resumed: overdue work is
//! caught up for at most a second.
use super::build;
use super::configuration::{configuration, sides};
use proptest::prelude::*;
use ringway_click::{
    Class, Clock, Context, Element, Options, PacketBurst, Recorder, Router, RunTime, Time, Turn,
};
use ringway_click_lang::{Anything, Source};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

const SECOND: u64 = 1_000_000_000;
const STEP: u64 = SECOND / 200;

/// Time that tests advance; the time of day; whether the steady clock stands still with the program.
#[derive(Clone, Default)]
struct Hand(Rc<Cell<u64>>, Rc<Cell<u64>>, Option<RunTime>);

impl Time for Hand {
    fn wall(&mut self) -> u64 {
        self.0.get() + self.1.get()
    }

    fn steady(&mut self) -> u64 {
        let now = self.0.get();
        self.2.as_mut().map_or(now, |run| run.at(now))
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
    timed_by(text, None)
}

fn timed_by(text: &str, run: Option<RunTime>) -> Option<(Router, Hand)> {
    let (now, day) = (Cell::new(1_000 * SECOND), Cell::new(1_700_000_000 * SECOND));
    let hand = Hand(Rc::new(now), Rc::new(day), run);
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
    ("InfiniteSource(LENGTH 100) -> Queue -> LinkUnqueue(0s, 20kBps)", 200),
    ("InfiniteSource(LENGTH 100) -> Queue -> LinkUnqueue(10ms, 20kBps)", 200),
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

/// Elements that delay packets by times, which get and emit a hundred a second.
const DELAYS: &[&str] = &[
    "DelayUnqueue(0.1s)",
    "DelayShaper(0.1s) -> Unqueue",
    "LinkUnqueue(0.1s, 100kBps)",
    "Unqueue -> LinkEmulator(DELAY 100ms)",
];

#[test]
fn delays_do_not_follow_the_clock_of_the_day() {
    const JUMPS: [i64; 6] = [-7200, -1, 3600, 7200, -3600, 1];
    for (delay, jump) in DELAYS.iter().flat_map(|delay| JUMPS.map(|jump| (delay, jump))) {
        let text =
            format!("RatedSource(RATE 100, LENGTH 60) -> q :: Queue -> {delay} -> c :: Counter -> Discard");
        let (mut router, hand) = timed(&text).unwrap_or_else(|| panic!("{text}"));
        hand.pass(&mut router, 2 * SECOND);
        let before = number(&mut router, "c.count");
        hand.1.set(hand.1.get().wrapping_add_signed(jump * SECOND as i64));
        // Packets that were stamped before count as sent now, or have waited enough.
        hand.pass(&mut router, SECOND);
        let count = number(&mut router, "c.count") - before;
        assert!((85..=115).contains(&count), "{delay} {jump}: {count} packets in a second");
        hand.pass(&mut router, SECOND);
        let count = number(&mut router, "c.count") - before;
        assert!((185..=215).contains(&count), "{delay} {jump}: {count} packets in two seconds");
        assert!(number(&mut router, "q.length") <= 20, "{delay} {jump}");
    }
}

#[test]
fn delays_go_on_after_a_standstill() {
    for (delay, run) in
        DELAYS.iter().flat_map(|delay| [None, Some(RunTime::default())].map(|run| (delay, run)))
    {
        let text =
            format!("RatedSource(RATE 100, LENGTH 60) -> q :: Queue -> {delay} -> c :: Counter -> Discard");
        let (mut router, hand) = timed_by(&text, run).unwrap_or_else(|| panic!("{text}"));
        hand.pass(&mut router, 2 * SECOND);
        let before = number(&mut router, "c.count");
        hand.jump(&mut router, 3600 * SECOND);
        let at_once = number(&mut router, "c.count") - before;
        assert!(at_once <= 120, "{delay}: {at_once} at once");
        hand.pass(&mut router, SECOND);
        let count = number(&mut router, "c.count") - before;
        assert!((85..=220).contains(&count), "{delay}: {count} packets in a second");
    }
}

/// Elements with tables whose entries age, configurations that fill them, and the number of entries.
const AGEING: &[(&str, &str)] = &[
    ("f -> e :: IPRewriter(pattern 9.9.9.9 1024-65535 - - 0 0, REAP_INTERVAL 10) -> Discard", "e.table_size"),
    (
        "f -> e :: UDPRewriter(pattern 9.9.9.9 1024-65535 - - 0 0, REAP_INTERVAL 10) -> Discard",
        "e.table_size",
    ),
    ("f -> e :: IPAddrPairRewriter(pattern 9.9.9.9 - 0 0, REAP_INTERVAL 10) -> Discard", "e.table_size"),
    ("f -> e :: IPLoadBalancer(5.6.7.8, 10.0.0.1, TIMEOUT 60s) -> Discard", "e.count"),
    ("f -> e :: FlowMonitor(IDLE_TIMEOUT 60s, ACTIVE_TIMEOUT 600s) -> Discard", "e.count"),
    ("f -> Discard; e :: ARPTable", "e.count"),
];

#[test]
fn nothing_ages_while_the_function_stands_still() {
    for (element, handler) in AGEING {
        let text = format!(
            "InfiniteSource(LENGTH 60, LIMIT 1) -> UDPIPEncap(1.0.0.1, 5, 5.6.7.8, 6) -> f :: Null; {element}"
        );
        let (mut router, hand) =
            timed_by(&text, Some(RunTime::default())).unwrap_or_else(|| panic!("{text}"));
        hand.pass(&mut router, SECOND);
        if element.contains("ARPTable") {
            router.write("e.insert 1.2.3.9 1:1:1:1:1:9").unwrap();
        }
        for day in [0, 7200, -3600] {
            assert_eq!(number(&mut router, handler), 1, "{element}");
            hand.1.set(hand.1.get().wrapping_add_signed(day * SECOND as i64));
            hand.jump(&mut router, 7200 * SECOND);
            hand.pass(&mut router, SECOND);
        }
        assert_eq!(number(&mut router, handler), 1, "{element}");
        (0..7500).for_each(|_| hand.jump(&mut router, SECOND));
        assert_eq!(number(&mut router, handler), 0, "{element}: it ages while the function runs");
    }
}

/// The first and the last eight bytes of a datagram, in two fragments.
const FRAGMENTS: [&str; 2] = [
    "4500001c 00012000 40110000 01000001 05060708 00050006 00100000",
    "4500001c 00010001 40110000 01000001 05060708 00010203 04050607",
];

#[test]
fn fragments_wait_for_each_other_while_the_function_stands_still() {
    let ends = FRAGMENTS.map(|data| {
        format!(
            "InfiniteSource(DATA \\<{data}>, LIMIT 1, ACTIVE false) -> MarkIPHeader -> SetTimestamp -> e;"
        )
    });
    let text = format!(
        "e :: IPReassembler -> c :: Counter -> Discard; first :: {}
            second :: {}",
        ends[0], ends[1]
    );
    for (still, day, running, whole) in [
        (3600, 0, 1, true),
        (0, 7200, 1, true),
        (0, -7200, 1, true),
        (3600, 3600, 20, true),
        (0, 0, 35, false),
        (3600, -3600, 35, false),
    ] {
        let (mut router, hand) =
            timed_by(&text, Some(RunTime::default())).unwrap_or_else(|| panic!("{text}"));
        router.write("first.active true").unwrap();
        hand.pass(&mut router, SECOND);
        assert_eq!(number(&mut router, "e.length"), 1);
        hand.1.set(hand.1.get().wrapping_add_signed(day * SECOND as i64));
        hand.jump(&mut router, still * SECOND);
        hand.pass(&mut router, running * SECOND);
        router.write("second.active true").unwrap();
        hand.pass(&mut router, SECOND);
        let seen =
            (number(&mut router, "c.count"), number(&mut router, "e.length"), number(&mut router, "e.drops"));
        assert_eq!(seen, if whole { (1, 0, 0) } else { (0, 1, 1) }, "{still} {day} {running}");
    }
}

#[test]
fn rates_are_forgotten_over_a_standstill_and_measured_again() {
    for meter in ["Counter", "BandwidthMeter(1000)", "Meter(1000)"] {
        let more = if meter == "Counter" { "" } else { "m [1] -> Discard;" };
        let text = format!("RatedSource(RATE 200, LENGTH 60) -> m :: {meter} -> Discard; {more}");
        let (mut router, hand) = timed(&text).unwrap_or_else(|| panic!("{text}"));
        let handler = if meter == "Counter" { "m.bit_rate" } else { "m.rate" };
        let rate = |router: &mut Router| router.read(handler).unwrap().trim().parse::<f64>().unwrap();
        hand.pass(&mut router, 2 * SECOND);
        let before = rate(&mut router);
        assert!(before > 0.0, "{meter}");
        hand.jump(&mut router, 3600 * SECOND);
        let after = rate(&mut router);
        assert!(after <= before * 1.5, "{meter}: {before} before, {after} after");
        hand.pass(&mut router, 2 * SECOND);
        let again = rate(&mut router);
        assert!(again > before / 2.0 && again < before * 2.0, "{meter}: {before} before, {again} afterwards");
    }
}

thread_local! {
    /// The time from each packet's timestamp to its arrival, in nanoseconds.
    static UNDER_WAY: RefCell<Vec<i64>> = const { RefCell::new(Vec::new()) };
}

static ARRIVAL: Class = Class::new("Arrival", || Box::new(Arrival)).ports("1/0");

struct Arrival;

impl Element for Arrival {
    fn push(&mut self, _: usize, burst: &mut PacketBurst, cx: &mut Context<'_>) {
        let now = cx.now();
        let times = burst.drain().map(|packet| now.wrapping_sub(packet.timestamp()) as i64);
        UNDER_WAY.with_borrow_mut(|all| all.extend(times));
    }
}

/// Time that passes between any two readings: a processor that others use too.
#[derive(Clone)]
struct Descheduled(Rc<Cell<u64>>, Rc<Cell<u64>>);

impl Time for Descheduled {
    fn wall(&mut self) -> u64 {
        self.steady() + 1_700_000_000 * SECOND
    }

    fn steady(&mut self) -> u64 {
        let mut random = self.1.get();
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        self.1.set(random);
        let passed = if random & 7 == 0 { random >> 8 & 0x7f_ffff } else { random >> 8 & 0xfff };
        self.0.set(self.0.get() + passed);
        self.0.get()
    }

    fn fork(&self) -> Box<dyn Time> {
        Box::new(self.clone())
    }
}

/// Elements that delay, up to the delay's number.
const LINKS: &[&str] = &["LinkEmulator(DELAY ", "Queue -> DelayUnqueue(", "Queue -> LinkUnqueue("];

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_packet_arrives_before_its_delay_is_over(
        seed in 1u64..,
        delay in 1u64..30,
        burst in prop::sample::select(vec![1usize, 7, 64]),
        link in prop::sample::select(LINKS),
    ) {
        let bandwidth = if link.contains("LinkUnqueue") { ", 100MBps" } else { "" };
        let text = format!("TimedSource(0.001) -> SetTimestamp -> {link}{delay}ms{bandwidth}) -> Arrival");
        let parsed = Source::new(&text, "config").read(&mut Anything);
        let mut registry = ringway_elements::registry();
        registry.add(&[&ARRIVAL]);
        let time = Descheduled(Rc::new(Cell::new(1_000 * SECOND)), Rc::new(Cell::new(seed)));
        let clock = Clock::Real(Box::new(time));
        let options = Options { clock, ..Options::simulated(burst, Recorder::default(), &text) };
        let mut router = Router::build(parsed.graph, &registry, options).unwrap();
        UNDER_WAY.take();
        for _ in 0..2000 {
            router.turn();
        }
        let all = UNDER_WAY.take();
        prop_assert!(all.len() > 20, "{text}: {} arrived", all.len());
        let least = all.iter().min().unwrap();
        // The others set the timestamp to the time at which the packet shall leave.
        let due = if link.contains("LinkEmulator") { delay as i64 * 1_000_000 } else { 0 };
        prop_assert!(*least >= due, "{text}: {least} ns");
    }
}
