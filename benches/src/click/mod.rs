//! Click configurations in this process, from a source in memory to `Discard`, on one core.

mod configuration;
mod frames;
mod handlers;
mod middlebox;
mod patterns;
mod peer;
mod ports;
mod rules;
mod source;

use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::keys::{Folder, Group, QUIET};
use crate::plan::Plan;
use crate::rig::{Pinned, WORKER};
use crate::run::Output;
use configuration::{CASES, Case};
use frames::{Frames, Length};
use ringway_click::{Clock, PACKETS, Router};
use ringway_click_lang::Source;
use ringway_function::click::{Host, Machine, Terminal, registry};
use std::rc::Rc;
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(100);
/// Duration of a peer's slice: its program is restarted for each.
const PEER: Duration = Duration::from_millis(500);
/// Like the peer's, it copies frames from at least 1 MB of memory to recently freed packets.
const SOURCE: &str = "BenchmarkSource";
/// Additional step at 64 bytes: a packet's memory is reused only after 8192 others, as in a card's receive
/// ring, and is not in a nearby cache.
const COLD: (&str, &str, Length) =
    ("64 B, packets from a ring of 8192", "BenchmarkSource(READY 8192)", Length::Fixed(64));
/// A step for both sides: packets wait in a queue of this length before an element reads them. The queue is
/// filled first.
const QUEUED: usize = 9216;
const FILLED: usize = 8192;
/// Lengths in addition to the key's own 64 bytes.
const LENGTHS: [(&str, Length); 6] = [
    ("128 B", Length::Fixed(128)),
    ("256 B", Length::Fixed(256)),
    ("512 B", Length::Fixed(512)),
    ("1024 B", Length::Fixed(1024)),
    ("1500 B", Length::Fixed(1500)),
    ("IMIX", Length::Imix),
];

/// All groups.
pub const GROUPS: &[Group] = &[Group {
    name: "click",
    keys: &[
        ("forward", "source to Discard, 64 B"),
        ("mirror", "Ethernet addresses swapped"),
        ("router", "RFC 1812 fast path, destinations uniform over 200,000 prefixes"),
        ("firewall.10", "IPFilter with 10 rules, none of which matches, then allow; 100,000 flows"),
        ("firewall.10000", "the same with 10,000 rules"),
        ("rules.10", "IPFilter with 10 rules of mixed networks and port ranges; 100,000 flows that match"),
        ("rules.acl", "the same with 10,000 rules like ClassBench's of an access list"),
        ("rules.fw", "the same with 10,000 like its firewall's"),
        ("rules.ipc", "the same with 10,000 like its chain's of Linux's filter"),
        (
            "rules.mixed",
            "the same with 10,000 pairs of prefixes of mixed lengths, 1,000,000 flows that match",
        ),
        ("nat", "IPRewriter, a pattern, 1,000,000 live flows, uniform"),
        ("ids.5", "IDSMatcher with 5 patterns, one payload of 1000 holds one"),
        ("ids.5000", "the same with 5,000 patterns; RULES names a file of Snort's rules to take them from"),
        ("ids.real", "the same with payload of this machine's HTML, text and programs; some of it matches"),
        ("lb", "IPLoadBalancer with 16 servers, 1,000,000 live connections, uniform"),
        ("flowmon", "FlowMonitor, 1,000,000 live flows, uniform"),
        ("bras", "PPPoEConcentrator, 100,000 sessions with a rate each, frames from subscribers"),
        ("bras.down", "the same, packets to subscribers"),
        ("handlers", "the longest pause of packets while handlers of large tables are read and written"),
        ("forward.ports", "a source's port to a function on ring ports to a port that swallows, two cores"),
        ("mirror.ports", "the same, Ethernet addresses swapped"),
    ],
    setup: 120.0,
    costs: 4.0,
    run,
    ..QUIET
}];

fn run(plan: &Plan, output: &mut Output<'_>) -> Result<(), Failure> {
    for (key, between) in ports::CASES {
        if output.wants(key) {
            output.put(key, ports::measure(plan, key, between));
        }
    }
    if output.wants("handlers") {
        output.put("handlers", handlers::measure(plan));
    }
    let _pinned = Pinned::to(WORKER)?;
    for case in CASES {
        if output.wants(case.key) {
            output.put(case.key, measure(plan, case));
        }
    }
    Ok(())
}

fn measure(plan: &Plan, case: &Case) -> Result<Entry, Failure> {
    let frames = Rc::new((case.frames)(Length::Fixed(case.length)));
    let mut ours = build(case, SOURCE, frames.clone())?;
    let size = size(case, &mut ours)?;
    let folder = Folder::new()?;
    let path = folder.path().join("frames.pcap");
    let peer = peer::program().zip(case.theirs);
    let count = frames.len();
    let theirs = |in_place, queue: &str| {
        let (program, text) = peer.as_ref()?;
        let text = text(&peer::source(program, &path, in_place, queue), "count :: Counter -> Discard");
        let filled = if queue.is_empty() { 0 } else { FILLED };
        Some(move |time| peer::rate(program, &text, filled, count, time))
    };
    let slices = match theirs(false, "") {
        None => plan.alone(SLICE, |time| rate(&mut ours, time))?,
        Some(theirs) => {
            peer::capture(&path, &frames)?;
            plan.pairs(SLICE, |time| rate(&mut ours, time), |_| theirs(PEER))?
        }
    };
    let in_place = match theirs(true, "").filter(|_| case.again) {
        Some(theirs) => Some(theirs(PEER)?),
        None => None,
    };
    drop(ours);
    let queued = queued(plan, case, &frames, theirs(false, &queue(32)))?;
    let mut entry = slices.entry("Mpps", Better::More).at_least(case.mark);
    if case.ratio > 0.0 && entry.ratio.is_some() {
        entry = entry.ratio_at_least(case.ratio);
    }
    if let Some(in_place) = in_place {
        entry = entry.with("peer, one slice, frames written in place, Mpps", in_place);
    }
    let ticks = ringway_host::ticks_per_second();
    let best = entry.best.unwrap_or(f64::NAN);
    entry = entry.with("best, ticks a frame", ticks / best / 1e6);
    if case.length > 64 {
        entry = entry.with("best, Gb/s", best * case.length as f64 * 8e-3);
    }
    entry = size.into_iter().fold(entry, |entry, (name, value)| entry.with(name, value));
    entry = entry.step("through a queue that holds 8192, as the peer", &figures(&queued, ticks));
    let lengths = LENGTHS.map(|(name, length)| (name, SOURCE, length));
    for (name, source, length) in [COLD].into_iter().chain(lengths) {
        let frames = Rc::new((case.frames)(length));
        let mut router = build(case, source, frames)?;
        let slices = plan.part(0.1).alone(SLICE, |time| rate(&mut router, time))?;
        entry = entry.step(name, &figures(&slices, ticks));
    }
    if case.theirs.is_none() {
        entry = entry.note("no configuration for a peer");
    } else if entry.peer.is_none() {
        entry = entry.note("no peer: name its program by FASTCLICK or CLICK (built with all elements)");
    }
    Ok(entry)
}

/// What the tables of a packet filter take, and how long a configuration takes to be read and built.
fn size(case: &Case, router: &mut Router) -> Result<Vec<(&'static str, f64)>, Failure> {
    if !case.key.starts_with("rules.") {
        return Ok(Vec::new());
    }
    let bytes: f64 = router.call_read(&router.parse_call("filter.memory", "")?)?.trim().parse()?;
    let text = (case.text)(SOURCE, "Discard");
    let begin = Instant::now();
    self::router(&text, case.key)?;
    let built = begin.elapsed();
    Ok([("tables, MB", bytes / 1e6), ("configuration built, s", built.as_secs_f64())].into())
}

/// The figures of a step, and of the peer if there is one.
fn figures(slices: &Slices, ticks: f64) -> Vec<(&'static str, f64)> {
    let row = slices.entry("Mpps", Better::More);
    let best = row.best.unwrap_or(f64::NAN);
    let theirs = row.peer.into_iter().map(|peer| ("peer, Mpps", peer));
    let ratio = row.ratio.into_iter().map(|ratio| ("ratio", ratio));
    [("Mpps", best), ("ticks a frame", ticks / best / 1e6)].into_iter().chain(theirs).chain(ratio).collect()
}

/// A queue that first blocks, and then passes on a limited number of packets a turn.
fn queue(burst: usize) -> String {
    format!("queue :: Queue({QUEUED}) -> unqueue :: Unqueue(BURST {burst}, ACTIVE false)")
}

/// Rates from a queue that stays filled, so that packets' memory is reused only after 8192 others'.
fn queued(
    plan: &Plan,
    case: &Case,
    frames: &Rc<Frames>,
    peer: Option<impl FnMut(Duration) -> Result<f64, Failure>>,
) -> Result<Slices, Failure> {
    source::set(frames.clone());
    let text = (case.text)(&format!("{SOURCE} -> {}", queue(PACKETS)), "Discard");
    let mut router = router(&text, case.key)?;
    // With some room left, since the source may run first.
    let filled = source::sent() + FILLED as u64;
    while source::sent() < filled {
        router.turn();
    }
    router.call_write(&router.parse_call("unqueue.active true", "")?)?;
    let end = source::sent() + frames.len() as u64;
    while source::sent() < end {
        router.turn();
    }
    let plan = plan.part(if peer.is_some() { 0.5 } else { 0.1 });
    let slices = match peer {
        None => plan.alone(SLICE, |time| rate(&mut router, time))?,
        Some(mut peer) => plan.pairs(SLICE, |time| rate(&mut router, time), |_| peer(PEER))?,
    };
    let drops = router.call_read(&router.parse_call("queue.drops", "")?)?;
    if drops == "0" { Ok(slices) } else { Err(format!("the queue dropped {drops}").into()) }
}

/// A router whose source has sent every frame once.
fn build(case: &Case, source: &str, frames: Rc<Frames>) -> Result<Router, Failure> {
    let count = frames.len() as u64;
    source::set(frames);
    let mut router = router(&(case.text)(source, "Discard"), case.key)?;
    let end = source::sent() + count;
    while source::sent() < end {
        router.turn();
    }
    Ok(router)
}

/// A router of this configuration.
fn router(text: &str, name: &str) -> Result<Router, Failure> {
    let mut registry = registry();
    registry.add(&[&source::CLASS]);
    let parsed = Source::new(text, name).read(&mut Host::new(&registry));
    if parsed.diagnostics.errors() > 0 {
        return Err(parsed.diagnostics.to_string().into());
    }
    let options = ringway_click::Options {
        burst: PACKETS,
        clock: Clock::Real(Box::new(Machine::default())),
        console: Box::new(Terminal),
        seed: 1,
        source: String::new(),
    };
    Ok(Router::build(parsed.graph, &registry, options)?)
}

/// Millions of packets a second.
fn rate(router: &mut Router, time: Duration) -> Result<f64, Failure> {
    let (begin, before) = (Instant::now(), source::sent());
    loop {
        router.turn();
        let passed = begin.elapsed();
        if passed >= time {
            return Ok((source::sent() - before) as f64 / passed.as_secs_f64() / 1e6);
        }
    }
}
