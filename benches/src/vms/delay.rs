//! What a wire adds to the way of a frame.

use super::WIRE;
use super::piped_function::{MEMORY, PipedFunction, Plan as Order, Side};
use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::harness::{LOAD, Pinned, WORKER};
use crate::machine;
use crate::plan::Plan;
use std::time::{Duration, Instant};

const SLICE: Duration = Duration::from_millis(200);
/// Time without frames after which a function sleeps.
pub const REST: Duration = Duration::from_millis(1);

/// A wire between two pipes.
pub fn function(side: Side) -> Result<PipedFunction, Failure> {
    let order = Order {
        side,
        text: &WIRE,
        memory: MEMORY,
        core: Some(WORKER),
        slots: 256,
        single: false,
        snapshot: None,
        spare: false,
    };
    let mut function = PipedFunction::start(&order)?;
    function.first()?;
    Ok(function)
}

/// p50 and p99 of the time until a frame has passed, in microseconds, with a pause before each.
pub fn pass(function: &mut PipedFunction, pause: Duration) -> Result<[f64; 2], Failure> {
    pass_by(pause, |send| function.exchange(send))
}

/// p50 and p99 of the time until a frame has passed, in microseconds. `exchange` sends a frame if it is called with
/// `true`, and tells whether one came.
pub fn pass_by(
    pause: Duration,
    mut exchange: impl FnMut(bool) -> Result<bool, Failure>,
) -> Result<[f64; 2], Failure> {
    let begin = Instant::now();
    let mut figures = hdrhistogram::Histogram::<u64>::new_with_max(10_000_000_000, 3)?;
    while begin.elapsed() < SLICE {
        if !pause.is_zero() {
            let end = Instant::now() + pause;
            while Instant::now() < end {
                std::hint::spin_loop();
            }
        }
        let sent = Instant::now();
        let mut came = exchange(true)?;
        while !came {
            came = exchange(false)?;
            if sent.elapsed() > Duration::from_secs(5) {
                return Err("a frame does not pass".into());
            }
        }
        figures.saturating_record(sent.elapsed().as_nanos() as u64);
    }
    Ok([0.5, 0.99].map(|part| figures.value_at_quantile(part) as f64 / 1e3))
}

fn measure(plan: &Plan, pause: Duration) -> Result<[Slices; 2], Failure> {
    let (mut vm, mut process) = (function(Side::Vm)?, function(Side::Process)?);
    // Not before: their processes would inherit it.
    let _pinned = Pinned::to(LOAD)?;
    let [mut p50, mut p99] = [Slices::default(), Slices::default()];
    for _ in 0..plan.slices(2 * SLICE) {
        machine::sample();
        let (ours, theirs) = (pass(&mut vm, pause)?, pass(&mut process, pause)?);
        p50.ours.push(ours[0]);
        p50.peer.push(theirs[0]);
        p99.ours.push(ours[1]);
        p99.peer.push(theirs[1]);
    }
    Ok([p50, p99])
}

/// A VM that polls: p50 and p99.
pub fn polling(plan: &Plan) -> [Result<Entry, Failure>; 2] {
    let note = "one frame at a time, from pipe to pipe; ClickOS: 40 to 45 us there and back";
    match measure(plan, Duration::ZERO) {
        Ok(both) => both.map(|slices| Ok(slices.entry("us", Better::Less).at_most(10.0).note(note))),
        Err(error) => [Err(error.to_string().into()), Err(error)],
    }
}

/// A VM that sleeps before each frame.
pub fn parked(plan: &Plan) -> Result<Entry, Failure> {
    let [p50, p99] = measure(plan, REST)?;
    let p99 = p99.entry("us", Better::Less).ours.unwrap_or(f64::NAN);
    Ok(p50.entry("us", Better::Less).with("p99", p99).note("p50; 1 ms without frames before each"))
}
