//! What a port's frames pass: a ring that the monitor maps, or a virtio device.

use crate::link::LinkError;
use crate::slot_ring::SlotRing;
use crate::stock::Net;
use alloc::boxed::Box;
use ringway_mem::Span;
use ringway_ring::{PushError, Received};

/// What became of a frame to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The frame is queued.
    Done,
    /// The device has no room for the frame.
    Full,
    /// No room is large enough, or the device has no such offload.
    TooLong,
}

/// A ring or a device.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "there are few ports, and a ring's frames take the shortest way"
)]
pub enum Device {
    /// A ring port's memory.
    Slots(SlotRing),
    /// A virtio device.
    Net(Box<Net<'static>>),
}

impl Device {
    /// Bytes of the next frame; `None` if there is none.
    #[inline]
    pub fn frame_len(&mut self) -> Result<Option<usize>, LinkError> {
        match self {
            Device::Slots(SlotRing { memory, rx, .. }) => Ok(rx.frame_len(memory)?),
            Device::Net(net) => net.frame_len(),
        }
    }

    /// Copies the next frame, truncated.
    #[inline]
    pub fn pop(&mut self, out: &mut [u8]) -> Result<Option<Received>, LinkError> {
        match self {
            Device::Slots(SlotRing { memory, rx, .. }) => Ok(rx.pop(memory, out)?),
            Device::Net(net) => net.pop(out),
        }
    }

    /// Queues a frame.
    #[inline]
    pub fn push(&mut self, frame: &[u8], offload: [u8; 10]) -> Result<Pushed, LinkError> {
        match self {
            Device::Slots(SlotRing { memory, tx, .. }) => pushed(tx.push(memory, frame, offload)),
            Device::Net(net) => net.push(frame, offload),
        }
    }

    /// As [`Device::push`], of a frame in parts.
    pub fn push_gathered<'s>(
        &mut self,
        parts: impl Iterator<Item = Span<'s>> + Clone,
        offload: [u8; 10],
    ) -> Result<Pushed, LinkError> {
        match self {
            Device::Slots(SlotRing { memory, tx, .. }) => pushed(tx.push_gathered(memory, parts, offload)),
            Device::Net(net) => net.push_gathered(parts, offload),
        }
    }

    /// Publishes frames that were queued and taken.
    #[inline]
    pub fn publish(&mut self) {
        match self {
            Device::Slots(ring) => drop(ring.publish()),
            Device::Net(net) => net.sync(),
        }
    }

    /// Whether the other side has closed it.
    #[inline]
    pub fn is_closed(&self) -> bool {
        matches!(self, Device::Slots(ring) if ring.memory.is_closed())
    }

    /// Whether it takes frames with offloads.
    pub fn has_offloads(&self) -> bool {
        matches!(self, Device::Slots(_))
    }

    /// Number of slots for sending.
    pub fn tx_slots(&self) -> u32 {
        match self {
            Device::Slots(ring) => ring.tx.slots(),
            Device::Net(net) => net.tx_slots(),
        }
    }

    /// Slots that a frame of so many bytes needs.
    pub fn slots_of(&self, len: usize) -> u32 {
        match self {
            Device::Slots(ring) => (len as u32).div_ceil(ring.memory.slot_size().max(1)).max(1),
            Device::Net(_) => 1,
        }
    }

    /// Free slots for sending, at least `wanted` if there are as many.
    pub fn room(&mut self, wanted: u32) -> Result<u32, LinkError> {
        match self {
            Device::Slots(SlotRing { memory, tx, .. }) => Ok(tx.room(memory, wanted)?),
            Device::Net(net) => net.room(wanted),
        }
    }

    /// Lets a device interrupt again. Call it before the last look before sleep.
    pub fn acknowledge(&self) {
        if let Device::Net(net) = self {
            net.acknowledge();
        }
    }

    /// Whether there is a frame. What is broken has one: its user notices.
    pub fn has_frame(&mut self) -> bool {
        match self {
            Device::Slots(SlotRing { memory, rx, .. }) => !matches!(rx.available(memory, 1), Ok(0)),
            Device::Net(net) => net.has_frame(),
        }
    }

    /// Asks to be woken when there is a frame; `false`: there is one already.
    pub fn arm_rx(&mut self) -> Result<bool, LinkError> {
        match self {
            Device::Slots(SlotRing { memory, rx, .. }) => Ok(rx.arm(memory, 1)?),
            Device::Net(net) => Ok(net.arm_rx()),
        }
    }

    /// Cancels [`Device::arm_rx`].
    pub fn disarm_rx(&mut self) {
        match self {
            Device::Slots(SlotRing { memory, rx, .. }) => rx.disarm(memory),
            Device::Net(net) => net.disarm_rx(),
        }
    }

    /// Asks to be woken when so many slots are free; `false`: they are.
    pub fn arm_tx(&mut self, slots: u32) -> Result<bool, LinkError> {
        match self {
            Device::Slots(SlotRing { memory, tx, .. }) => Ok(tx.arm(memory, slots)?),
            Device::Net(net) => net.arm_tx(slots),
        }
    }

    /// Cancels [`Device::arm_tx`].
    pub fn disarm_tx(&mut self) {
        match self {
            Device::Slots(SlotRing { memory, tx, .. }) => tx.disarm(memory),
            Device::Net(net) => net.disarm_tx(),
        }
    }
}

fn pushed(result: Result<bool, PushError>) -> Result<Pushed, LinkError> {
    match result {
        Ok(true) => Ok(Pushed::Done),
        Ok(false) => Ok(Pushed::Full),
        Err(PushError::TooLong { .. }) => Ok(Pushed::TooLong),
        Err(PushError::Broken(broken)) => Err(broken.into()),
    }
}
