//! Round trips through the switch, polling and sleeping.

use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::harness::fabric::Harness;
use crate::harness::program::{connected, on_port};
use crate::harness::{LOAD, Pinned, WORKER, clock, times};
use crate::keys::Rows;
use crate::peer::relay::Relay;
use crate::plan::Plan;
use hdrhistogram::Histogram;
use ringway_port::link;
use ringway_ring_client::{Ring, RingOptions, Wait};
use ringway_spec::{Kind, Poll, Port, To};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(200);
const SLOTS: u32 = 64;

/// Delay of the link.
const DELAY: Duration = Duration::from_millis(1);
/// Time between two frames on the link.
const GAP: Duration = Duration::from_micros(20);

/// p99, p50 and maximum of the time after its due time at which a frame of a link with a constant delay arrives at a
/// program that polls, in microseconds; and how much of both cores' time the hypervisor took meanwhile, in percent. The
/// peer is what a frame would pass if nothing had to be done: on each core, a loop that only reads the clock.
pub fn lateness(plan: &Plan) -> Result<Entry, Failure> {
    let before = clock::Stolen::begin()?;
    let parts =
        |times: Histogram<u64>| [0.99, 0.5, 1.0].map(|part| times.value_at_quantile(part) as f64 / 1e3);
    let [p99, p50, most] = plan.alternate(
        SLICE,
        |_| Ok(parts(on_line()?)),
        |_| {
            let mut bare = empty()?;
            let count = (SLICE.as_nanos() / GAP.as_nanos()) as u32;
            for late in clock::late_on([WORKER, LOAD], Instant::now(), GAP, count)? {
                bare.saturating_record(late);
            }
            Ok(parts(bare))
        },
    )?;
    let stolen = before.end()?;
    let [p50, most] = [p50, most].map(|slices| slices.entry("us", Better::Less));
    let value = |value: Option<f64>| value.unwrap_or(f64::NAN);
    let note = "p99, as the receiving program sees it; all poll; peer: loops that only read the clock";
    let entry = p99.entry("us", Better::Less).at_most(20.0).note(note);
    Ok(entry
        .with("p50", value(p50.ours))
        .with("longest of a slice", value(most.ours))
        .with("peer's p50", value(p50.peer))
        .with("peer's longest of a slice", value(most.peer))
        .with("stolen, %", stolen))
}

fn empty() -> Result<Histogram<u64>, Failure> {
    Ok(Histogram::new_with_max(10_000_000_000, 3)?)
}

/// A slice of frames over a link of its own, whose worker polls until the end.
fn on_line() -> Result<Histogram<u64>, Failure> {
    let mut harness = Harness::start(&[WORKER], 3, Poll::Always)?;
    let ring = |name: &str, to: &str| Port::new(name, Kind::new("ring", &()), Some(To::Patch(to.into())));
    let mut from = connected(&mut harness, ring("from", "line"), RingOptions::default())?;
    let mut to = connected(&mut harness, ring("to", "from"), RingOptions::default())?;
    let settings = BTreeMap::from([("delay".to_string(), format!("{}us", DELAY.as_micros()))]);
    let kind = Kind::new(link::KIND.name, &link::Settings(settings));
    harness.add_port(Port::new("line", kind, Some(To::Patch("to".into()))))?;
    let (from, to, mut out) = (&mut from.ring, &mut to.ring, [0; 64]);
    let _pinned = Pinned::to(LOAD)?;
    let (clock, mut next, mut times) = (Instant::now(), Duration::ZERO, empty()?);
    // Frames of the first milliseconds meet a worker that begins.
    let fresh = (5 * DELAY).as_nanos() as u64;
    loop {
        let now = clock.elapsed();
        if now >= SLICE + 5 * DELAY {
            return Ok(times);
        }
        if now >= next {
            next = now + GAP;
            let mut sent = frame(2, 1);
            sent[16..24].copy_from_slice(&(now.as_nanos() as u64).to_le_bytes());
            from.tx.push(&sent)?;
            from.tx.sync()?;
        }
        while to.rx.pop(&mut out)?.is_some() {
            let sent = out[16..24].try_into().map_or(0, u64::from_le_bytes);
            if sent >= fresh {
                let late = clock.elapsed().as_nanos() as u64 - sent;
                times.saturating_record(late.saturating_sub(DELAY.as_nanos() as u64));
            }
        }
        to.rx.sync()?;
    }
}

fn frame(to: u8, from: u8) -> [u8; 64] {
    let mut frame = [0; 64];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, to]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, from]);
    frame
}

/// Sends a frame and polls until it arrives.
#[inline]
fn pass(from: &mut Ring, to: &mut Ring, frame: &[u8], out: &mut [u8]) -> Result<(), Failure> {
    from.tx.push(frame)?;
    from.tx.sync()?;
    while to.rx.pop(out)?.is_none() {
        std::hint::spin_loop();
    }
    to.rx.sync()?;
    Ok(())
}

/// The worker, ping and pong poll.
pub fn polling(plan: &Plan) -> Result<Entry, Failure> {
    let mut harness = Harness::start(&[WORKER], 2, Poll::Adaptive)?;
    let (mut ping, mut pong) = (on_port(&mut harness, "ping", SLOTS)?, on_port(&mut harness, "pong", SLOTS)?);
    let (ping, pong) = (&mut ping.ring, &mut pong.ring);
    let (there, back, mut out) = (frame(2, 1), frame(1, 2), [0; 64]);
    let _pinned = Pinned::to(LOAD)?;
    let [p50, p99, _] = plan.figures(SLICE, |time| {
        times(time, || {
            pass(ping, pong, &there, &mut out)?;
            pass(pong, ping, &back, &mut out)
        })
    })?;
    let p99 = p99.entry("us", Better::Less).ours.unwrap_or(f64::NAN);
    let entry = p50.entry("us", Better::Less).at_most(2.0).with("p99", p99);
    Ok(entry.note("p50; ping and pong in one thread, which polls, as does the worker"))
}

/// All threads sleep between frames: p50 and p99.
pub fn sleeping(plan: &Plan) -> Rows {
    let relay = Relay::start(LOAD)?;
    let mut harness = Harness::start(&[LOAD], 2, Poll::Never)?;
    let (mut ping, mut pong) = (on_port(&mut harness, "ping", SLOTS)?, on_port(&mut harness, "pong", SLOTS)?);
    let (ping, pong) = (&mut ping.ring, &mut pong.ring);
    let (there, back) = (frame(2, 1), frame(1, 2));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| -> Result<(), Failure> {
            ringway_host::pin(LOAD)?;
            let mut out = [0; 64];
            while !stop.load(Ordering::Relaxed) {
                if pong.wait(Wait::RX, Some(Duration::from_millis(50)))? {
                    while pong.rx.pop(&mut out)?.is_some() {
                        pong.tx.push(&back)?;
                    }
                    pong.sync()?;
                }
            }
            Ok(())
        });
        let pinned = Pinned::to(LOAD)?;
        let (mut out, mut echo) = ([0; 64], [0; 64]);
        let ours = |time| {
            times(time, || {
                ping.tx.push(&there)?;
                // Nothing else returns slots if the answer arrives before a wait.
                ping.sync()?;
                while ping.rx.pop(&mut out)?.is_none() {
                    if !ping.wait(Wait::RX, Some(Duration::from_secs(2)))? {
                        return Err("a frame does not return".into());
                    }
                }
                Ok(())
            })
        };
        let result = plan.alternate(SLICE, ours, |time| times(time, || relay.ping(&there, &mut echo)));
        stop.store(true, Ordering::Relaxed);
        drop(pinned);
        let note = "all sleep between frames, on one core; peer: a process between two UNIX datagram sockets";
        let [p50, p99, _] = result?;
        let row = |slices: Slices| slices.entry("us", Better::Less).ratio_at_most(1.0).note(note);
        Ok(vec![row(p50), row(p99)])
    })
}
