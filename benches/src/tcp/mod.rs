//! The TCP/IP stack of programs, beside the kernel's over veth.

pub mod apart;
pub mod bulk;
pub mod ends;
mod flood;
pub mod memory;
pub mod stacks;
mod transactions;

use crate::keys::{Group, QUIET, Row, Several, With, keys};

/// All groups.
pub const GROUPS: &[Group] = &[Group {
    name: "tcp",
    keys: keys! {
        "bulk": Several(bulk::whole),
            "one stream, program to program through the switch; the kernel over veth";
        "bulk.mtu1500": Row(bulk::segmented), "the same, both without offloads";
        "bulk.kernel": Row(bulk::to_kernel),
            "from a program to the kernel through the switch and a TAP; from kernel to kernel, two TAPs";
        "bulk.kernel.back": Row(bulk::from_kernel), "the same from the kernel";
        "cpu.per.gbit": With("bulk"), "CPU time of `bulk` in ms for a gigabit, all cores";
        "rr": Several(transactions::round_trips),
            "request and response of 1 byte, p50; the kernel over veth, polled in the same way";
        "rr.p99": With("rr"), "the same, p99";
        "crr": Row(transactions::connections),
            "connections a second, each with a request and a response; the kernel over veth";
        "synflood": Row(flood::connections), "the same beside 200,000 SYNs a second of others";
        "many": Row(transactions::many),
            "1000 of 10,000 connections with a request each; transactions a second of one connection";
        "apart.pipe": Several(|plan| apart::measure(plan, false)),
            "requests over 50 connections, the stack in the server's process; in one of its own";
        "apart.pipe.one": With("apart.pipe"), "the same over one connection";
        "apart.pipe.stream": With("apart.pipe"), "one stream";
        "apart.switch": Several(|plan| apart::measure(plan, true)), "`apart.pipe` through a switch";
        "apart.switch.one": With("apart.switch"), "the same over one connection";
        "apart.switch.stream": With("apart.switch"), "one stream";
        "smoltcp": Several(stacks::smoltcp),
            "one stream between two stacks in one thread; between two of smoltcp's";
        "smoltcp.rr": With("smoltcp"), "the same, requests and answers of a byte";
        "smoltcp.crr": With("smoltcp"), "the same, connections with a request and an answer";
        "smoltcp.memory": With("smoltcp"), "bytes of an idle connection's end";
        "gvisor": Several(stacks::gvisor),
            "one stream between two stacks in one thread; between two of gVisor's on one processor";
        "gvisor.rr": With("gvisor"), "the same, requests and answers of a byte";
        "gvisor.crr": With("gvisor"), "the same, connections with a request and an answer";
        "gvisor.memory": With("gvisor"), "bytes of an idle connection's end";
        "idle.memory": Row(memory::idle), "bytes of an idle connection's end; the kernel's slabs";
    },
    own_network: true,
    setup: 60.0,
    costs: 8.0,
    ..QUIET
}];
