//! BBR on emulated lines, in real time: our stack beside the kernel's.

mod ablation;
mod chart;
mod document;
mod experiments;
mod flow;
mod lab;
mod lateness;
mod page;
mod sweep;

use crate::Failure;
use crate::entry::Entry;
use crate::harness::two_cores;
use crate::keys::{Group, QUIET};
use crate::plan::Plan;
use crate::report::Report;
use crate::run::Output;
use std::path::Path;
use std::time::Duration;

/// All groups.
pub const GROUPS: &[Group] = &[Group {
    name: "bbr",
    keys: &[
        ("back", "BBRv1 at 10 Gb/s without delay and losses; the kernel's"),
        ("back.cubic", "the same with CUBIC"),
        ("loss", "BBRv1 against losses of 0.001 .. 20%, 100 Mb/s, 100 ms; the kernel's"),
        ("loss.cubic", "the same with CUBIC"),
        ("loss.bbr3", "the same with BBRv3; the kernel has none"),
        ("lossy", "the row of `loss` with 1%"),
        ("lossy.cubic", "the row of `loss.cubic` with 1%"),
        ("lossy.10g", "BBRv1 at 10 Gb/s, 100 ms and 1% loss, buffers of 250 MB; the kernel's"),
        (
            "bloat",
            "time in queues of 1 .. 64 bandwidth-delay products with BBRv1, 50 Mb/s, 30 ms; the kernel's",
        ),
        ("bloat.cubic", "the same with CUBIC"),
        (
            "shallow",
            "BBRv1 with queues of 0.02 .. 0.5 bandwidth-delay products, 100 Mb/s, 100 ms; the kernel's",
        ),
        ("shallow.cubic", "the same with CUBIC"),
        ("shallow.bbr3", "the same with BBRv3; the kernel has none"),
        ("share", "part of BBRv1 beside CUBIC by queue, 50 Mb/s, 30 ms; the kernel's two"),
        ("probe.rtt", "dips of BBRv1 that measure the round-trip time, 100 Mb/s, 40 ms; the kernel's"),
        ("lateness", "from a timer's due time to its handling, p99 while polling"),
        ("lateness.asleep", "the same for a program that sleeps; a thread that only sleeps until then"),
        ("ablation", "BBRv1 with coarse timers, coarse stamps, small buffers or without pacing, 1 Gb/s"),
        ("hog.lossy", "as `lossy`, beside a thread on each core that computes"),
        ("hog.back", "as `back`, beside the same"),
        ("hog.lateness", "as `lateness`, beside the same"),
        ("hog.lateness.asleep", "as `lateness.asleep`, beside the same"),
    ],
    own_network: true,
    setup: 60.0,
    costs: 40.0,
    run,
    ..QUIET
}];

/// The measuring time of the default plan, for which the times of experiments are given.
const NOMINAL: f64 = 4.0;

/// A time that is given for the default plan.
fn scaled(plan: &Plan, seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds * plan.seconds / NOMINAL)
}

/// Writes a report's tables and plots into docs/bbr.md and docs/bbr/.
pub fn document(report: &Report, docs: &Path) -> Result<(), Failure> {
    document::write(&docs.join("bbr.md"), &page::figures(report))
}

/// Several rows of one measurement.
type Rows = Result<Vec<(&'static str, Entry)>, Failure>;

/// The rows' keys, and their measurement.
type Experiment = (&'static [&'static str], fn(&Plan) -> Rows);

const EXPERIMENTS: [Experiment; 10] = [
    (&["back", "back.cubic"], experiments::back),
    (&["loss", "loss.cubic", "loss.bbr3", "lossy", "lossy.cubic"], sweep::losses),
    (&["lossy.10g"], experiments::lossy_10g),
    (&["bloat", "bloat.cubic"], sweep::bloat),
    (&["shallow", "shallow.cubic", "shallow.bbr3"], sweep::shallow),
    (&["share"], sweep::share),
    (&["probe.rtt"], experiments::probe_rtt),
    (&["lateness", "lateness.asleep"], lateness::rows),
    (&["ablation"], ablation::rows),
    (&["hog.lossy", "hog.back", "hog.lateness", "hog.lateness.asleep"], experiments::hog),
];

fn run(plan: &Plan, output: &mut Output<'_>) -> Result<(), Failure> {
    two_cores()?;
    for (keys, measure) in EXPERIMENTS {
        let wanted: Vec<&str> = keys.iter().copied().filter(|key| output.wants(key)).collect();
        if wanted.is_empty() {
            continue;
        }
        match measure(plan) {
            Ok(rows) => rows.into_iter().for_each(|(key, entry)| output.put(key, Ok(entry))),
            Err(error) => wanted.iter().for_each(|key| output.put(key, Err(error.to_string().into()))),
        }
    }
    Ok(())
}
