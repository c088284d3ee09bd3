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
use crate::keys::{Group, QUIET, Row, Several, With, keys};
use crate::plan::Plan;
use crate::report::Report;
use std::path::Path;
use std::time::Duration;

/// All groups.
pub const GROUPS: &[Group] = &[Group {
    name: "bbr",
    keys: keys! {
        "back": Several(experiments::back), "BBRv1 at 10 Gb/s without delay and losses; the kernel's";
        "back.cubic": With("back"), "the same with CUBIC";
        "loss": Several(sweep::losses),
            "BBRv1 against losses of 0.001 .. 20%, 100 Mb/s, 100 ms; the kernel's";
        "loss.cubic": With("loss"), "the same with CUBIC";
        "loss.bbr3": With("loss"), "the same with BBRv3; the kernel has none";
        "lossy": With("loss"), "the row of `loss` with 1%";
        "lossy.cubic": With("loss"), "the row of `loss.cubic` with 1%";
        "lossy.10g": Row(experiments::lossy_10g),
            "BBRv1 at 10 Gb/s, 100 ms and 1% loss, buffers of 250 MB; the kernel's";
        "bloat": Several(sweep::bloat),
            "time in queues of 1 .. 64 bandwidth-delay products with BBRv1, 50 Mb/s, 30 ms; the kernel's";
        "bloat.cubic": With("bloat"), "the same with CUBIC";
        "shallow": Several(sweep::shallow),
            "BBRv1 with queues of 0.02 .. 0.5 bandwidth-delay products, 100 Mb/s, 100 ms; the kernel's";
        "shallow.cubic": With("shallow"), "the same with CUBIC";
        "shallow.bbr3": With("shallow"), "the same with BBRv3; the kernel has none";
        "share": Row(sweep::share), "part of BBRv1 beside CUBIC by queue, 50 Mb/s, 30 ms; the kernel's two";
        "probe.rtt": Row(experiments::probe_rtt),
            "dips of BBRv1 that measure the round-trip time, 100 Mb/s, 40 ms; the kernel's";
        "lateness": Several(lateness::rows), "from a timer's due time to its handling, p99 while polling";
        "lateness.asleep": With("lateness"),
            "the same for a program that sleeps; a thread that only sleeps until then";
        "ablation": Row(ablation::row),
            "BBRv1 with coarse timers, coarse stamps, small buffers or without pacing, 1 Gb/s";
        "hog.lossy": Several(experiments::hog), "as `lossy`, beside a thread on each core that computes";
        "hog.back": With("hog.lossy"), "as `back`, beside the same";
        "hog.lateness": With("hog.lossy"), "as `lateness`, beside the same";
        "hog.lateness.asleep": With("hog.lossy"), "as `lateness.asleep`, beside the same";
    },
    own_network: true,
    setup: 60.0,
    costs: 40.0,
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
