//! What a wire adds to the way of a frame, one at a time.

use super::WIRE;
use super::fabric_function::FabricFunction;
use super::load;
use crate::Failure;
use crate::entry::{Better, Entry, Slices};
use crate::harness::{LOAD, Pinned};
use crate::machine;
use crate::plan::Plan;
use crate::run::Output;
use crate::vms::delay::{REST, function, pass, pass_by};
use crate::vms::piped_function::Side;
use std::time::Duration;

const SLICE: Duration = Duration::from_millis(200);
/// Microseconds that a wire that polls may add.
const MARK: f64 = 10.0;

/// Measures the keys that are asked for.
pub fn run(plan: &Plan, output: &mut Output<'_>) {
    for kind in ["process", "worker"] {
        let [p50, p99, asleep] = ["", ".p99", ".asleep"].map(|end| format!("delay.{kind}{end}"));
        if output.wants(&p50) || output.wants(&p99) {
            let [first, second] = entries(measure(plan, kind, Duration::ZERO));
            output.put(&p50, first.map(|row| row.at_most(MARK)));
            output.put(&p99, second);
        }
        if output.wants(&asleep) {
            let [row, p99] = entries(measure(plan, kind, REST));
            let p99 = p99.ok().and_then(|p99| p99.ours).unwrap_or(f64::NAN);
            output.put(&asleep, row.map(|row| row.with("p99", p99).note("1 ms without frames before each")));
        }
    }
}

fn entries(measured: Result<[Slices; 2], Failure>) -> [Result<Entry, Failure>; 2] {
    let note = "one frame at a time; ClickOS: 40 to 45 us there and back";
    match measured {
        Ok(both) => both.map(|slices| Ok(slices.entry("us", Better::Less).note(note))),
        Err(error) => [Err(error.to_string().into()), Err(error)],
    }
}

/// p50 and p99 with a pause before each frame: of a process from pipe to pipe, of a worker from ring to ring.
fn measure(plan: &Plan, kind: &str, pause: Duration) -> Result<[Slices; 2], Failure> {
    let mut slices = [Slices::default(), Slices::default()];
    let mut repeat = |pass: &mut dyn FnMut() -> Result<[f64; 2], Failure>| -> Result<(), Failure> {
        // Not before: processes would inherit it.
        let _pinned = Pinned::to(LOAD)?;
        for _ in 0..plan.slices(SLICE) {
            machine::sample();
            let figures = pass()?;
            slices.iter_mut().zip(figures).for_each(|(slices, figure)| slices.ours.push(figure));
        }
        Ok(())
    };
    if kind == "process" {
        let mut function = function(Side::Process)?;
        repeat(&mut || pass(&mut function, pause))?;
    } else {
        let mut function = FabricFunction::new()?;
        function.start(WIRE.into())?;
        repeat(&mut || {
            pass_by(pause, |send| {
                if send {
                    load::send_one(&mut function.from.ring)?;
                }
                Ok(load::take(&mut function.to.ring)? > 0)
            })
        })?;
    }
    Ok(slices)
}
