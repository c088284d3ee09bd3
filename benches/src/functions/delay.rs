//! What a wire adds to the way of a frame, one at a time.

use super::WIRE;
use super::fabric_function::FabricFunction;
use super::load;
use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::harness::{LOAD, Pinned};
use crate::keys::Rows;
use crate::plan::Plan;
use crate::vms::delay::{REST, function, pass, pass_by};
use crate::vms::piped_function::Side;
use std::time::Duration;

const SLICE: Duration = Duration::from_millis(200);
/// Microseconds that a wire that polls may add.
const MARK: f64 = 10.0;

const NOTE: &str = "one frame at a time; ClickOS: 40 to 45 us there and back";

/// What polls: p50 and p99.
pub fn polling(plan: &Plan, process: bool) -> Rows {
    let [p50, p99] =
        measure(plan, process, Duration::ZERO)?.map(|slices| slices.entry("us", Better::Less).note(NOTE));
    Ok(vec![p50.at_most(MARK), p99])
}

/// What sleeps before each frame.
pub fn asleep(plan: &Plan, process: bool) -> Result<Entry, Failure> {
    let [p50, p99] = measure(plan, process, REST)?.map(|slices| slices.entry("us", Better::Less).note(NOTE));
    Ok(p50.with("p99", p99.ours.unwrap_or(f64::NAN)).note("1 ms without frames before each"))
}

/// p50 and p99 with a pause before each frame: of a process from pipe to pipe, of a worker from ring to ring.
fn measure(plan: &Plan, process: bool, pause: Duration) -> Result<[Slices; 2], Failure> {
    let repeat = |pass: &mut dyn FnMut() -> Result<[f64; 2], Failure>| {
        // Not before: processes would inherit it.
        let _pinned = Pinned::to(LOAD)?;
        plan.figures(SLICE, |_| pass())
    };
    if process {
        let mut function = function(Side::Process)?;
        return repeat(&mut || pass(&mut function, pause));
    }
    let mut function = FabricFunction::new()?;
    function.start(WIRE.into())?;
    repeat(&mut || {
        pass_by(pause, |send| {
            if send {
                load::send_one(&mut function.from.ring)?;
            }
            Ok(load::take(&mut function.to.ring)? > 0)
        })
    })
}
