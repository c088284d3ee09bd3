//! What the steps of the switch are worth when they are done for a burst: VALE's own ablation (Rizzo and Lettieri,
//! "VALE, a switched Ethernet for virtual machines", 2012).
//!
//! One thread does everything. It fills a ring, forwards all of its frames with the queues and the lookup of the
//! fabric, which alone is timed, and empties the other rings.

use crate::Failure;
use crate::entry::{Better, Entry, Slices, median};
use crate::harness::program::{OnPort, with_ring};
use crate::harness::sequence::{Payload, Sequence};
use crate::harness::stream::{Stations, receive, send};
use crate::harness::{Pinned, WORKER};
use crate::plan::Plan;
use crate::report::Report;
use crate::svg::{Line, panels};
use ringway_frame::{BURST, Burst, CountersRef, RxQueue, Storage, TxQueue};
use ringway_host::Mapping;
use ringway_mem::{Reader, Turn};
use ringway_port::Silent;
use ringway_port::ring::{Config, RingPort};
use ringway_ring::{Policy, RingMemory};
use ringway_ring_client::RingOptions;
use ringway_switch::{FLOOD, Learning, Lookup, Mac, NOWHERE, Station, Table, Verdicts};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(50);
const SLOTS: u32 = 512;
/// Stations at each end: a frame of a burst has other addresses than the one before.
const STATIONS: u16 = 256;
const BURSTS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];
const SIZES: [usize; 6] = [64, 128, 256, 512, 1024, 1500];
const COUNTS: [usize; 5] = [1, 2, 4, 8, 16];
/// Nanoseconds of the clock of every turn: no station gets older.
const NOW: u64 = 1_000_000_000;
/// Seconds for which the table knows a station.
const AGEING: u32 = 300;

/// What is done for each frame instead of for each burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Nothing.
    Batched,
    /// The table is asked.
    Table,
    /// The destination is locked, gets room and a copy, and is told.
    Lock,
}

const WAYS: [(&str, Way); 3] =
    [("all for a burst", Way::Batched), ("table a frame", Way::Table), ("lock a frame", Way::Lock)];

/// A port, and the program at it.
struct End {
    program: OnPort,
    tx: Box<dyn TxQueue>,
    rx: Mutex<Box<dyn RxQueue>>,
    _port: RingPort,
}

impl End {
    fn new() -> Result<End, Failure> {
        let program = with_ring(RingOptions { slots: [SLOTS; 2], ..RingOptions::default() })?;
        let descriptors = program.program.descriptors().map(|fd| fd.try_clone_to_owned());
        let descriptors: Vec<OwnedFd> = descriptors.into_iter().collect::<std::io::Result<_>>()?;
        let [memory, kick, call] = <[OwnedFd; 3]>::try_from(descriptors).map_err(|_| "three descriptors")?;
        let (mut port, queues) = RingPort::new(Config {
            counters: CountersRef::private(),
            doorbell: Arc::new(Silent),
            policy: Policy::default(),
            broken: Arc::new(|_| {}),
        });
        port.attach(RingMemory::attach(Mapping::sealed(&memory)?.region())?, kick, call)?;
        let queue = queues.into_iter().next().ok_or("a port without queues")?;
        Ok(End { program, tx: queue.tx, rx: Mutex::new(queue.rx), _port: port })
    }
}

/// A switch with one end that sends, and others that receive.
struct Bench {
    source: End,
    to: Vec<End>,
    table: Table,
    lookup: Learning,
    reader: Reader,
    stations: Stations,
    size: usize,
    storage: Storage,
    verdicts: Verdicts,
}

impl Bench {
    /// With frames of `size` bytes to one of `count` ends, or, if they are several, to all of them; `burst` frames at
    /// once.
    fn new(size: usize, count: usize, burst: usize) -> Result<Bench, Failure> {
        let source = End::new()?;
        let to = (0..count).map(|_| End::new()).collect::<Result<Vec<_>, _>>()?;
        let stations = Stations { count: STATIONS, broadcast: count > 1 };
        let known = || {
            let ports = count + 1;
            let table = Table::new(4 * u32::from(STATIONS), ports, AGEING, u32::from(STATIONS), SEED);
            for number in 0..STATIONS {
                table.add_static(Mac::new(Stations::address(1, number)), 1);
            }
            table
        };
        let bench = Bench {
            table: known(),
            lookup: Learning::new(known(), false),
            source,
            to,
            reader: Reader::register().ok_or("too many threads")?,
            stations,
            size,
            storage: Storage::new(burst),
            verdicts: [NOWHERE; BURST],
        };
        bench.stations.prefill(&bench.source.program.ring, size);
        Ok(bench)
    }

    /// Nanoseconds of the switch for each frame that it delivered, within about `time`.
    fn cost(&mut self, way: Way, time: Duration) -> Result<f64, Failure> {
        let (begin, mut switching, mut delivered) = (Instant::now(), Duration::ZERO, 0);
        while begin.elapsed() < time {
            let mut sent = 0;
            while let count @ 1.. = send(&mut self.source.program.ring, self.size, Payload::Untouched, 0)? {
                sent += u64::from(count);
            }
            let start = Instant::now();
            let forwarded = self.forward(way)?;
            switching += start.elapsed();
            let mut came = 0;
            for end in &mut self.to {
                let ring = &mut end.program.ring;
                let mut sequence = Sequence::default();
                while let count @ 1.. = receive(ring, self.size, Payload::Untouched, &mut sequence)? {
                    came += count;
                }
            }
            if forwarded != sent || came != sent * self.to.len() as u64 {
                return Err(format!("of {sent} frames {forwarded} were taken, {came} delivered").into());
            }
            delivered += came;
        }
        if delivered == 0 {
            Err("no frame came".into())
        } else {
            Ok(switching.as_nanos() as f64 / delivered as f64)
        }
    }

    /// Forwards all frames that the source has; returns their number.
    fn forward(&mut self, way: Way) -> Result<u64, Failure> {
        let mut all = 0;
        loop {
            let turn = self.reader.turn(NOW);
            let mut burst = Burst::begin(&mut self.storage);
            self.source.tx.take(&turn, &mut burst);
            let count = burst.len();
            if count == 0 {
                return Ok(all);
            }
            match way {
                Way::Table => find_each(&self.table, &burst, turn.now, &mut self.verdicts),
                Way::Batched | Way::Lock => {
                    self.lookup.lookup(&burst, 0, turn.now, &mut self.verdicts);
                }
            }
            let which: [u16; BURST] = std::array::from_fn(|index| index as u16);
            let wanted = if self.stations.broadcast { FLOOD } else { 1 };
            if self.verdicts[..count].iter().any(|verdict| *verdict != wanted) {
                return Err("the lookup finds another port".into());
            }
            let at_once = if way == Way::Lock { 1 } else { count };
            for end in &self.to {
                for part in which[..count].chunks(at_once) {
                    deliver(&end.rx, &turn, &burst, part)?;
                }
            }
            self.source.tx.release(&turn, count);
            all += count as u64;
        }
    }
}

/// The key of the tables' hash.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Asks the table for each frame by itself, without what the frames before have shown.
fn find_each(table: &Table, burst: &Burst<'_>, now: u64, verdicts: &mut Verdicts) {
    let second = (now / 1_000_000_000) as u32;
    for (index, verdict) in verdicts.iter_mut().enumerate().take(burst.len()) {
        let head = burst.head(index);
        let source = head[6..].first_chunk().map_or(Mac::new([0; 6]), |bytes| Mac::new(*bytes));
        table.learn(Station::from(source), 0, second);
        let to = Station::destination(head);
        *verdict = if to.mac().is_group() { FLOOD } else { table.find(to, second).unwrap_or(FLOOD) };
    }
}

/// Locks a destination, and gives it these frames, all of which have room.
fn deliver(
    rx: &Mutex<Box<dyn RxQueue>>,
    turn: &Turn<'_>,
    burst: &Burst<'_>,
    which: &[u16],
) -> Result<(), Failure> {
    let mut queue = match rx.try_lock() {
        Ok(queue) => queue,
        Err(TryLockError::WouldBlock) => return Err("a destination is locked".into()),
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
    };
    if queue.reserve(turn, burst, which) < which.len() {
        return Err("a destination has no room".into());
    }
    queue.put(turn, burst, which);
    queue.publish(turn);
    Ok(())
}

/// Nanoseconds of the switch for each frame, by one way.
fn measured(plan: &Plan, bench: &mut Bench, way: Way) -> Result<Slices, Failure> {
    let mut slices = Slices::default();
    for _ in 0..plan.slices(SLICE) {
        crate::machine::sample();
        slices.ours.push(bench.cost(way, SLICE)?);
    }
    Ok(slices)
}

/// Nanoseconds a frame: bursts of 1 to 64 frames by each way, then sizes and numbers of destinations with bursts of 64.
pub fn switch(plan: &Plan) -> Result<Entry, Failure> {
    let _pinned = Pinned::to(WORKER)?;
    let runs = BURSTS.len() * WAYS.len() + SIZES.len() + COUNTS.len();
    let plan = plan.part(1.0 / runs as f64);
    let (mut entry, mut steps) = (Entry::default(), Entry::default());
    for burst in BURSTS {
        let mut bench = Bench::new(SIZES[0], 1, burst)?;
        let mut figures = Vec::new();
        for (name, way) in WAYS {
            let slices = measured(&plan, &mut bench, way)?;
            figures.push((name, median(&slices.ours).ok_or("no slice")?));
            if way == Way::Batched {
                entry = slices.entry("ns", Better::Less);
            }
        }
        steps = steps.step(format!("{burst} frames at once"), &figures);
    }
    let cases = SIZES.map(|size| (format!("{size} B"), size, 1)).into_iter();
    for (name, size, count) in cases.chain(COUNTS.map(|count| (format!("{count} destinations"), 64, count))) {
        let slices = measured(&plan, &mut Bench::new(size, count, BURST)?, Way::Batched)?;
        steps = steps.step(name, &[(WAYS[0].0, median(&slices.ours).ok_or("no slice")?)]);
    }
    let note = "the switch's part alone, by one thread whose caches have everything; the figure is that of \
                bursts of 64 frames of 64 B to one of 256 stations";
    Ok(Entry { steps: steps.steps, ..entry }.note(note))
}

/// The plot of [`switch`].
pub fn plot(report: &Report) -> Option<String> {
    let entry = report.get("ablation.switch").filter(|entry| !entry.steps.is_empty())?;
    let line = |end: &str, name: &str| {
        let steps = entry.steps.iter().filter_map(|step| Some((step.name.strip_suffix(end)?, step)));
        let points = steps.filter_map(|(x, step)| Some((x.parse().ok()?, *step.figures.get(name)?)));
        Line { name: name.into(), points: points.collect() }
    };
    let panel = |title: &str, lines: Vec<Line>| (title.to_string(), lines);
    let all = WAYS[0].0;
    let parts = [
        panel("ns a frame, by frames at once", WAYS.map(|(name, _)| line(" frames at once", name)).into()),
        panel("ns a frame, by bytes of a frame", vec![line(" B", all)]),
        panel("ns a delivered frame, by destinations", vec![line(" destinations", all)]),
    ];
    Some(panels("What bursts are worth in the switch", "", &parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_delivers_every_frame() {
        for burst in [1, 3, BURST] {
            let mut bench = Bench::new(64, 1, burst).unwrap();
            for (name, way) in WAYS {
                assert!(bench.cost(way, Duration::from_millis(1)).unwrap() > 0.0, "{name}");
            }
        }
        let mut bench = Bench::new(300, 3, BURST).unwrap();
        assert!(bench.cost(Way::Batched, Duration::from_millis(1)).unwrap() > 0.0);
    }

    #[test]
    fn the_plot_has_a_line_for_each_way() {
        let mut entry = Entry::default();
        for burst in BURSTS {
            entry = entry.step(format!("{burst} frames at once"), &WAYS.map(|(name, _)| (name, 90.0)));
        }
        entry = entry.step("64 B", &[(WAYS[0].0, 20.0)]).step("1500 B", &[(WAYS[0].0, 80.0)]);
        let image = plot(&Report::from([("ablation.switch".into(), entry)])).unwrap();
        assert_eq!(image.matches("stroke-width=\"1.8\"").count(), 5, "{image}");
        assert_eq!(plot(&Report::new()), None);
    }
}
