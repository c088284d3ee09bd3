//! Functions in tiny VMs: starting, memory, many of them, rates, delays and changes. Beside them processes, containers
//! and QEMU's microvm, in the same run.

pub mod boot;
mod chain;
pub mod delay;
pub mod many;
pub mod piped_function;
mod rate;
mod stages;

use crate::functions::each_middlebox;
use crate::keys::{Group, Key, QUIET, Row, Several, With, keys};
use piped_function::Side;

/// A function that sends what comes.
pub const WIRE: fn(&str, &str) -> String =
    |one, two| format!("FromPort({one}) -> ToPort({two}); FromPort({two}) -> ToPort({one});");
/// A function on one port that returns what comes.
pub const MIRROR: fn(&str, &str) -> String =
    |one, _| format!("FromPort({one}) -> EtherMirror -> ToPort({one});");

/// The keys of middleboxes.
macro_rules! middleboxes {
    ($($name:literal: $what:literal;)*) => {
        &[$(
            Key::new(concat!($name, ".64"), concat!($what, ", 64 B; the same in a process"), |plan| {
                rate::middlebox(plan, $name, 0)
            }),
            Key::new(concat!($name, ".1500"), "the same, 1500 B", |plan| rate::middlebox(plan, $name, 1)),
            Key::new(concat!($name, ".imix"), "the same, IMIX", |plan| rate::middlebox(plan, $name, 2)),
        )*]
    };
}

/// All groups.
pub const GROUPS: &[Group] = &[
    Group {
        name: "vms.start",
        keys: keys! {
            "boot": Row(boot::alone),
                "from the start of a wire's VM to its first frame; a process, a container, QEMU's microvm";
            "boot.400th": Row(many::among), "the same with 399 others alive; a process with 399 others";
            "boot.1000": Several(many::at_once),
                "1,000 at once, until each has returned a frame; as many processes";
            "clone": Row(boot::clone), "a snapshot's clone to its first frame; a VM that boots";
            "clone.1000": Row(many::clones), "memory of each of 1,000 clones of one snapshot";
            "memory": Row(many::alone), "a VM with a wire, alone; a process";
            "memory.1000": With("boot.1000"), "one of 1,000; a process of 1,000";
            "density": Row(many::density), "VMs alive on this machine, each of which returns frames";
        },
        setup: 300.0,
        costs: 4.0,
        ..QUIET
    },
    Group {
        name: "vms.rate",
        keys: each_middlebox!(middleboxes, "frames passed on by a VM on one core"),
        setup: 90.0,
        ..QUIET
    },
    Group {
        name: "vms.wire",
        keys: keys! {
            "receive": Row(rate::receive), "64 B frames that a VM takes and discards; a process";
            "send": Row(rate::send), "64 B frames that a VM makes and sends; a process";
            "slots": Row(rate::slots), "a wire in a VM, 64 B, by number of slots in a ring; a process";
            "delay": Several(delay::polling),
                "what a wire in a VM that polls adds to a frame's way, one way, p50; a process";
            "delay.p99": With("delay"), "the same, p99";
            "delay.parked": Row(delay::parked), "the same, the VM sleeps before each frame; a process";
            "install": Row(boot::install), "a configuration installed in a running VM; a process";
            "update": Row(|plan| boot::update(plan, Side::Vm)),
                "frames lost by changes of a wire in a VM while frames pass";
        },
        setup: 90.0,
        ..QUIET
    },
    Group {
        name: "vms.chain",
        keys: keys! {
            "chain.1": Row(|plan| chain::chain(plan, 1)),
                "a wire in a VM on ports of a worker, 64 B; in a process; on the worker";
            "chain.2": Row(|plan| chain::chain(plan, 2)), "the same of 2 wires in a chain";
            "chain.3": Row(|plan| chain::chain(plan, 3)), "the same of 3";
            "chain.4": Row(|plan| chain::chain(plan, 4)), "the same of 4";
            "chain.5": Row(|plan| chain::chain(plan, 5)), "the same of 5";
            "chain.6": Row(|plan| chain::chain(plan, 6)), "the same of 6";
            "chain.7": Row(|plan| chain::chain(plan, 7)), "the same of 7";
            "chain.8": Row(|plan| chain::chain(plan, 8)), "the same of 8";
            "chain.9": Row(|plan| chain::chain(plan, 9)), "the same of 9";
        },
        setup: 30.0,
        ..QUIET
    },
];
