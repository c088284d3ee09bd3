//! The PHY's loopback, by which drivers test a card: frames that the guest sends return to its receive ring.

use super::shared::Bus;
use super::{RxEngine, TxEngine};
use crate::chip::{Receive, Transmit};
use crate::device::Raise;
use alloc::boxed::Box;
use alloc::vec::Vec;
use ringway_frame::{Burst, CountersRef, Reason, Storage};

/// The receive side, and the frames in between.
#[derive(Debug)]
pub struct Loopback {
    rx: RxEngine,
    storage: Storage,
}

impl Loopback {
    fn new(counters: CountersRef) -> Loopback {
        Loopback { rx: RxEngine::new(counters), storage: Storage::default() }
    }
}

/// Passes a burst from the transmit ring to the receive ring. Frames without room are lost, as on a line; so are those
/// with offloads, which would be completed on their way to another port.
#[cold]
pub(super) fn loop_back(engine: &mut TxEngine, bus: &Bus<'_>) -> Raise {
    let loopback = engine.layout.loopback.take();
    let mut loopback = loopback.unwrap_or_else(|| Box::new(Loopback::new(engine.counters.clone())));
    let Loopback { rx, storage } = &mut *loopback;
    let mut burst = Burst::begin(storage);
    let mut raise = engine.collect(bus, &mut burst);
    let is_plain = |frame: &u16| burst.meta((*frame).into()).offload.needs().is_empty();
    let plain: Vec<u16> = (0..burst.len() as u16).filter(is_plain).collect();
    engine.counters.drop_tx(Reason::NoOffload, burst.len() - plain.len());
    raise |= rx.reserve(bus, &burst, &plain).1;
    raise |= rx.put(bus, &burst, &plain).1;
    raise |= rx.publish(bus);
    raise |= rx.end_turn(bus);
    raise |= engine.release(bus, burst.len());
    engine.layout.loopback = Some(loopback);
    raise
}
