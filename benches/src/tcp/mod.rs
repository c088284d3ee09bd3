//! The TCP/IP stack of programs, beside the kernel's over veth.

pub mod apart;
pub mod bulk;
pub mod ends;
mod flood;
pub mod memory;
mod transactions;

use crate::Failure;
use crate::entry::Entry;
use crate::harness::two_cores;
use crate::keys::{Group, QUIET};
use crate::plan::Plan;
use crate::run::Output;

/// All groups.
pub const GROUPS: &[Group] = &[Group {
    name: "tcp",
    keys: &[
        ("bulk", "one stream, program to program through the switch; the kernel over veth"),
        ("bulk.mtu1500", "the same, both without offloads"),
        (
            "bulk.kernel",
            "from a program to the kernel through the switch and a TAP; from kernel to kernel, two TAPs",
        ),
        ("bulk.kernel.back", "the same from the kernel"),
        ("cpu.per.gbit", "CPU time of `bulk` in ms for a gigabit, all cores"),
        ("rr", "request and response of 1 byte, p50; the kernel over veth, polled in the same way"),
        ("rr.p99", "the same, p99"),
        ("crr", "connections a second, each with a request and a response; the kernel over veth"),
        ("synflood", "the same beside 200,000 SYNs a second of others"),
        ("many", "1000 of 10,000 connections with a request each; transactions a second of one connection"),
        ("apart.pipe", "requests over 50 connections, the stack in the server's process; in one of its own"),
        ("apart.pipe.one", "the same over one connection"),
        ("apart.pipe.stream", "one stream"),
        ("apart.switch", "`apart.pipe` through a switch"),
        ("apart.switch.one", "the same over one connection"),
        ("apart.switch.stream", "one stream"),
        ("idle.memory", "bytes of an idle connection's end; the kernel's slabs"),
    ],
    own_network: true,
    setup: 60.0,
    costs: 8.0,
    run,
    ..QUIET
}];

/// A benchmark.
type Measure = fn(&Plan) -> Result<Entry, Failure>;

fn run(plan: &Plan, output: &mut Output<'_>) -> Result<(), Failure> {
    two_cores()?;
    let each: [(&str, Measure); 7] = [
        ("bulk.mtu1500", bulk::segmented),
        ("bulk.kernel", bulk::to_kernel),
        ("bulk.kernel.back", bulk::from_kernel),
        ("crr", transactions::connections),
        ("synflood", flood::connections),
        ("many", transactions::many),
        ("idle.memory", memory::idle),
    ];
    if output.wants("bulk") || output.wants("cpu.per.gbit") {
        let [rate, cost] = all(bulk::whole(plan));
        output.put("bulk", rate);
        output.put("cpu.per.gbit", cost);
    }
    if output.wants("rr") || output.wants("rr.p99") {
        let [p50, p99] = all(transactions::round_trips(plan));
        output.put("rr", p50);
        output.put("rr.p99", p99);
    }
    for (keys, switch) in [(APART[0], false), (APART[1], true)] {
        if keys.map(|key| output.wants(key)).contains(&true) {
            for (key, row) in keys.iter().zip(all(apart::measure(plan, switch))) {
                output.put(key, row);
            }
        }
    }
    for (key, measure) in each {
        if output.wants(key) {
            output.put(key, measure(plan));
        }
    }
    Ok(())
}

/// Keys that are measured together.
const APART: [[&str; 3]; 2] = [
    ["apart.pipe", "apart.pipe.one", "apart.pipe.stream"],
    ["apart.switch", "apart.switch.one", "apart.switch.stream"],
];

/// Rows, or the same error for each.
pub fn all<const N: usize>(rows: Result<[Entry; N], Failure>) -> [Result<Entry, Failure>; N] {
    match rows {
        Ok(rows) => rows.map(Ok),
        Err(error) => std::array::from_fn(|_| Err(error.to_string().into())),
    }
}
