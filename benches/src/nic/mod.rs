//! Emulated network cards: tiny guests on KVM, by cards with each technique and by rings; stock Linux guests.

mod ablation;
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

use crate::Failure;
use crate::entry::Entry;
use crate::harness::two_cores;
use crate::keys::{Group, QUIET};
use crate::plan::Plan;
use crate::run::Output;
use pair::Role;
use std::time::Duration;

/// A slice, without the start of its guests.
const SLICE: Duration = Duration::from_millis(100);

pub use document::write as document;

/// All groups of benchmarks.
pub const GROUPS: &[Group] = &[TINY, linux::E1000, linux::E1000E, sockets::GROUP];

const TINY: Group = Group {
    name: "tiny",
    keys: &[
        (
            "ladder.tiny.64",
            "tiny guest to tiny guest, e1000 with all techniques; plain e1000, TAP and bridge",
        ),
        ("ladder.tiny.rtt", "the same, one frame at a time; the same"),
        ("rings.guest.64", "tiny guest to tiny guest by rings through the switch, both guests on one core"),
        ("rings.guest.1500", "the same, 1500 B"),
        ("e1000.client.64", "tiny guests that use the rings of their e1000 in place, all techniques"),
        ("e1000.client.1500", "the same, 1500 B"),
        ("size", "throughput of tiny guests against data size, 64 B to 64 KB, with time a frame by stage"),
        ("ablation", "cached translation, copies of 64 B, batches: each off, in ns a frame"),
        ("delay", "moderation from 0 to 1 ms against rate and round trip of tiny guests"),
        ("doorbells.tiny", "doorbell messages a frame of tiny guests on an 82574L, mapped, under load"),
    ],
    own_network: true,
    // Some rows need six slices each whatever the plan is.
    setup: 90.0,
    costs: 4.0,
    run,
    ..QUIET
};

fn run(plan: &Plan, output: &mut Output<'_>) -> Result<(), Failure> {
    two_cores()?;
    for (key, role) in [("ladder.tiny.64", Role::Send), ("ladder.tiny.rtt", Role::Ping)] {
        if output.wants(key) {
            output.put(key, ladder::measure(plan, role));
        }
    }
    for (key, size) in [("rings.guest.64", 64), ("rings.guest.1500", 1500)] {
        if output.wants(key) {
            output.put(key, rings::measure(plan, size));
        }
    }
    for (key, size) in [("e1000.client.64", 64), ("e1000.client.1500", 1500)] {
        if output.wants(key) {
            output.put(key, ladder::client(plan, size));
        }
    }
    type Key = (&'static str, fn(&Plan) -> Result<Entry, Failure>);
    let keys: [Key; 4] = [
        ("size", size::measure),
        ("ablation", ablation::measure),
        ("delay", delay::windows),
        ("doorbells.tiny", delay::doorbells),
    ];
    for (key, measure) in keys {
        if output.wants(key) {
            output.put(key, measure(plan));
        }
    }
    Ok(())
}
