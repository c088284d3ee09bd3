//! A back-end that only returns descriptors, to measure the load generator's own limit.

use crate::Failure;
use crate::harness::guest::{Addresses, Iommu, Shape};
use ringway_mem::{Direct, Fault, Hint, Memory, Span, SpanMut, Translate};
use ringway_virtq::{Cursor, Fill, Ring, RxDevice, RxHeader, Signals, TxDevice, Verdict};
use std::sync::atomic::{AtomicBool, Ordering};

const BURST: usize = 64;

/// The device side of one port's rings.
struct Port<'m> {
    memory: &'m Memory,
    rx: (Ring<'m>, RxDevice),
    tx: (Ring<'m>, TxDevice),
}

/// Fills buffers with nothing.
struct Nothing;

impl Fill for Nothing {
    fn whole(&mut self, _: usize, _: SpanMut<'_>) {}
    fn begin(&mut self, _: usize, _: u16) {}
    fn part(&mut self, _: SpanMut<'_>) {}
    fn lost(&mut self, _: usize) {}
}

/// A guest's memory by the addresses in its descriptors.
struct Seen<'t, 'h> {
    direct: Direct<'t, 'h>,
    iommu: Iommu,
}

impl Seen<'_, '_> {
    /// The guest-physical address of a device's address.
    fn guest(&self, address: u64) -> u64 {
        match self.iommu {
            Iommu::Fragments => address >> 13 << 12 | address & 0xfff,
            Iommu::Off | Iommu::Pages(_) => address,
        }
    }
}

impl<'t> Translate<'t> for Seen<'t, '_> {
    fn read(&mut self, address: u64, len: u32) -> Result<Span<'t>, Fault> {
        self.direct.read(self.guest(address), len)
    }

    fn write(&mut self, address: u64, len: u32) -> Result<SpanMut<'t>, Fault> {
        self.direct.write(self.guest(address), len)
    }
}

/// Joins two ports until `stop`: each descriptor sent by one uses up a receive descriptor of the other.
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
        pass(&mut left, &mut right, shape)?;
        pass(&mut right, &mut left, shape)?;
    }
    Ok(())
}

fn pass(from: &mut Port<'_>, to: &mut Port<'_>, shape: &Shape) -> Result<(), Failure> {
    let (ring, device) = &mut from.tx;
    let mut count = 0;
    let (mut from_hint, mut to_hint) = (Hint::default(), Hint::default());
    let mut seen = Seen { direct: Direct::new(from.memory, &mut from_hint), iommu: shape.iommu };
    device.peek(ring, &mut seen, BURST, |_: &[Span<'_>]| {
        count += 1;
        Verdict::Take
    })?;
    if count == 0 {
        return Ok(());
    }
    let (rx_ring, rx) = &mut to.rx;
    let mut translate = Seen { direct: Direct::new(to.memory, &mut to_hint), iommu: shape.iommu };
    let rx_header = RxHeader { mergeable: true, header: 12 };
    let (fits, result) =
        rx.reserve(rx_ring, &mut translate, rx_header, std::iter::repeat_n(shape.frame, count));
    result?;
    rx.put(rx_ring, &mut translate, fits, &mut Nothing).1?;
    device.release(ring, fits);
    device.publish(ring);
    rx.publish(rx_ring);
    Ok(())
}
