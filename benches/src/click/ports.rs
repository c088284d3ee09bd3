//! A configuration on ring ports of a fabric: a source port, the function, a port that discards; the fabric's
//! worker runs on one core, the function on the other.

use super::{SLICE, router};
use crate::Failure;
use crate::entry::{Better, Entry};
use crate::harness::fabric::Harness;
use crate::harness::program::welcome;
use crate::harness::{LOAD, Pinned, WORKER};
use crate::keys::Folder;
use crate::plan::Plan;
use ringway_click::{Router, Turn};
use ringway_port::ring::open::RingListener;
use ringway_port::source::Settings;
use ringway_spec::{Kind, MacAddress, Poll, Port, To};
use std::time::{Duration, Instant};

/// Time limit for the first frames.
const FIRST_FRAMES_TIMEOUT: Duration = Duration::from_secs(10);

/// One patch per side: source and sink.
const PATCHES: [(&str, &str); 2] = [("load", "in"), ("out", "sink")];

/// Frames of 64 bytes from port to port; `between`: the elements between the function's ports.
pub fn measure(plan: &Plan, key: &str, between: &str) -> Result<Entry, Failure> {
    crate::harness::two_cores()?;
    let folder = Folder::new()?;
    let mut harness = Harness::start(&[WORKER], 4, Poll::Adaptive)?;
    let listen = |name: &str| RingListener::bind(&folder.path().join(name), Default::default());
    let sockets = [("in", listen("in")?), ("out", listen("out")?)];
    let kind = |name: &str| match name {
        "load" => {
            let (to, from) = (MacAddress([2, 0, 0, 0, 0, 2]), MacAddress([2, 0, 0, 0, 0, 1]));
            Kind::new("source", &Settings { size: 60, to, from, rate: None })
        }
        "sink" => Kind::new("null", &()),
        _ => Kind::new("ring", &()),
    };
    let both = PATCHES.iter().flat_map(|(one, two)| [(one, two), (two, one)]);
    for (name, peer) in both {
        harness.add_port(Port::new(name, kind(name), Some(To::Patch((*peer).into()))))?;
    }
    let [from, to] = ["in", "out"].map(|name| folder.path().join(name));
    let text = format!("FromPort({}) {between}-> to :: ToPort({});", from.display(), to.display());
    let _pinned = Pinned::to(LOAD)?;
    let mut function = router(&text, key)?;
    let mut programs = Vec::new();
    let end = Instant::now() + FIRST_FRAMES_TIMEOUT;
    while sent(&mut function)? == 0 {
        turn(&mut function);
        for (name, listener) in &sockets {
            programs.extend(welcome(&mut harness, name, listener)?);
        }
        if Instant::now() > end {
            return Err("no frame comes through the function".into());
        }
    }
    let slices = plan.alone(SLICE, |time| rate(&mut function, time))?;
    let entry = slices.entry("Mpps", Better::More);
    let best = entry.best.unwrap_or(f64::NAN);
    let ticks = ringway_host::ticks_per_second() / best / 1e6;
    let note = "through ring ports: a worker sends and swallows on one core, the function runs on the other";
    Ok(entry.with("best, ticks a frame", ticks).note(note))
}

/// A turn of the function, which never sleeps.
fn turn(router: &mut Router) {
    if router.turn() != Turn::Busy {
        let descriptors: Vec<i32> = router.interests().iter().map(|interest| interest.descriptor).collect();
        for descriptor in descriptors {
            router.selected(descriptor, true, false);
        }
    }
}

/// Frames sent by the function.
fn sent(router: &mut Router) -> Result<u64, Failure> {
    Ok(router.read("to.count")?.trim().parse()?)
}

/// Millions of frames a second.
fn rate(router: &mut Router, time: Duration) -> Result<f64, Failure> {
    let (begin, before) = (Instant::now(), sent(router)?);
    loop {
        turn(router);
        let passed = begin.elapsed();
        if passed >= time {
            return Ok((sent(router)? - before) as f64 / passed.as_secs_f64() / 1e6);
        }
    }
}
