//! Chains of wires in VMs, beside the same in processes and on a worker.

use crate::Failure;
use crate::entry::{Better, Entry, Slices, median};
use crate::functions::chain::frames;
use crate::functions::cores;
use crate::functions::fabric_function::{FabricFunction, RunsIn};
use crate::functions::load::Load;
use crate::harness::{LOAD, Pinned};
use crate::machine;
use crate::plan::Plan;
use std::time::Duration;

const SLICE: Duration = Duration::from_millis(100);
const WARM: Duration = Duration::from_millis(5);

/// Frames a second through so many wires on ports of one worker.
pub fn chain(plan: &Plan, count: usize) -> Result<Entry, Failure> {
    let function = |place| FabricFunction::chain(count, place);
    let (mut vms, mut processes, mut worker) =
        (function(RunsIn::Vm)?, function(RunsIn::Process)?, function(RunsIn::Worker)?);
    let cores = cores();
    // Not before they were started: their processes would inherit it.
    let _pinned = Pinned::to(LOAD)?;
    let mut loads = [
        Load::new(&mut vms, frames()?),
        Load::new(&mut processes, frames()?),
        Load::new(&mut worker, frames()?),
    ];
    for load in &mut loads {
        load.send_each_once()?;
    }
    let mut rates = [(); 3].map(|()| Vec::new());
    for _ in 0..plan.slices(3 * SLICE) {
        machine::sample();
        for (load, rates) in loads.iter_mut().zip(&mut rates) {
            // Functions that had no frames are asleep.
            load.rate(WARM)?;
            rates.push(load.rate(SLICE)? / 1e6);
        }
    }
    let [vms, processes, worker] = &rates;
    let row = Slices::of(vms, processes).entry("Mpps", Better::More);
    let row = row.with("on a worker, Mpps", median(worker).unwrap_or(f64::NAN));
    Ok(if cores < count + 2 {
        row.note("peer: processes; more VMs than cores: they share them with the load and the worker")
    } else {
        row.note("peer: processes")
    })
}
