//! Functions in tiny VMs: starting, memory, many of them, rates, delays and changes. Beside them processes, containers
//! and QEMU's microvm, in the same run.

pub mod boot;
mod chain;
pub mod delay;
pub mod many;
pub mod piped_function;
mod rate;
mod stages;

use crate::Failure;
use crate::functions::{CHAIN, LENGTHS, NAMES};
use crate::harness::two_cores;
use crate::keys::{Group, QUIET};
use crate::plan::Plan;
use crate::run::Output;
use piped_function::Side;

/// A function that sends what comes.
pub const WIRE: fn(&str, &str) -> String =
    |one, two| format!("FromPort({one}) -> ToPort({two}); FromPort({two}) -> ToPort({one});");
/// A function on one port that returns what comes.
pub const MIRROR: fn(&str, &str) -> String =
    |one, _| format!("FromPort({one}) -> EtherMirror -> ToPort({one});");

/// The keys of a middlebox.
macro_rules! keys {
    ($(($name:literal, $what:literal)),* $(,)?) => {
        &[
            $((concat!($name, ".64"), concat!($what, ", 64 B; the same in a process")),
            (concat!($name, ".1500"), "the same, 1500 B"),
            (concat!($name, ".imix"), "the same, IMIX"),)*
        ]
    };
}

/// All groups.
pub const GROUPS: &[Group] = &[
    Group {
        name: "vms.start",
        keys: &[
            (
                "boot",
                "from the start of a wire's VM to its first frame; a process, a container, QEMU's microvm",
            ),
            ("boot.400th", "the same with 399 others alive; a process with 399 others"),
            ("boot.1000", "1,000 at once, until each has returned a frame; as many processes"),
            ("clone", "a snapshot's clone to its first frame; a VM that boots"),
            ("clone.1000", "memory of each of 1,000 clones of one snapshot"),
            ("memory", "a VM with a wire, alone; a process"),
            ("memory.1000", "one of 1,000; a process of 1,000"),
            ("density", "VMs alive on this machine, each of which returns frames"),
        ],
        setup: 300.0,
        costs: 4.0,
        run: start,
        ..QUIET
    },
    Group {
        name: "vms.rate",
        keys: keys![
            ("wire", "frames passed on by a VM on one core"),
            ("mirror", "Ethernet addresses swapped"),
            ("router", "IP router, 200,000 prefixes"),
            ("firewall", "IPFilter with 10 rules that do not match"),
            ("nat", "IPRewriter, 1,000,000 known flows"),
            ("bras", "PPPoEConcentrator, 100,000 sessions, frames from subscribers"),
            ("lb", "IPLoadBalancer with 16 servers, 1,000,000 known connections"),
            ("flowmon", "FlowMonitor, 1,000,000 known flows"),
            ("ids", "IDSMatcher with 5 patterns"),
        ],
        setup: 90.0,
        run: middleboxes,
        ..QUIET
    },
    Group {
        name: "vms.wire",
        keys: &[
            ("receive", "64 B frames that a VM takes and discards; a process"),
            ("send", "64 B frames that a VM makes and sends; a process"),
            ("slots", "a wire in a VM, 64 B, by number of slots in a ring; a process"),
            ("delay", "what a wire in a VM that polls adds to a frame's way, one way, p50; a process"),
            ("delay.p99", "the same, p99"),
            ("delay.parked", "the same, the VM sleeps before each frame; a process"),
            ("install", "a configuration installed in a running VM; a process"),
            ("update", "frames lost by changes of a wire in a VM while frames pass"),
        ],
        setup: 90.0,
        run: wire,
        ..QUIET
    },
    Group {
        name: "vms.chain",
        keys: &[
            ("chain.1", "a wire in a VM on ports of a worker, 64 B; in a process; on the worker"),
            ("chain.2", "the same of 2 wires in a chain"),
            ("chain.3", "the same of 3"),
            ("chain.4", "the same of 4"),
            ("chain.5", "the same of 5"),
            ("chain.6", "the same of 6"),
            ("chain.7", "the same of 7"),
            ("chain.8", "the same of 8"),
            ("chain.9", "the same of 9"),
        ],
        setup: 30.0,
        run: chains,
        ..QUIET
    },
];

fn start(plan: &Plan, output: &mut Output<'_>) -> Result<(), Failure> {
    two_cores()?;
    if output.wants("boot") {
        output.put("boot", boot::alone(plan));
    }
    if output.wants("clone") {
        output.put("clone", boot::clone(plan));
    }
    if output.wants("clone.1000") {
        output.put("clone.1000", many::clones());
    }
    if output.wants("memory") {
        output.put("memory", many::alone(plan));
    }
    if output.wants("boot.400th") {
        output.put("boot.400th", many::among(plan));
    }
    if output.wants("boot.1000") || output.wants("memory.1000") {
        let [time, memory] = many::at_once();
        output.put("boot.1000", time);
        output.put("memory.1000", memory);
    }
    if output.wants("density") {
        output.put("density", many::density());
    }
    Ok(())
}

fn middleboxes(plan: &Plan, output: &mut Output<'_>) -> Result<(), Failure> {
    two_cores()?;
    for (name, case) in NAMES {
        for (size, length) in LENGTHS {
            let key = format!("{name}.{size}");
            if output.wants(&key) {
                output.put(&key, rate::middlebox(plan, name, case, length));
            }
        }
    }
    Ok(())
}

fn chains(plan: &Plan, output: &mut Output<'_>) -> Result<(), Failure> {
    two_cores()?;
    for count in 1..=CHAIN {
        let key = format!("chain.{count}");
        if output.wants(&key) {
            output.put(&key, chain::chain(plan, count));
        }
    }
    Ok(())
}

fn wire(plan: &Plan, output: &mut Output<'_>) -> Result<(), Failure> {
    two_cores()?;
    if output.wants("receive") {
        output.put("receive", rate::receive(plan));
    }
    if output.wants("send") {
        output.put("send", rate::send(plan));
    }
    if output.wants("slots") {
        output.put("slots", rate::slots(plan));
    }
    if output.wants("delay") || output.wants("delay.p99") {
        let [p50, p99] = delay::polling(plan);
        output.put("delay", p50);
        output.put("delay.p99", p99);
    }
    if output.wants("delay.parked") {
        output.put("delay.parked", delay::parked(plan));
    }
    if output.wants("install") {
        output.put("install", boot::install(plan));
    }
    if output.wants("update") {
        output.put("update", boot::update(plan, Side::Vm));
    }
    Ok(())
}
