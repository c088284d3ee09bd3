//! The cost of idle ports for active ones, and the gain of more workers.

use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::harness::fabric::Harness;
use crate::harness::program::{OnPort, on_port, on_worker};
use crate::harness::sequence::Payload;
use crate::harness::stream::Stream;
use crate::harness::{LOAD, Pinned, WORKER};
use crate::plan::Plan;
use ringway_spec::Poll;
use std::time::Duration;

const SLICE: Duration = Duration::from_millis(100);
const SLOTS: u32 = 512;
/// Slots of idle ports.
const IDLE_SLOTS: u32 = 64;

/// A fabric with programs on many ports; the first two are active.
struct ManyFunctions {
    // The fabric must end before its programs.
    _rig: Harness,
    active: (OnPort, OnPort),
    _idle: Vec<OnPort>,
}

impl ManyFunctions {
    fn new(ports: usize) -> Result<ManyFunctions, Failure> {
        let mut harness = Harness::start(&[WORKER], ports, Poll::Adaptive)?;
        let active = (on_port(&mut harness, "one", SLOTS)?, on_port(&mut harness, "two", SLOTS)?);
        let idle = (2..ports).map(|port| on_port(&mut harness, &format!("idle{port}"), IDLE_SLOTS));
        let idle = idle.collect::<Result<_, _>>()?;
        Ok(ManyFunctions { _rig: harness, active, _idle: idle })
    }

    /// Nanoseconds a frame.
    fn cost(&mut self, time: Duration) -> Result<f64, Failure> {
        let mut stream = Stream::new(&mut self.active.0, vec![&mut self.active.1], 64, 0)?;
        Ok(1e9 / stream.rate(Payload::Untouched, time)?)
    }
}

/// Two active ports of many.
pub fn ports(plan: &Plan) -> Result<Entry, Failure> {
    more_descriptors();
    let mut few = ManyFunctions::new(2)?;
    let counts = [16, 128, 1024];
    let plan = plan.part(1.0 / counts.len() as f64);
    let mut steps = Vec::new();
    let mut slices = Slices::default();
    for count in counts {
        let mut many = ManyFunctions::new(count)?;
        let pinned = Pinned::to(LOAD)?;
        slices = plan.pairs(SLICE, |time| many.cost(time), |time| few.cost(time))?;
        drop(pinned);
        let entry = slices.entry("", Better::Less);
        steps.push((count, entry.ours.unwrap_or(f64::NAN), entry.ratio.unwrap_or(f64::NAN)));
    }
    let entry = slices.entry("ns", Better::Less).ratio_at_most(1.2);
    let entry =
        entry.note("a 64 B frame with 1024 ports, all with programs, 2 of them active; peer: 2 ports");
    Ok(steps.into_iter().fold(entry, |entry, (count, cost, ratio)| {
        entry.step(format!("{count} ports"), &[("ns a frame", cost), ("ratio", ratio)])
    }))
}

/// Raises the limit of descriptors for a thousand programs in this process.
fn more_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // The benchmark reports an insufficient limit.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// One worker, and two.
pub fn workers(plan: &Plan) -> Result<Entry, Failure> {
    let plan = plan.part(0.5);
    let mut steps = Vec::new();
    for cores in [&[WORKER][..], &[WORKER, LOAD]] {
        let mut harness = Harness::start(cores, 4, Poll::Adaptive)?;
        let mut programs = Vec::new();
        for (pair, core) in [(0, cores[0]), (1, cores[cores.len() - 1])] {
            let worker = Some(format!("bench-{core}"));
            let [one, two] = ["one", "two"].map(|side| format!("{side}{pair}"));
            let one = on_worker(&mut harness, &one, SLOTS, worker.clone())?;
            programs.push((one, on_worker(&mut harness, &two, SLOTS, worker)?));
        }
        let slices = plan.alone(SLICE, |time| both(&mut programs, time))?;
        steps.push((cores.len(), slices));
    }
    let mut steps = steps.into_iter();
    let (one, two) = (steps.next().ok_or("no step")?, steps.next().ok_or("no step")?);
    let mut entry = Slices::of(&two.1.ours, &one.1.ours).entry("Mpps", Better::More);
    for (count, slices) in [one, two] {
        let row = slices.entry("", Better::More);
        let figures =
            [("Mpps", row.ours), ("best", row.best)].map(|(name, rate)| (name, rate.unwrap_or(f64::NAN)));
        entry = entry.step(format!("{count} workers"), &figures);
    }
    let note = "two streams of 64 B, one thread each; with two workers each core has a worker and a thread";
    Ok(entry.with("memory, KB", resident()).note(note).note("peer: one worker"))
}

/// Two concurrent streams; millions of frames a second in total.
fn both(programs: &mut [(OnPort, OnPort)], time: Duration) -> Result<f64, Failure> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = programs
            .iter_mut()
            .zip(0..)
            .map(|((from, to), number)| {
                scope.spawn(move || Stream::new(from, vec![to], 64, number)?.rate(Payload::Untouched, time))
            })
            .collect();
        let rates = threads.into_iter().map(|thread| thread.join().map_err(|_| "a program failed")?);
        rates.sum::<Result<f64, Failure>>().map(|rate| rate / 1e6)
    })
}

/// Memory of this process, in KB.
fn resident() -> f64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(f64::NAN)
}
