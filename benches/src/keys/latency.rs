//! Round trips through the switch, polling and sleeping.

use crate::Failure;
use crate::entry::{Better, Slices};
use crate::machine;
use crate::peer::relay::Relay;
use crate::plan::Plan;
use crate::rig::fabric::Rig;
use crate::rig::program::{connected, on_port};
use crate::rig::{LOAD, Pinned, WORKER, clock, times, two_cores};
use crate::run::Output;
use hdrhistogram::Histogram;
use ringway_port::link;
use ringway_ring_client::{Ring, RingOptions, Wait};
use ringway_spec::{Kind, Poll, Port, To};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(200);
const SLOTS: u32 = 64;

/// Runs the keys that are wanted.
pub fn run(plan: &Plan, output: &mut Output<'_>) -> Result<(), Failure> {
    two_cores()?;
    if output.wants("latency.ring") {
        let slices = polling(plan);
        output.put(
            "latency.ring",
            slices.map(|[p50, p99]| {
                let p99 = p99.entry("us", Better::Less).ours.unwrap_or(f64::NAN);
                let entry = p50.entry("us", Better::Less).at_most(2.0);
                entry
                    .with("p99", p99)
                    .note("p50; ping and pong in one thread, which polls, as does the worker")
            }),
        );
    }
    if output.wants("latency.ring.sleeping") || output.wants("latency.ring.sleeping.p99") {
        let note = "all sleep between frames, on one core; peer: a process between two UNIX datagram sockets";
        let [p50, p99] = match sleeping(plan) {
            Ok(slices) => slices.map(|slices| Ok(slices.entry("us", Better::Less))),
            Err(error) => [Err(error.to_string().into()), Err(error)],
        };
        output.put("latency.ring.sleeping", p50.map(|entry| entry.ratio_at_most(1.0).note(note)));
        output.put("latency.ring.sleeping.p99", p99.map(|entry| entry.ratio_at_most(1.0).note(note)));
    }
    if output.wants("link.lateness") {
        let slices = lateness(plan);
        output.put(
            "link.lateness",
            slices.map(|([p99, p50, most], stolen)| {
                let [p50, most] = [p50, most].map(|slices| slices.entry("us", Better::Less));
                let value = |value: Option<f64>| value.unwrap_or(f64::NAN);
                let note =
                    "p99, as the receiving program sees it; all poll; peer: loops that only read the clock";
                let entry = p99.entry("us", Better::Less).at_most(20.0).note(note);
                entry
                    .with("p50", value(p50.ours))
                    .with("longest of a slice", value(most.ours))
                    .with("peer's p50", value(p50.peer))
                    .with("peer's longest of a slice", value(most.peer))
                    .with("stolen, %", stolen)
            }),
        );
    }
    Ok(())
}

/// Delay of the link.
const DELAY: Duration = Duration::from_millis(1);
/// Time between two frames on the link.
const GAP: Duration = Duration::from_micros(20);

/// p99, p50 and maximum of the time after its due time at which a frame of a link with a constant delay arrives at a
/// program that polls, in microseconds; and how much of both cores' time the hypervisor took meanwhile, in percent. The
/// peer is what a frame would pass if nothing had to be done: on each core, a loop that only reads the clock.
fn lateness(plan: &Plan) -> Result<([Slices; 3], f64), Failure> {
    let mut all = [Slices::default(), Slices::default(), Slices::default()];
    let before = clock::Stolen::begin()?;
    for _ in 0..plan.slices(2 * SLICE) {
        machine::note();
        let times = on_line()?;
        let mut bare = empty()?;
        let count = (SLICE.as_nanos() / GAP.as_nanos()) as u32;
        for late in clock::late_on([WORKER, LOAD], Instant::now(), GAP, count)? {
            bare.saturating_record(late);
        }
        for (slices, part) in all.iter_mut().zip([0.99, 0.5, 1.0]) {
            slices.ours.push(times.value_at_quantile(part) as f64 / 1e3);
            slices.peer.push(bare.value_at_quantile(part) as f64 / 1e3);
        }
    }
    Ok((all, before.end()?))
}

fn empty() -> Result<Histogram<u64>, Failure> {
    Ok(Histogram::new_with_max(10_000_000_000, 3)?)
}

/// A slice of frames over a link of its own, whose worker polls until the end.
fn on_line() -> Result<Histogram<u64>, Failure> {
    let mut rig = Rig::start(&[WORKER], 3, Poll::Always)?;
    let ring = |name: &str, to: &str| Port::new(name, Kind::new("ring", &()), Some(To::Patch(to.into())));
    let mut from = connected(&mut rig, ring("from", "line"), RingOptions::default())?;
    let mut to = connected(&mut rig, ring("to", "from"), RingOptions::default())?;
    let settings = BTreeMap::from([("delay".to_string(), format!("{}us", DELAY.as_micros()))]);
    let kind = Kind::new(link::KIND.name, &link::Settings(settings));
    rig.add_port(Port::new("line", kind, Some(To::Patch("to".into()))))?;
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

fn polling(plan: &Plan) -> Result<[Slices; 2], Failure> {
    let mut rig = Rig::start(&[WORKER], 2, Poll::Adaptive)?;
    let (mut ping, mut pong) = (on_port(&mut rig, "ping", SLOTS)?, on_port(&mut rig, "pong", SLOTS)?);
    let (ping, pong) = (&mut ping.ring, &mut pong.ring);
    let (there, back, mut out) = (frame(2, 1), frame(1, 2), [0; 64]);
    let _pinned = Pinned::to(LOAD)?;
    let [mut p50, mut p99] = [Slices::default(), Slices::default()];
    for _ in 0..plan.slices(SLICE) {
        machine::note();
        let [half, most, _] = times(SLICE, || {
            pass(ping, pong, &there, &mut out)?;
            pass(pong, ping, &back, &mut out)
        })?;
        p50.ours.push(half);
        p99.ours.push(most);
    }
    Ok([p50, p99])
}

fn sleeping(plan: &Plan) -> Result<[Slices; 2], Failure> {
    let relay = Relay::start(LOAD)?;
    let mut rig = Rig::start(&[LOAD], 2, Poll::Never)?;
    let (mut ping, mut pong) = (on_port(&mut rig, "ping", SLOTS)?, on_port(&mut rig, "pong", SLOTS)?);
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
        let mut out = [0; 64];
        let [mut p50, mut p99] = [Slices::default(), Slices::default()];
        let mut all = || -> Result<(), Failure> {
            for _ in 0..plan.slices(2 * SLICE) {
                machine::note();
                let [half, most, _] = times(SLICE, || {
                    ping.tx.push(&there)?;
                    // Nothing else returns slots if the answer arrives before a wait.
                    ping.sync()?;
                    while ping.rx.pop(&mut out)?.is_none() {
                        if !ping.wait(Wait::RX, Some(Duration::from_secs(2)))? {
                            return Err("a frame does not return".into());
                        }
                    }
                    Ok(())
                })?;
                p50.ours.push(half);
                p99.ours.push(most);
                if p50.lost.is_some() {
                    continue;
                }
                match times(SLICE, || relay.ping(&there, &mut out)) {
                    Ok([half, most, _]) => {
                        p50.peer.push(half);
                        p99.peer.push(most);
                    }
                    Err(error) => {
                        p50.lost = Some(error.to_string());
                        p99.lost.clone_from(&p50.lost);
                    }
                }
            }
            Ok(())
        };
        let result = all();
        stop.store(true, Ordering::Relaxed);
        drop(pinned);
        result.map(|()| [p50, p99])
    })
}
