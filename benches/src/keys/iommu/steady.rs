//! Guest to guest through the switch with permanent mappings: with and without an IOMMU.

use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::harness::fabric::Harness;
use crate::harness::front::{self, Connection};
use crate::harness::guest::{Busy, Iommu, Pair, Shape};
use crate::harness::{LOAD, Pinned};
use crate::keys::iommu::{SLICE, enough};
use crate::keys::vhost::{self, Memories};
use crate::machine;
use crate::plan::Plan;
use ringway_frame::Counters;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How often memory and ports are recreated. A guest's physical pages determine its cache conflicts, and can make
/// one of two equal guests a few percent slower for its whole life.
const PLACES: usize = 10;
/// How long sessions are served while frames pass, before the measurement.
const HEARD: Duration = Duration::from_millis(100);

/// A fabric with two guests, and its measured time.
struct Side<'m> {
    harness: Harness,
    /// The back-end works only while these connections are open.
    _front: [Connection; 2],
    pair: Pair<'m>,
    wall: Duration,
    /// Busy time of its workers before the measurement.
    before: u64,
}

impl<'m> Side<'m> {
    fn new(memories: &'m Memories, shape: &Shape, stale: u64) -> Result<Side<'m>, Failure> {
        let mut pair = vhost::pair(memories, shape)?;
        let (mut harness, mut front) = vhost::ours(memories, &pair, shape)?;
        if stale > 0 {
            harness
                .serve_while(|| front.iter_mut().try_for_each(|front| front::leave_stale(front, stale)))?;
        }
        vhost::learn(&mut pair, &harness)?;
        // A guest behind an IOMMU kicks for posted receive buffers until its session has found their addresses known
        // often enough. Without service of the session the kicks would continue, with a system call per burst.
        if shape.iommu != Iommu::Off {
            harness.serve_while(|| pair.run(HEARD).and_then(|_| pair.drain()))?;
        }
        pair.busy = Busy::default();
        let before = harness.busy();
        Ok(Side { harness, _front: front, pair, wall: Duration::ZERO, before })
    }

    fn slice(&mut self, time: Duration) -> Result<f64, Failure> {
        let begin = Instant::now();
        let rate = self.pair.rate(time)?;
        self.wall += begin.elapsed();
        self.pair.drain()?;
        Ok(rate)
    }
}

/// Totals over all sides of one kind.
#[derive(Default)]
struct Sum {
    worker: u64,
    wall: Duration,
    busy: Busy,
    lost: usize,
    drops: u64,
    hits: u64,
    misses: u64,
}

impl Sum {
    fn add(&mut self, side: Side<'_>) {
        let harness = &side.harness;
        self.worker += harness.busy() - side.before;
        self.wall += side.wall;
        self.busy.some += side.pair.busy.some;
        self.busy.all += side.pair.busy.all;
        self.lost += side.pair.lost;
        let hits =
            |counters: &Counters| counters.iotlb_hits.load(Relaxed) + counters.iotlb_rx_hits.load(Relaxed);
        self.hits += harness.sum(hits);
        self.misses += harness.sum(|counters| counters.iotlb_misses.load(Relaxed));
    }

    fn figures(&self) -> [(&'static str, f64); 6] {
        [
            ("busy, worker", self.worker as f64 / self.wall.as_nanos() as f64),
            ("busy, guests", self.busy.share()),
            ("lost", self.lost as f64),
            ("drops", self.drops as f64),
            ("hits", self.hits as f64),
            ("misses", self.misses as f64),
        ]
    }
}

/// Measures `shape` with this many unused pages against `other`.
pub fn measure(plan: &Plan, shape: Shape, stale: u64, other: Shape, mark: f64) -> Result<Entry, Failure> {
    let (mut slices, mut sums, mut is_huge) = (Slices::default(), [Sum::default(), Sum::default()], true);
    let count = enough(plan).slices(2 * SLICE).div_ceil(PLACES);
    for place in 0..PLACES {
        // The order of creation alternates.
        let swaps = place % 2 == 1;
        let shapes = if swaps { [&other, &shape] } else { [&shape, &other] };
        let memories = [vhost::memories(shapes[0])?, vhost::memories(shapes[1])?];
        is_huge &= memories.iter().flatten().all(|(memory, _)| memory.huge);
        let stale_of = |index: usize| if (index == 1) == swaps { stale } else { 0 };
        let mut sides = [
            Side::new(&memories[0], shapes[0], stale_of(0))?,
            Side::new(&memories[1], shapes[1], stale_of(1))?,
        ];
        if swaps {
            sides.reverse();
        }
        let pinned = Pinned::to(LOAD)?;
        let [ours, peer] = &mut sides;
        for _ in 0..count {
            machine::sample();
            slices.ours.push(ours.slice(SLICE)?);
            slices.peer.push(peer.slice(SLICE)?);
        }
        drop(pinned);
        sums.iter_mut().zip(sides).for_each(|(sum, side)| sum.add(side));
    }
    let mut entry = slices.entry("Mpps", Better::More).ratio_at_least(mark);
    let beside = if stale > 0 { "without stale pages" } else { "without an IOMMU" };
    for (name, sum) in
        [if stale > 0 { "with stale pages" } else { "behind an IOMMU" }, beside].iter().zip(&sums)
    {
        entry = entry.step(*name, &sum.figures());
    }
    if !is_huge {
        entry = entry.note("guests' memory is in 4 KB pages: no huge pages are free");
    }
    Ok(entry.note(format!("peer: the same {beside}")))
}
