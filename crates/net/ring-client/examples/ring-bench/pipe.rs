//! Through a pipe, with one program on each core.

use crate::bench::{Figures, Plan, pin};
use crate::pair;
use ringway_ring_client::{Ring, RingError, Slot};
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const BURST: u32 = 64;

/// Frames per second of `size` bytes; with `touch` every payload is written and read.
pub fn rate(size: u16, slots: u32, touch: bool, plan: &Plan) -> Result<Figures, Box<dyn Error>> {
    let (mut sender, mut receiver, _pipe) = pair::pipe(slots)?;
    let stop = AtomicBool::new(false);
    let mut ours = Vec::new();
    pin(&[0, 1]);
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        scope.spawn(|| {
            pin(&[1]);
            while !stop.load(Ordering::Relaxed) && send(&mut sender, size, touch).is_ok() {
                std::hint::spin_loop();
            }
        });
        pin(&[0]);
        let result = (0..plan.slices).try_for_each(|_| {
            let started = Instant::now();
            let mut received = 0;
            while started.elapsed() < plan.slice {
                for _ in 0..16 {
                    received += receive(&mut receiver, size, touch)?;
                }
            }
            ours.push(received as f64 / started.elapsed().as_secs_f64() / 1e6);
            Ok::<(), Box<dyn Error>>(())
        });
        stop.store(true, Ordering::Relaxed);
        result
    })?;
    Ok(Figures { unit: "Mpps", ours, peer: Vec::new(), more: true })
}

/// Moves so many frames of `size` bytes on one thread, for callgrind, which counts the instructions of [`pass`].
pub fn count(size: usize, frames: usize) -> Result<(), Box<dyn Error>> {
    let (size, mut moved) = (u16::try_from(size)?, 0);
    let (mut sender, mut receiver, _pipe) = pair::pipe(512)?;
    while moved < frames as u64 {
        moved += pass(&mut sender, &mut receiver, size)?;
    }
    Ok(())
}

#[inline(never)]
fn pass(sender: &mut Ring, receiver: &mut Ring, size: u16) -> Result<u64, Box<dyn Error>> {
    send(sender, size, true)?;
    receive(receiver, size, true)
}

fn send(ring: &mut Ring, size: u16, touch: bool) -> Result<(), RingError> {
    let room = ring.tx.room(BURST)?.min(BURST);
    for ahead in 0..room {
        let slot = Slot { len: size, ..ring.tx.slot(ahead) };
        if touch && let Some(buffer) = ring.tx.buffer(slot.buf_idx, 64) {
            buffer.write_64(&[ahead as u8; 64]);
        }
        ring.tx.set_slot(ahead, slot);
    }
    ring.tx.advance(room);
    ring.tx.sync()
}

fn receive(ring: &mut Ring, size: u16, touch: bool) -> Result<u64, Box<dyn Error>> {
    let filled = ring.rx.available(BURST)?.min(BURST);
    let mut bytes = 0;
    let mut line = [0; 64];
    let mut sum = 0u64;
    for ahead in 0..filled {
        let slot = ring.rx.slot(ahead);
        bytes += u64::from(slot.len);
        if touch && let Some(buffer) = ring.rx.buffer(slot.buf_idx, 64) {
            buffer.as_span().read_64(&mut line);
            sum += u64::from(line[63]);
        }
    }
    std::hint::black_box(sum);
    if bytes != u64::from(filled) * u64::from(size) {
        return Err("a frame has another length".into());
    }
    ring.rx.advance(filled);
    ring.rx.sync()?;
    Ok(u64::from(filled))
}
