//! A back-end that only returns descriptors: what the load could reach by itself.

use crate::Failure;
use crate::rig::guest::{Addresses, Shape};
use ringway_mem::{Direct, Hint, Memory, SpanMut};
use ringway_virtq::{Cursor, Demand, Fill, Ring, RxDevice, Signals, TxDevice, Verdict};
use std::sync::atomic::{AtomicBool, Ordering};

const BURST: usize = 64;

/// One port's rings as their device sees them.
struct Port<'m> {
    memory: &'m Memory,
    rx: (Ring<'m>, RxDevice),
    tx: (Ring<'m>, TxDevice),
}

/// Writes nothing.
struct Nothing;

impl Fill for Nothing {
    fn whole(&mut self, _: usize, _: SpanMut<'_>) {}
    fn begin(&mut self, _: usize, _: u16) {}
    fn part(&mut self, _: SpanMut<'_>) {}
    fn lost(&mut self, _: usize) {}
}

/// Joins two ports until `stop`: for each descriptor that one sent by, one that the other receives by is used.
pub fn run(ports: [(&Memory, &Addresses); 2], shape: &Shape, stop: &AtomicBool) -> Result<(), Failure> {
    let start = Cursor { index: 0, wrap: true };
    let port = |(memory, addresses): (_, &Addresses)| -> Result<Port<'_>, Failure> {
        let ring = |index| -> Result<Ring<'_>, Failure> {
            Ok(Ring::new(&shape.layout(), addresses.areas(memory, index, shape)?)?)
        };
        let (rx, tx) = (RxDevice::new(start, start), TxDevice::new(start, start));
        Ok(Port { memory, rx: (ring(0)?, rx), tx: (ring(1)?, tx) })
    };
    let [left, right] = ports;
    let (mut left, mut right) = (port(left)?, port(right)?);
    for port in [&mut left, &mut right] {
        port.rx.1.set_flag(&port.rx.0, false);
        port.tx.1.set_flag(&port.tx.0, false);
    }
    while !stop.load(Ordering::Relaxed) {
        pass(&mut left, &mut right, shape.frame)?;
        pass(&mut right, &mut left, shape.frame)?;
    }
    Ok(())
}

fn pass(from: &mut Port<'_>, to: &mut Port<'_>, frame: u32) -> Result<(), Failure> {
    let (ring, device) = &mut from.tx;
    let mut count = 0;
    device.peek(ring, &mut Direct::new(from.memory, &mut Hint::default()), BURST, |_| {
        count += 1;
        Verdict::Take
    })?;
    if count == 0 {
        return Ok(());
    }
    let (rx_ring, rx) = &mut to.rx;
    let hint = &mut Hint::default();
    let mut translate = Direct::new(to.memory, hint);
    let demand = Demand { mergeable: true, header: 12 };
    let (fits, result) = rx.reserve(rx_ring, &mut translate, demand, std::iter::repeat_n(frame, count));
    result?;
    rx.put(rx_ring, &mut translate, fits, &mut Nothing).1?;
    device.release(ring, fits);
    rx.publish(rx_ring);
    Ok(())
}
