//! A pipe with one program on each core; the sender numbers each frame, and the receiver verifies it.

use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::harness::program::pipe;
use crate::harness::sequence::{Payload, Sequence};
use crate::harness::stream::{receive, send};
use crate::harness::{LOAD, Pinned, WORKER};
use crate::plan::Plan;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SIZE: usize = 64;
const SLOTS: u32 = 512;
const SLICE: Duration = Duration::from_millis(100);

/// Numbered frames, and frames whose payload is not touched.
pub fn measure(plan: &Plan) -> Result<Entry, Failure> {
    let numbered = slices(plan, Payload::Numbered)?;
    let untouched = slices(&plan.part(0.3), Payload::Untouched)?;
    let entry = numbered.entry("Mpps", Better::More).at_least(60.0);
    Ok(entry.step_of("payload not touched", &untouched).note("each frame numbered and verified"))
}

fn slices(plan: &Plan, payload: Payload) -> Result<Slices, Failure> {
    let (mut sender, mut receiver, _pipe) = pipe(SLOTS)?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| -> Result<(), Failure> {
            ringway_host::pin(WORKER)?;
            let mut next = 0;
            while !stop.load(Ordering::Relaxed) {
                next += u64::from(send(&mut sender, SIZE, payload, next)?);
            }
            Ok(())
        });
        let pinned = Pinned::to(LOAD)?;
        let mut sequence = Sequence::default();
        let slices = plan.alone(SLICE, |time| {
            let (begin, mut received) = (Instant::now(), 0);
            while begin.elapsed() < time {
                for _ in 0..16 {
                    received += receive(&mut receiver, SIZE, payload, &mut sequence)?;
                }
            }
            Ok(received as f64 / begin.elapsed().as_secs_f64() / 1e6)
        });
        drop(pinned);
        stop.store(true, Ordering::Relaxed);
        thread.join().map_err(|_| "the sender failed")??;
        match (sequence.missing, payload) {
            (0, _) | (_, Payload::Untouched) => slices,
            (missing, _) => Err(format!("{missing} frames are missing").into()),
        }
    })
}
