//! The packet generator: a sender on one core; on the other its receiver, which checks every byte of each frame.

use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::harness::program::pipe;
use crate::harness::{LOAD, Pinned, WORKER};
use crate::plan::Plan;
use ringway_pktgen::run::{Load, receive, transmit};
use ringway_pktgen::{Checker, Flows, Generator, Rate, Received, RingLine, Sizes};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Bytes of a frame, without FCS.
const SIZE: usize = 64;
const SLOTS: u32 = 1024;
const SLICE: Duration = Duration::from_millis(100);
/// For how long frames are waited for.
const FRAME_TIMEOUT: Duration = Duration::from_secs(5);

/// Frames that were sent, came, and were as they were sent.
pub fn transmitted(plan: &Plan) -> Result<Entry, Failure> {
    let (slices, received, sent) = slices(plan, Sizes::all(SIZE)?)?;
    let Received { frames, lost, reordered, duplicates, corrupted, foreign, .. } = received;
    if frames != sent || lost + reordered + duplicates + corrupted + foreign > 0 {
        return Err(format!("of {sent} frames {frames} came as they were sent").into());
    }
    let (imix, ..) = self::slices(&plan.part(0.3), Sizes::imix())?;
    let entry = slices.entry("Mpps", Better::More).at_least(20.0).step_of("IMIX", &imix);
    Ok(entry.note("one core sends; each frame's headers, number and payload are checked by the receiver"))
}

fn slices(plan: &Plan, sizes: Sizes) -> Result<(Slices, Received, u64), Failure> {
    let (sender, receiver, _pipe) = pipe(SLOTS)?;
    let generator = Generator::new(&sizes, &Flows::default())?;
    let (stop, came) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| -> Result<Received, Failure> {
            ringway_host::pin(WORKER)?;
            let mut line = RingLine::new(receiver, None).polling();
            let mut checker = Checker::new(Flows::default().ports()).starting_at(0, 0);
            receive(&mut line, &mut checker, |checker, _| {
                came.store(checker.frames(), Relaxed);
                !stop.load(Relaxed)
            })?;
            Ok(checker.received(None))
        });
        let pinned = Pinned::to(LOAD)?;
        let mut line = RingLine::new(sender, None).polling();
        let mut next = 0;
        let slices = plan.alone(SLICE, |time| {
            let (begin, first) = (Instant::now(), next);
            let time = Some(time.as_nanos() as u64);
            let load = Load { rate: Rate::Most, first: next, frames: None, time };
            next += transmit(&mut line, &generator, load, |_, _| true)?.frames;
            while came.load(Relaxed) < next && begin.elapsed() < FRAME_TIMEOUT {
                std::hint::spin_loop();
            }
            Ok((next - first) as f64 / begin.elapsed().as_secs_f64() / 1e6)
        });
        drop(pinned);
        stop.store(true, Relaxed);
        let received = thread.join().map_err(|_| "the receiver failed")??;
        Ok((slices?, received, next))
    })
}
