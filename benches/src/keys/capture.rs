//! What captures cost the frames that they copy, and those that they don't.

use super::ring::{SLOTS, on_and_off};
use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::harness::fabric::Harness;
use crate::harness::program::on_port;
use crate::harness::sequence::Payload;
use crate::harness::stream::Stream;
use crate::harness::{LOAD, Pinned, WORKER};
use crate::plan::Plan;
use ringway_fabric::proto::Capture;
use ringway_host::{Mapping, memfd};
use ringway_ring::capture::{Consumer, Geometry};
use ringway_spec::{Kind, Poll, Port};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// Bytes of the memory of copies, and of a frame that are copied: those of `ringway capture`.
const MEMORY: usize = 16 << 20;
const SNAP_LEN: u32 = 262_144;
/// Between two looks of whoever reads the copies.
const PAUSE: Duration = Duration::from_millis(1);

/// The memory of a capture by one worker.
struct Copies {
    file: OwnedFd,
    memory: Arc<Mapping>,
    geometry: Geometry,
}

impl Copies {
    fn new(ports: usize) -> Result<Copies, Failure> {
        // A lane for the worker, and one for `data`, as `control` has them.
        let geometry = Geometry::new(2, ports, MEMORY);
        let file = memfd("bench-capture", geometry.bytes())?;
        let memory = Mapping::sealed(&file)?;
        geometry.initialize(memory.words());
        Ok(Copies { file, memory, geometry })
    }

    /// Reads copies until `stop`; their number.
    fn read(&self, stop: &AtomicBool) -> Result<u64, Failure> {
        let mut consumers = vec![Consumer::default(); self.geometry.lanes()];
        let mut count = 0;
        loop {
            let is_last = stop.load(Relaxed);
            for (number, consumer) in consumers.iter_mut().enumerate() {
                let lane = self.geometry.lane(self.memory.words(), number).ok_or("no such lane")?;
                consumer.drain(&lane, |_, _| count += 1).map_err(|_| "copies that can't be read")?;
            }
            if is_last {
                return Ok(count);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Copies for which there was no room.
    fn dropped(&self) -> u64 {
        let lanes = 0..self.geometry.lanes();
        let lanes = lanes.filter_map(|lane| self.geometry.lane(self.memory.words(), lane));
        lanes
            .map(|lane| (0..self.geometry.ports()).map(|port| lane.statistics(port).dropped).sum::<u64>())
            .sum()
    }
}

fn capture(ports: &[&str]) -> Capture {
    Capture {
        ports: ports.iter().map(|name| (*name).into()).collect(),
        inbound: true,
        outbound: true,
        drops: false,
        filter: String::new(),
        snap_len: SNAP_LEN,
        verdicts: false,
    }
}

/// Frames of 64 bytes between two ports while `ports` are captured, and while none is; the copies that were read.
fn measure(plan: &Plan, ports: &[&str], copies: &Copies) -> Result<(Slices, u64, u64), Failure> {
    let mut harness = Harness::start(&[WORKER], 3, Poll::Adaptive)?;
    let (mut one, mut two) = (on_port(&mut harness, "one", SLOTS)?, on_port(&mut harness, "two", SLOTS)?);
    harness.add_port(Port::new("three", Kind::new("ring", &()), None))?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| copies.read(&stop));
        let measured = (|| {
            let _pinned = Pinned::to(LOAD)?;
            let mut stream = Stream::new(&mut one, vec![&mut two], 64, 0)?;
            let slices = on_and_off(plan, (&mut stream, Payload::Numbered), |is_on| {
                harness.fabric.end_capture(1);
                if is_on {
                    harness.fabric.capture(1, capture(ports), &copies.file)?;
                }
                Ok(())
            })?;
            Ok((slices, stream.missing()))
        })();
        harness.fabric.end_capture(1);
        stop.store(true, Relaxed);
        let read = reader.join().map_err(|_| "the reader of copies failed")??;
        measured.map(|(slices, missing)| (slices, missing, read))
    })
}

/// While another port is captured.
pub fn off(plan: &Plan) -> Result<Entry, Failure> {
    let copies = Copies::new(1)?;
    let (slices, missing, read) = measure(plan, &["three"], &copies)?;
    if read > 0 {
        return Err(format!("{read} frames were captured at a port that has none").into());
    }
    let entry = slices.entry("Mpps", Better::More).ratio_at_least(0.99);
    Ok(entry.note("peer: the same while no port is captured").with("frames lost", missing as f64))
}

/// While both ports are captured, whole and in both directions.
pub fn all(plan: &Plan) -> Result<Entry, Failure> {
    let copies = Copies::new(2)?;
    let (slices, missing, read) = measure(plan, &["one", "two"], &copies)?;
    if read == 0 {
        return Err("no frame was captured".into());
    }
    let dropped = copies.dropped();
    let entry = slices.entry("Mpps", Better::More).note("peer: the same while no port is captured");
    let entry = entry.note("a thread that sleeps between two looks reads the copies, on the programs' core");
    let share = read as f64 / (read + dropped) as f64;
    Ok(entry.with("frames lost", missing as f64).with("share of copies that had room", share))
}
