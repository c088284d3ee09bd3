//! Through a pipe, with one program on each core.

use crate::Failure;
use crate::entry::{Better, Entry};
use crate::plan::Plan;
use crate::rig::program::pipe;
use crate::rig::stream::Payload;
use crate::rig::{LOAD, Pinned, WORKER, two_cores};
use crate::run::Output;
use ringway_client::{Ring, Slot};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const BURST: u32 = 64;
const SIZE: u16 = 64;
const SLOTS: u32 = 512;
const SLICE: Duration = Duration::from_millis(100);

/// Runs the keys that are wanted.
pub fn run(plan: &Plan, output: &mut Output<'_>) -> Result<(), Failure> {
    two_cores()?;
    output.put("pipe.64", rate(plan, Payload::Untouched).map(|entry| entry.best_at_least(60.0)));
    output.put("pipe.64.touched", rate(plan, Payload::Touched));
    Ok(())
}

fn rate(plan: &Plan, payload: Payload) -> Result<Entry, Failure> {
    let (mut sender, mut receiver, _pipe) = pipe(SLOTS)?;
    let stop = AtomicBool::new(false);
    let slices = std::thread::scope(|scope| {
        let thread = scope.spawn(|| -> Result<(), Failure> {
            ringway_host::pin(WORKER)?;
            while !stop.load(Ordering::Relaxed) {
                send(&mut sender, payload)?;
            }
            Ok(())
        });
        let pinned = Pinned::to(LOAD)?;
        let slices = plan.alone(SLICE, |time| {
            let (begin, mut received) = (Instant::now(), 0);
            while begin.elapsed() < time {
                for _ in 0..16 {
                    received += receive(&mut receiver, payload)?;
                }
            }
            Ok(received as f64 / begin.elapsed().as_secs_f64() / 1e6)
        });
        drop(pinned);
        stop.store(true, Ordering::Relaxed);
        thread.join().map_err(|_| "the sender failed")??;
        slices
    })?;
    Ok(slices.entry("Mpps", Better::More))
}

#[inline]
fn send(ring: &mut Ring, payload: Payload) -> Result<(), Failure> {
    let room = ring.tx.room(BURST)?.min(BURST);
    for ahead in 0..room {
        let slot = Slot { len: SIZE, ..ring.tx.slot(ahead) };
        if payload == Payload::Touched {
            let buffer = ring.tx.buffer(slot.buf_idx, SIZE.into()).ok_or("no such buffer")?;
            buffer.write_64(&[ahead as u8; 64]);
        }
        ring.tx.set_slot(ahead, slot);
    }
    ring.tx.advance(room);
    ring.tx.sync()?;
    Ok(())
}

#[inline]
fn receive(ring: &mut Ring, payload: Payload) -> Result<u64, Failure> {
    let filled = ring.rx.available(BURST)?.min(BURST);
    let (mut bytes, mut sum, mut line) = (0, 0u64, [0; 64]);
    for ahead in 0..filled {
        let slot = ring.rx.slot(ahead);
        bytes += u64::from(slot.len);
        if payload == Payload::Touched {
            let buffer = ring.rx.buffer(slot.buf_idx, SIZE.into()).ok_or("no such buffer")?;
            buffer.as_span().read_64(&mut line);
            sum += u64::from(line[63]);
        }
    }
    std::hint::black_box(sum);
    if bytes != u64::from(filled) * u64::from(SIZE) {
        return Err("a frame came with another length".into());
    }
    ring.rx.advance(filled);
    ring.rx.sync()?;
    Ok(u64::from(filled))
}
