//! What a wire adds to the way of a frame.

use super::WIRE;
use super::piped_function::{MEMORY, PipedFunction, Plan as Order, Side};
use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::harness::{LOAD, Pinned, WORKER};
use crate::keys::Rows;
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
    plan.alternate(SLICE, |_| pass(&mut vm, pause), |_| pass(&mut process, pause))
}

/// A VM that polls: p50 and p99.
pub fn polling(plan: &Plan) -> Rows {
    let note = "one frame at a time, from pipe to pipe; ClickOS: 40 to 45 us there and back";
    let both = measure(plan, Duration::ZERO)?;
    Ok(both.map(|slices| slices.entry("us", Better::Less).at_most(10.0).note(note)).into())
}

/// A VM that sleeps before each frame.
pub fn parked(plan: &Plan) -> Result<Entry, Failure> {
    let [p50, p99] = measure(plan, REST)?;
    let p99 = p99.entry("us", Better::Less).ours.unwrap_or(f64::NAN);
    Ok(p50.entry("us", Better::Less).with("p99", p99).note("p50; 1 ms without frames before each"))
}
