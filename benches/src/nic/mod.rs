//! Emulated network cards: tiny guests on KVM, by cards with each technique and by rings; stock Linux guests.

mod ablation;
mod cpu;
mod delay;
mod document;
mod drop;
mod figures;
mod guests;
mod ladder;
mod linux;
mod pair;
mod rings;
mod size;
mod sockets;

use crate::keys::{Group, QUIET, Row, keys};
use pair::{MODEL, Role};
use std::time::Duration;

/// A slice, without the start of its guests.
const SLICE: Duration = Duration::from_millis(100);

pub use document::write as document;
pub use ladder::cards;

/// All groups of benchmarks.
pub const GROUPS: &[Group] = &[TINY, linux::E1000, linux::E1000E, sockets::GROUP];

const TINY: Group = Group {
    name: "tiny",
    keys: keys! {
        "ladder.tiny.64": Row(|plan| ladder::measure(plan, MODEL, Role::Send)),
            "tiny guest to tiny guest, e1000 with all techniques; plain e1000, TAP and bridge";
        "ladder.tiny.rtt": Row(|plan| ladder::measure(plan, MODEL, Role::Ping)),
            "the same, one frame at a time; the same";
        "rtl8139.ladder": Row(|plan| ladder::measure(plan, "rtl8139", Role::Send)),
            "tiny guest to tiny guest, RTL8139 with all techniques; plain RTL8139, TAP and bridge";
        "pcnet.ladder": Row(|plan| ladder::measure(plan, "pcnet", Role::Send)),
            "tiny guest to tiny guest, PCnet with all techniques that it has; plain PCnet, TAP and bridge";
        "cpu.tiny": Row(cpu::measure),
            "processor time of a frame with all techniques, and shares by technique; plain";
        "rings.guest.64": Row(|plan| rings::measure(plan, 64)),
            "tiny guest to tiny guest by rings through the switch, both guests on one core";
        "rings.guest.1500": Row(|plan| rings::measure(plan, 1500)), "the same, 1500 B";
        "e1000.client.64": Row(|plan| ladder::client(plan, 64)),
            "tiny guests that use the rings of their e1000 in place, all techniques";
        "e1000.client.1500": Row(|plan| ladder::client(plan, 1500)), "the same, 1500 B";
        "size": Row(size::measure),
            "throughput of tiny guests against data size, 64 B to 64 KB, with time a frame by stage";
        "ablation": Row(ablation::measure),
            "cached translation, copies of 64 B, batches: each off, in ns a frame";
        "delay": Row(delay::windows), "moderation from 0 to 1 ms against rate and round trip of tiny guests";
        "doorbells.tiny": Row(delay::doorbells),
            "doorbell messages a frame of tiny guests on an 82574L, mapped, under load";
    },
    own_network: true,
    // Some rows need six slices each whatever the plan is.
    setup: 90.0,
    costs: 4.0,
    ..QUIET
};
