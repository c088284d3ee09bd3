//! Round trips: a ping through the worker to a second program, which sends it back.

use crate::bench::{Figures, Plan, pin};
use crate::pair::{Side, port};
use crate::relay::UnixRelay;
use crate::through::relay;
use hdrhistogram::Histogram;
use ringway_frame::Storage;
use ringway_mem::Reader;
use ringway_ring_client::{Ring, RingError, Wait};
use rustix::event::{PollFd, PollFlags, poll};
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const FRAME: [u8; 64] = [0x5a; 64];

/// Sends one frame and waits for it at `back`, polling.
fn ping(to: &mut Ring, back: &mut Ring, out: &mut [u8]) -> Result<(), RingError> {
    to.tx.push(&FRAME)?;
    to.tx.sync()?;
    while back.rx.pop(out)?.is_none() {
        std::hint::spin_loop();
    }
    back.rx.sync()
}

/// Ping and pong in one thread on core 0, the worker on core 1; both poll. Returns one median per slice, in
/// microseconds.
pub fn polling(plan: &Plan) -> Result<Figures, Box<dyn Error>> {
    let (mut one, mut two) = (port("a", 64)?, port("b", 64)?);
    let stop = AtomicBool::new(false);
    let mut ours = Vec::new();
    let Side { ring: pinger, queue: first, .. } = &mut one;
    let Side { ring: ponger, queue: second, .. } = &mut two;
    pin(&[0, 1]);
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        scope.spawn(|| {
            pin(&[1]);
            let Some(mut reader) = Reader::register() else { return };
            let mut storage = Storage::default();
            while !stop.load(Ordering::Relaxed) {
                relay(&mut reader, &mut storage, &mut *first.tx, &mut *second.rx);
                relay(&mut reader, &mut storage, &mut *second.tx, &mut *first.rx);
            }
        });
        pin(&[0]);
        let mut out = [0; 64];
        let result = (0..plan.slices).try_for_each(|_| {
            let mut times = Histogram::<u64>::new_with_max(10_000_000_000, 3)?;
            let started = Instant::now();
            while started.elapsed() < plan.slice {
                let before = Instant::now();
                ping(pinger, ponger, &mut out)?;
                ping(ponger, pinger, &mut out)?;
                times.saturating_record(before.elapsed().as_nanos() as u64);
            }
            ours.push(times.value_at_quantile(0.5) as f64 / 1e3);
            Ok::<(), Box<dyn Error>>(())
        });
        stop.store(true, Ordering::Relaxed);
        result
    })?;
    Ok(Figures { unit: "us", ours, peer: Vec::new(), more: false })
}

/// Every thread sleeps between frames: ping, worker and pong. The peer is a relay process between two UNIX
/// datagram sockets. Returns that quantile of each slice, in microseconds.
pub fn sleeping(quantile: f64, plan: &Plan) -> Result<Figures, Box<dyn Error>> {
    let (mut one, mut two) = (port("a", 64)?, port("b", 64)?);
    let stop = AtomicBool::new(false);
    let stop = &stop;
    let unix = UnixRelay::start()?;
    let (mut ours, mut peer) = (Vec::new(), Vec::new());
    pin(&[0, 1]);
    std::thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let (first, second) = (&mut one.queue, &mut two.queue);
        let kicks = [one.program.descriptors()[1], two.program.descriptors()[1]];
        let (pinger, ponger) = (&mut one.ring, &mut two.ring);
        scope.spawn(move || {
            let Some(mut reader) = Reader::register() else { return };
            let mut storage = Storage::default();
            while !stop.load(Ordering::Relaxed) {
                let moved = relay(&mut reader, &mut storage, &mut *first.tx, &mut *second.rx)
                    + relay(&mut reader, &mut storage, &mut *second.tx, &mut *first.rx);
                let turn = reader.turn(0);
                if moved == 0 && first.tx.arm(&turn) && second.tx.arm(&turn) {
                    doze(kicks);
                }
                let turn = reader.turn(0);
                first.tx.disarm(&turn);
                second.tx.disarm(&turn);
            }
        });
        scope.spawn(move || {
            let mut out = [0; 64];
            while !stop.load(Ordering::Relaxed) {
                if back(ponger, &mut out, Some(Duration::from_millis(50))).is_err() {
                    return;
                }
            }
        });
        let mut out = [0; 64];
        let result = (0..plan.slices).try_for_each(|_| {
            ours.push(quantile_of(quantile, plan, || {
                pinger.tx.push(&FRAME)?;
                while pinger.rx.pop(&mut out)?.is_none() {
                    pinger.wait(Wait::RX, None)?;
                }
                Ok(())
            })?);
            peer.push(quantile_of(quantile, plan, || Ok(unix.ping()?))?);
            Ok::<(), Box<dyn Error>>(())
        });
        stop.store(true, Ordering::Relaxed);
        result
    })?;
    Ok(Figures { unit: "us", ours, peer, more: false })
}

fn back(ring: &mut Ring, out: &mut [u8], timeout: Option<Duration>) -> Result<(), RingError> {
    if ring.wait(Wait::RX, timeout)? {
        while ring.rx.pop(out)?.is_some() {
            ring.tx.push(out)?;
        }
    }
    Ok(())
}

/// Sleeps until a kick, as a worker does.
fn doze(kicks: [std::os::fd::BorrowedFd<'_>; 2]) {
    let mut polls = kicks.map(|kick| PollFd::from_borrowed_fd(kick, PollFlags::IN));
    let limit = rustix::time::Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
    if poll(&mut polls, Some(&limit)).is_ok() {
        for (poll, kick) in polls.iter().zip(kicks) {
            if poll.revents().contains(PollFlags::IN) {
                let _ = rustix::io::read(kick, &mut [0u8; 8]);
            }
        }
    }
}

fn quantile_of(
    quantile: f64,
    plan: &Plan,
    mut each: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<f64, Box<dyn Error>> {
    let mut times = Histogram::<u64>::new_with_max(10_000_000_000, 3)?;
    let started = Instant::now();
    while started.elapsed() < plan.slice {
        let before = Instant::now();
        each()?;
        times.saturating_record(before.elapsed().as_nanos() as u64);
    }
    Ok(times.value_at_quantile(quantile) as f64 / 1e3)
}
