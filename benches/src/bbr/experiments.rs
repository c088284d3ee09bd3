//! Experiments with one line.

use super::lab::{Cell, Outcome, Schedule, Side, run};
use super::{lateness, scaled};
use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::keys::Rows;
use crate::plan::Plan;
use ringway_netstack::congestion::Algorithm::{self, Bbr1, Bbr3, Cubic};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Ours and the kernel's rate, in `unit` Mb/s, so often.
fn alternate(cell: &Cell, schedule: Schedule, rounds: u64, unit: f64) -> Result<Slices, Failure> {
    let mut slices = Slices::default();
    for round in 0..rounds {
        let rate = |side| -> Result<f64, Failure> {
            let outcomes = run(side, std::slice::from_ref(cell), round, schedule)?;
            Ok(outcomes.iter().map(Outcome::rate).sum::<f64>() / unit)
        };
        slices.ours.push(rate(Side::Ours)?);
        slices.peer.push(rate(Side::Kernel)?);
    }
    Ok(slices)
}

/// A line of 10 Gb/s without delay.
fn back_to_back(flow: Algorithm) -> Cell {
    // A queue of 1 MB: without a delay there is no bandwidth-delay product.
    Cell { limit: "1MB".into(), ..Cell::new(10_000, Duration::ZERO, flow) }
}

/// Back to back.
pub fn back(plan: &Plan) -> Rows {
    let schedule = Schedule { warm: scaled(plan, 0.5), time: scaled(plan, 1.5) };
    let note = "10 Gb/s and no delay on each side; one worker segments, and emulates the line";
    let mut rows = Vec::new();
    for flow in [Bbr1, Cubic] {
        let entry = alternate(&back_to_back(flow), schedule, 6, 1000.0)?.entry("Gb/s", Better::More);
        rows.push(entry.note(note));
    }
    Ok(rows)
}

/// The talk's last experiment.
pub fn lossy_10g(plan: &Plan) -> Result<Entry, Failure> {
    let cell = Cell { loss: 1.0, buffer: 250 << 20, ..Cell::new(10_000, Duration::from_millis(100), Bbr1) };
    let schedule = Schedule { warm: scaled(plan, 4.0), time: scaled(plan, 5.0) };
    let slices = alternate(&cell, schedule, 3, 1000.0)?;
    let entry = slices.entry("Gb/s", Better::More);
    let least = slices.ours.iter().copied().fold(f64::INFINITY, f64::min);
    let holds = least >= 8.0 || entry.ratio.is_some_and(|ratio| ratio >= 1.0);
    Ok(entry.mark(">= 8 Gb/s, else ratio >= 1", holds))
}

/// A line's rate, queue and frames under way against time.
pub fn probe_rtt(plan: &Plan) -> Result<Entry, Failure> {
    let schedule = Schedule { warm: Duration::ZERO, time: scaled(plan, 25.0) };
    let line = Cell::new(100, Duration::from_millis(40), Bbr1);
    let cells = [line.clone(), Cell { flows: vec![Bbr3], ..line.clone() }];
    let ours = run(Side::Ours, &cells, 1, schedule)?;
    let theirs = run(Side::Kernel, &cells[..1], 1, schedule)?;
    let [bbr1, bbr3] = &ours[..] else { return Err("an outcome is missing".into()) };
    let [kernel] = &theirs[..] else { return Err("an outcome is missing".into()) };
    let slices = Slices::of(&[dips(bbr1)], &[dips(kernel)]);
    let mut entry = slices.entry("dips", Better::Less).with("dips of bbr3", dips(bbr3));
    for (name, outcome) in [("ours", bbr1), ("ours, bbr3", bbr3), ("kernel", kernel)] {
        let series =
            outcome.looks.iter().map(|look| [look.at, look.in_flight + look.queue * PER_MS]).collect();
        entry.series.insert(format!("{name}: frames"), series);
        entry.series.insert(format!("{name}: rate"), rates(outcome));
    }
    let note = "times at which at most 8 frames are on the line: every 10 s with BBRv1, 5 s with BBRv3";
    Ok(entry.note(note))
}

/// Frames of 1514 bytes that 100 Mb/s send in a millisecond.
const PER_MS: f64 = 100e6 / 8.0 / 1514.0 / 1e3;

/// How often the line becomes nearly empty after the first two seconds.
fn dips(outcome: &Outcome) -> f64 {
    let mut low = false;
    let mut count = 0;
    for look in outcome.looks.iter().filter(|look| look.at > 2.0) {
        let frames = look.in_flight + look.queue * PER_MS;
        count += u32::from(frames <= 8.0 && !low);
        // Frames that come and go around the bound are one dip.
        low = frames <= 8.0 || low && frames < 64.0;
    }
    f64::from(count)
}

/// Mb/s over 100 ms each.
fn rates(outcome: &Outcome) -> Vec<[f64; 2]> {
    let mut out = Vec::new();
    let (mut at, mut received) = (0.0, 0.0);
    for look in outcome.looks.iter().filter(|look| look.at.is_finite()) {
        if look.at - at >= 0.1 {
            out.push([look.at, (look.received - received) / (look.at - at)]);
            (at, received) = (look.at, look.received);
        }
    }
    out
}

/// Throughput and lateness while a thread on each core computes.
pub fn hog(plan: &Plan) -> Rows {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for core in ringway_host::allowed_cores()? {
            let stop = &stop;
            scope.spawn(move || {
                // Without the pinning the load is the same, but elsewhere.
                let _ = ringway_host::pin(core);
                let mut state = 1_u64;
                while !stop.load(Relaxed) {
                    state = std::hint::black_box(state.wrapping_mul(0x5851_f42d_4c95_7f2d) ^ state >> 29);
                }
            });
        }
        let rows = beside(plan);
        stop.store(true, Relaxed);
        rows
    })
}

fn beside(plan: &Plan) -> Rows {
    let lossy = Cell { loss: 1.0, ..Cell::new(100, Duration::from_millis(100), Bbr1) };
    let long = Schedule { warm: scaled(plan, 3.0), time: scaled(plan, 5.0) };
    let short = Schedule { warm: scaled(plan, 0.5), time: scaled(plan, 1.5) };
    let mut rows = vec![
        alternate(&lossy, long, 3, 1.0)?.entry("Mb/s", Better::More),
        alternate(&back_to_back(Bbr1), short, 6, 1000.0)?.entry("Gb/s", Better::More),
    ];
    // The marks are those of a core of its own.
    rows.extend(lateness::rows(plan)?.into_iter().map(|entry| Entry { marks: Vec::new(), ..entry }));
    let note = "a thread of the same priority on each core";
    Ok(rows.into_iter().map(|entry| entry.note(note)).collect())
}
