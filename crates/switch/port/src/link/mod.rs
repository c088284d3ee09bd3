//! One direction of an emulated link between two ports: frames that are sent to this port leave it, to the port at the
//! other end, when the link delivers them.
//!
//! `rx.rs` stamps and stores frames; the worker of `tx.rs` runs the emulator, [`ringway_link::Link`], and sleeps until
//! the next frame is nearly due. A link's two directions are two ports, which control names `LINK/PORT` after the
//! port whose frames they get.

mod observed;
mod peer;
mod preview;
mod rx;
mod settings;
mod stored;
#[cfg(test)]
mod tests;
mod tx;

pub use peer::KIND;
pub use preview::Preview;
pub use settings::{Settings, Wrong};

use crate::{Doorbell, Queue};
use ringway_frame::CountersRef;
use ringway_host::HostError;
use ringway_link::{Link, Profile};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use stored::Stored;

/// Frames, and their bytes, that may wait for the link's worker. Attack: a sender that is faster than that worker.
const ARRIVALS: usize = 8192;
const ARRIVAL_BYTES: usize = 16 << 20;
/// Largest memory of a frame that is kept for another one.
const KEPT: usize = 2048;

/// The time in nanoseconds, of the clock of turns.
type Now = Box<dyn Fn() -> u64 + Send + Sync>;

/// What the two queues exchange.
#[derive(Default)]
struct Exchange {
    /// Frames that entered the link.
    arrivals: Vec<Stored>,
    /// Memory of frames that left it.
    spare: Vec<Vec<u8>>,
}

/// What both queues of a link port share. Its locks are held for a few instructions, and only tried by workers.
struct Shared {
    exchange: Mutex<Exchange>,
    /// Set while the worker of the TX queue must be woken for arrivals.
    armed: AtomicBool,
    /// A profile to change to, and whether there is one.
    next: Mutex<Option<Profile>>,
    is_changed: AtomicBool,
    /// Whether frames' checksums are filled when they arrive, so that corruption is noticed.
    fills: AtomicBool,
    gauges: [AtomicU64; GAUGES.len()],
    counters: CountersRef,
    doorbell: Arc<dyn Doorbell>,
    now: Now,
}

/// Names of the figures of a link besides its counters of frames.
const GAUGES: [&str; 14] = [
    "queued",
    "queued-bytes",
    "in-flight",
    "marked",
    "corrupted",
    "duplicated",
    "reordered",
    "latest",
    "late",
    "last-late",
    "delay-mean",
    "delay-sd",
    "carried",
    "lost",
];

fn queue(shared: &Arc<Shared>, link: Link<Stored>) -> Result<Queue, HostError> {
    let rx = Box::new(rx::LinkRx::new(shared.clone()));
    Ok(Queue { tx: Box::new(tx::LinkTx::new(shared.clone(), link)?), rx })
}
