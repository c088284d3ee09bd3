//! From one program to another through a worker that moves frames between their ports.

use crate::bench::{Figures, Plan, pin};
use crate::pair::{Side, port};
use ringway_frame::{Burst, RxQueue, Storage, TxQueue};
use ringway_mem::Reader;
use ringway_ring_client::Ring;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const BURST: usize = 64;

/// Moves available frames from `tx` to `rx`; returns their number.
#[inline(never)]
pub fn relay(
    reader: &mut Reader,
    storage: &mut Storage,
    tx: &mut dyn TxQueue,
    rx: &mut dyn RxQueue,
) -> usize {
    const ALL: [u16; BURST] = {
        let mut all = [0; BURST];
        let mut at = 0;
        while at < BURST {
            all[at] = at as u16;
            at += 1;
        }
        all
    };
    let turn = reader.turn(0);
    let mut burst = Burst::begin(storage);
    tx.take(&turn, &mut burst);
    if burst.is_empty() {
        return 0;
    }
    let count = rx.reserve(&turn, &burst, &ALL[..burst.len()]);
    rx.put(&turn, &burst, &ALL[..count]);
    tx.release(&turn, count);
    rx.publish(&turn);
    count
}

/// Frames per second of `size` bytes; with `touch` every payload is written by the sender and read by the receiver.
/// The worker is alone on core 1; sender and receiver are one thread on core 0. The peer is a copy of the same bytes
/// between the same slots on one core.
pub fn rate(size: usize, slots: u32, touch: bool, plan: &Plan) -> Result<Figures, Box<dyn Error>> {
    let mut from = port("a", slots)?;
    let mut to = port("b", slots)?;
    let stop = AtomicBool::new(false);
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    let Side { ring: sender, queue: source, .. } = &mut from;
    let Side { ring: receiver, queue: target, .. } = &mut to;
    prefill(sender, size);
    pin(&[0, 1]);
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        scope.spawn(|| {
            pin(&[1]);
            let Some(mut reader) = Reader::register() else { return };
            let mut storage = Storage::default();
            while !stop.load(Ordering::Relaxed) {
                relay(&mut reader, &mut storage, &mut *source.tx, &mut *target.rx);
            }
        });
        pin(&[0]);
        let frame = vec![0x5a; size];
        let mut out = vec![0; size];
        let result = (0..plan.slices).try_for_each(|_| {
            let rate = slice(sender, receiver, &frame, &mut out, touch, plan.slice)?;
            ours.push(if size < 1000 { rate / 1e6 } else { rate * size as f64 * 8.0 / 1e9 });
            let copies = copies(sender, receiver, size, plan.slice / 4);
            peer.push(if size < 1000 { copies / 1e6 } else { copies * size as f64 * 8.0 / 1e9 });
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        result
    })?;
    Ok(Figures { unit: if size < 1000 { "Mpps" } else { "Gb/s" }, ours, peer, more: true })
}

/// Moves so many frames of `size` bytes on one thread, for valgrind, which counts the instructions of [`relay`], and
/// the cache lines between it and the rest.
pub fn count(size: usize, frames: usize) -> Result<(), Box<dyn Error>> {
    let (mut from, mut to) = (port("a", 512)?, port("b", 512)?);
    let mut reader = Reader::register().ok_or("no reader")?;
    let (mut storage, frame, mut out) = (Storage::default(), vec![0x5a; size], vec![0; size]);
    println!("second core: {:#x}", relay as *const () as usize);
    let mut moved = 0;
    while moved < frames {
        touched(&mut from.ring, &mut to.ring, &frame, &mut out)?;
        moved += relay(&mut reader, &mut storage, &mut *from.queue.tx, &mut *to.queue.rx);
    }
    Ok(())
}

fn prefill(ring: &mut Ring, size: usize) {
    let frame = vec![0x5a; size];
    for ahead in 0..ring.tx.slots() {
        let slot = ring.tx.slot(ahead);
        if let Some(buffer) = ring.tx.buffer(slot.buf_idx, size as u32) {
            buffer.write(&frame);
        }
    }
}

fn slice(
    sender: &mut Ring,
    receiver: &mut Ring,
    frame: &[u8],
    out: &mut [u8],
    touch: bool,
    time: Duration,
) -> Result<f64, Box<dyn Error>> {
    let started = Instant::now();
    let mut received = 0u64;
    while started.elapsed() < time {
        for _ in 0..16 {
            received += if touch {
                touched(sender, receiver, frame, out)?
            } else {
                untouched(sender, receiver, frame)?
            };
        }
    }
    Ok(received as f64 / started.elapsed().as_secs_f64())
}

fn touched(
    sender: &mut Ring,
    receiver: &mut Ring,
    frame: &[u8],
    out: &mut [u8],
) -> Result<u64, Box<dyn Error>> {
    for _ in 0..BURST {
        if !sender.tx.push(frame)? {
            break;
        }
    }
    sender.tx.sync()?;
    let mut received = 0;
    while received < BURST as u64 && receiver.rx.pop(out)?.is_some() {
        received += 1;
    }
    receiver.rx.sync()?;
    Ok(received)
}

fn untouched(sender: &mut Ring, receiver: &mut Ring, frame: &[u8]) -> Result<u64, Box<dyn Error>> {
    let room = sender.tx.room(BURST as u32)?.min(BURST as u32);
    for ahead in 0..room {
        let slot = ringway_ring_client::Slot { len: frame.len() as u16, ..sender.tx.slot(ahead) };
        sender.tx.set_slot(ahead, slot);
    }
    sender.tx.advance(room);
    sender.tx.sync()?;
    let filled = receiver.rx.available(BURST as u32)?.min(BURST as u32);
    let mut bytes = 0;
    for ahead in 0..filled {
        bytes += u64::from(receiver.rx.slot(ahead).len);
    }
    if bytes != u64::from(filled) * frame.len() as u64 {
        return Err("a frame has another length".into());
    }
    receiver.rx.advance(filled);
    receiver.rx.sync()?;
    Ok(u64::from(filled))
}

/// Copies per second from the sender's slots to the receiver's.
fn copies(sender: &Ring, receiver: &Ring, size: usize, time: Duration) -> f64 {
    let started = Instant::now();
    let mut done = 0u64;
    let slots = sender.tx.slots();
    while started.elapsed() < time {
        for _ in 0..256 {
            let at = (done % u64::from(slots)) as u32;
            let from = sender.tx.buffer(sender.tx.slot(at).buf_idx, size as u32);
            let to = receiver.rx.buffer(receiver.rx.slot(at).buf_idx, size as u32);
            if let (Some(from), Some(to)) = (from, to) {
                ringway_mem::copy(from.as_span(), to);
            }
            done += 1;
        }
    }
    done as f64 / started.elapsed().as_secs_f64()
}
