//! Click configurations in this process, from a source in memory to `Discard`, on one core.

mod configuration;
pub mod frames;
mod handlers;
pub mod middlebox;
mod patterns;
mod peer;
mod ports;
mod router;
mod rules;
mod source;
mod tables;

use crate::Failure;
use crate::entry::{Better, Entry};
use crate::harness::{Pinned, WORKER};
use crate::keys::{Folder, Group, QUIET, Row, keys};
use crate::plan::Plan;
pub use configuration::{CASES, Case, flow};
use frames::{Frames, Length};
use peer::{Running, Way};
use ringway_click::{Clock, PACKETS, Router};
use ringway_click_driver::click::{Host, Machine, Terminal, registry};
use ringway_click_lang::Source;
use std::rc::Rc;
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(100);
/// Duration of the trial of each of a peer's modes.
const TRIAL: Duration = Duration::from_millis(300);
/// Maximum number of frames in separate buffers; more take gigabytes.
const MOST_APART: usize = 1 << 18;
/// The source: like the peer's, it copies frames from at least 1 MB of memory to recently freed packets.
const SOURCE: &str = "BenchmarkSource";
/// The sink, whose packets are counted.
const SINK: &str = "sink :: Discard";
/// Additional step at 64 bytes: a packet's memory is reused only after 8192 others, as in a card's receive
/// ring, and is not in a nearby cache.
const COLD: (&str, &str, Length) =
    ("64 B, packets from a ring of 8192", "BenchmarkSource(READY 8192)", Length::Fixed(64));
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
    keys: keys! {
        "forward": Row(|plan| case(plan, "forward")), "source to Discard, 64 B";
        "mirror": Row(|plan| case(plan, "mirror")), "Ethernet addresses swapped";
        "router": Row(|plan| case(plan, "router")),
            "IP router with ARP, ICMP errors and options, destinations uniform over 200,000 prefixes";
        "firewall.10": Row(|plan| case(plan, "firewall.10")),
            "IPFilter with 10 rules, none of which matches, then allow; 100,000 flows";
        "firewall.10000": Row(|plan| case(plan, "firewall.10000")), "the same with 10,000 rules";
        "rules.10": Row(|plan| case(plan, "rules.10")),
            "IPFilter with 10 rules of mixed networks and port ranges; 100,000 flows that match";
        "rules.acl": Row(|plan| case(plan, "rules.acl")),
            "the same with 10,000 rules like ClassBench's of an access list";
        "rules.fw": Row(|plan| case(plan, "rules.fw")), "the same with 10,000 like its firewall's";
        "rules.ipc": Row(|plan| case(plan, "rules.ipc")),
            "the same with 10,000 like its chain's of Linux's filter";
        "rules.mixed": Row(|plan| case(plan, "rules.mixed")),
            "the same with 10,000 pairs of prefixes of mixed lengths, 1,000,000 matching flows";
        "nat": Row(|plan| case(plan, "nat")),
            "IPRewriter, a pattern, packets of 1,000,000 known flows, uniform";
        "nat.replies": Row(|plan| case(plan, "nat.replies")),
            "the same, each packet is answered and translated back";
        "nat.churn": Row(|plan| case(plan, "nat.churn")), "the same, one packet in ten of a new flow";
        "ids.5": Row(|plan| case(plan, "ids.5")),
            "IDSMatcher with 5 patterns, one payload in 1000 contains one";
        "ids.5000": Row(|plan| case(plan, "ids.5000")),
            "the same with 5,000 patterns; RULES names a file of Snort's rules to take them from";
        "ids.real": Row(|plan| case(plan, "ids.real")),
            "the same with payload of this machine's HTML, text and programs; some of it matches";
        "lb": Row(|plan| case(plan, "lb")),
            "IPLoadBalancer with 16 servers, packets of 1,000,000 known connections, uniform";
        "lb.replies": Row(|plan| case(plan, "lb.replies")),
            "the same, each packet is answered and comes back";
        "lb.churn": Row(|plan| case(plan, "lb.churn")), "the same, one packet in ten of a new connection";
        "flowmon": Row(|plan| case(plan, "flowmon")),
            "FlowMonitor, packets of 1,000,000 known flows, uniform";
        "flowmon.replies": Row(|plan| case(plan, "flowmon.replies")),
            "the same, every second flow is another's reply";
        "flowmon.churn": Row(|plan| case(plan, "flowmon.churn")), "the same, one packet in ten of a new flow";
        "bras": Row(|plan| case(plan, "bras")),
            "PPPoEConcentrator, 100,000 sessions, every second beyond its rate, frames from subscribers";
        "bras.down": Row(|plan| case(plan, "bras.down")), "the same, packets to subscribers";
        "link.pps": Row(|plan| case(plan, "link.pps")), "LinkEmulator with a delay of 100 us";
        "link.gbit": Row(|plan| case(plan, "link.gbit")), "the same with 1500 B; 40 Gb/s are 3.34 Mpps";
        "handlers": Row(handlers::measure),
            "the longest delay of packets while handlers of large tables are read and written";
        "forward.ports": Row(|plan| ports::measure(plan, "forward.ports", "")),
            "from a source port through a function on ring ports to a sink port, two cores";
        "mirror.ports": Row(|plan| ports::measure(plan, "mirror.ports", "-> EtherMirror ")),
            "the same, Ethernet addresses swapped";
    },
    // Each of a peer's modes may take a minute to start.
    setup: 300.0,
    costs: 4.0,
    one_core: true,
    ..QUIET
}];

fn case(plan: &Plan, key: &str) -> Result<Entry, Failure> {
    let case = CASES.iter().find(|case| case.key == key).ok_or("no such configuration")?;
    let _pinned = Pinned::to(WORKER)?;
    measure(plan, case)
}

fn measure(plan: &Plan, case: &Case) -> Result<Entry, Failure> {
    let rivals = Rivals::of(case, (case.frames)(Length::Fixed(case.length)))?;
    let mut ours = Ours::build(case.key, &(case.text)(SOURCE, SINK), rivals.frames.clone())?;
    let size = size(case, &mut ours)?;
    let slices = match rivals.best {
        None => plan.alone(SLICE, |time| ours.rate(time))?,
        Some(best) => {
            let mut peer = rivals.start(best, false)?;
            plan.pairs(SLICE, |time| ours.rate(time), |time| peer.rate(time))?
        }
    };
    let mut entry = slices.entry("Mpps", Better::More);
    if case.mark > 0.0 {
        entry = entry.at_least(case.mark);
    }
    if case.ratio > 0.0 && entry.ratio.is_some() {
        entry = entry.ratio_at_least(case.ratio);
    }
    let ticks = ringway_host::ticks_per_second() / 1e6;
    let best = entry.best.unwrap_or(f64::NAN);
    entry = entry.with("best, ticks a frame", ticks / best);
    entry = entry.with("lost, %", 100.0 * ours.measure(SLICE)?[1]);
    drop(ours);
    if case.length > 64 {
        entry = entry.with("best, Gb/s", best * case.length as f64 * 8e-3);
    }
    entry = size.into_iter().fold(entry, |entry, (name, value)| entry.with(name, value));
    entry = rivals.compare(plan, entry)?;
    let mut steps = vec![COLD];
    if case.varies() {
        steps.extend(LENGTHS.map(|(name, length)| (name, SOURCE, length)));
    }
    for (name, source, length) in steps {
        let frames = (case.frames)(length);
        entry = entry.step(name, &figures(plan, case, source, frames)?);
    }
    if let Some(frames) = case.new_flows {
        let frames = frames(Length::Fixed(case.length));
        entry = entry.step("1,000,000 flows in turn", &figures(plan, case, SOURCE, frames)?);
    }
    if case.theirs.is_some() && rivals.frames.len() <= MOST_APART {
        let frames = (case.frames)(Length::Fixed(case.length)).apart();
        entry = entry.step("each frame in a buffer of 2 KB", &figures(plan, case, SOURCE, frames)?);
    }
    Ok(if case.theirs.is_none() { entry.note("no configuration for a peer") } else { entry })
}

/// Memory of a packet filter's tables, and the time to parse and build its configuration.
fn size(case: &Case, ours: &mut Ours) -> Result<Vec<(&'static str, f64)>, Failure> {
    if !case.key.starts_with("rules.") {
        return Ok(Vec::new());
    }
    let bytes: f64 = ours.0.read("filter.memory")?.trim().parse()?;
    let text = (case.text)(SOURCE, "Discard");
    let begin = Instant::now();
    self::router(&text, case.key)?;
    let built = begin.elapsed();
    Ok([("tables, MB", bytes / 1e6), ("configuration built, s", built.as_secs_f64())].into())
}

/// The best rate with these frames.
fn figures(
    plan: &Plan,
    case: &Case,
    source: &str,
    frames: Frames,
) -> Result<[(&'static str, f64); 2], Failure> {
    let mut ours = Ours::build(case.key, &(case.text)(source, SINK), Rc::new(frames))?;
    let row = plan.part(0.1).alone(SLICE, |time| ours.rate(time))?.entry("Mpps", Better::More);
    let best = row.best.unwrap_or(f64::NAN);
    Ok([("Mpps", best), ("ticks a frame", ringway_host::ticks_per_second() / best / 1e6)])
}

/// The modes in which a peer can run a case.
struct Rivals<'a> {
    case: &'a Case,
    frames: Rc<Frames>,
    folder: Folder,
    ways: Vec<Way>,
    /// Each mode's rate, or why it has none.
    rates: Vec<Result<f64, Failure>>,
    /// The fastest mode.
    best: Option<usize>,
}

impl<'a> Rivals<'a> {
    /// Tries each mode. Our frames are then in the same kind of memory as those of the fastest mode.
    fn of(case: &'a Case, frames: Frames) -> Result<Rivals<'a>, Failure> {
        let ways = if case.theirs.is_some() { peer::ways(case.again) } else { Vec::new() };
        let (folder, frames) = (Folder::new()?, Rc::new(frames));
        let mut rivals = Rivals { case, frames, folder, ways, rates: Vec::new(), best: None };
        if !rivals.ways.is_empty() {
            peer::capture(rivals.folder.path(), &rivals.frames)?;
        }
        for way in 0..rivals.ways.len() {
            let rate = rivals.start(way, false).and_then(|mut running| running.rate(TRIAL));
            rivals.rates.push(rate);
        }
        let rates =
            rivals.rates.iter().enumerate().filter_map(|(way, rate)| Some((way, *rate.as_ref().ok()?)));
        rivals.best = rates.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(way, _)| way);
        let apart = rivals.best.is_some_and(|best| rivals.ways[best].apart);
        if apart && rivals.frames.len() <= MOST_APART {
            rivals.frames = Rc::new((case.frames)(Length::Fixed(case.length)).apart());
        }
        Ok(rivals)
    }

    /// Starts a mode; `counted`: packets are counted at the source too.
    fn start(&self, way: usize, counted: bool) -> Result<Running, Failure> {
        let text = self.case.theirs.ok_or("no configuration for a peer")?;
        Running::start(&self.ways[way], self.folder.path(), &self.frames, text, counted)
    }

    /// Adds each mode's rate, the fastest one's losses, and the cost of both sources alone.
    fn compare(&self, plan: &Plan, mut entry: Entry) -> Result<Entry, Failure> {
        for (way, rate) in self.ways.iter().zip(&self.rates) {
            entry = match rate {
                Ok(rate) => entry.step(format!("FastClick, {}", way.name), &[("peer, Mpps", *rate)]),
                Err(error) => entry.note(format!("{}: {error}", way.name)),
            };
        }
        let Some(best) = self.best else {
            let why = "no peer: name its programs by FASTCLICK and FASTCLICK_NOCLONE";
            let unnamed = self.case.theirs.is_some() && self.ways.is_empty();
            return Ok(if unnamed { entry.note(why) } else { entry });
        };
        entry = entry.note(format!("FastClick: {}", self.ways[best].name));
        entry = entry.with("peer, lost, %", 100.0 * self.start(best, true)?.measure(TRIAL)?[1]);
        let alone = |source: &str, sink: &str| format!("{source} -> {sink};");
        let mut ours = Ours::build("source", &alone(SOURCE, SINK), self.frames.clone())?;
        let mut peer = Running::start(&self.ways[best], self.folder.path(), &self.frames, alone, false)?;
        let row = plan.part(0.2).pairs(SLICE, |time| ours.rate(time), |time| peer.rate(time))?;
        let row = row.entry("Mpps", Better::More);
        let ticks = ringway_host::ticks_per_second() / 1e6;
        let each = |rate: Option<f64>| ticks / rate.unwrap_or(f64::NAN);
        let (source, theirs) = (each(row.ours), each(row.peer));
        let figures =
            [("ticks a frame", source), ("peer, ticks a frame", theirs), ("ratio", theirs / source)];
        let (rest, their_rest) = (each(entry.ours) - source, each(entry.peer) - theirs);
        let rests =
            [("ticks a frame", rest), ("peer, ticks a frame", their_rest), ("ratio", their_rest / rest)];
        Ok(entry.step("the source alone, to Discard", &figures).step("without the source", &rests))
    }
}

/// A router whose sink counts packets.
struct Ours(Router);

impl Ours {
    /// A router whose source has sent every frame once.
    fn build(name: &str, text: &str, frames: Rc<Frames>) -> Result<Ours, Failure> {
        let count = frames.len() as u64;
        source::set(frames);
        let mut router = router(text, name)?;
        let end = source::sent() + count;
        while source::sent() < end {
            router.turn();
        }
        Ok(Ours(router))
    }

    /// Packets that have arrived at the sink.
    fn received(&mut self) -> Result<u64, Failure> {
        Ok(self.0.read("sink.count")?.trim().parse()?)
    }

    /// Millions of packets a second at the sink, and the share of sent packets that were lost.
    fn measure(&mut self, time: Duration) -> Result<[f64; 2], Failure> {
        let (begin, sent, received) = (Instant::now(), source::sent(), self.received()?);
        loop {
            self.0.turn();
            let passed = begin.elapsed();
            if passed >= time {
                let (sent, received) = (source::sent() - sent, self.received()? - received);
                return Ok([
                    received as f64 / passed.as_secs_f64() / 1e6,
                    1.0 - received as f64 / sent as f64,
                ]);
            }
        }
    }

    /// Millions of packets a second at the sink.
    fn rate(&mut self, time: Duration) -> Result<f64, Failure> {
        Ok(self.measure(time)?[0])
    }
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
