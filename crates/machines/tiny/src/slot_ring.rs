//! The program's side of a ring whose memory is a part of the guest's.

use crate::net_device::{NetDeviceError, keep};
use ringway_mem::{OwnedSpan, Region, Words};
use ringway_ring::{Consumer, Producer, RX, RingMemory, TX};

/// An address whose write notifies the other side.
#[derive(Debug)]
pub struct Doorbell(OwnedSpan);

impl Doorbell {
    /// The doorbell in a region of four bytes.
    pub fn new(region: Region) -> Option<Doorbell> {
        keep(region).map(Doorbell)
    }

    /// Notifies the other side.
    pub fn ring(&self) {
        if let Some(words) = Words::<u32>::new(self.0.span()) {
            words.store(0, 1);
        }
    }
}

/// Both directions of a ring.
#[derive(Debug)]
pub struct SlotRing {
    /// Its memory.
    pub memory: RingMemory,
    /// The direction that the guest fills.
    pub tx: Producer,
    /// The direction that it empties.
    pub rx: Consumer,
    doorbell: Doorbell,
}

impl SlotRing {
    /// Attaches to the memory; `second` for a pipe's second end.
    pub fn new(region: Region, second: bool, doorbell: Region) -> Result<SlotRing, NetDeviceError> {
        let doorbell = Doorbell::new(doorbell).ok_or(NetDeviceError::Layout)?;
        let memory = RingMemory::attach(region).map_err(|_| NetDeviceError::Layout)?;
        let [tx, rx] = if second { [RX, TX] } else { [TX, RX] };
        let (tx, rx) = (Producer::new(&memory, tx), Consumer::new(&memory, rx));
        Ok(SlotRing { memory, tx, rx, doorbell })
    }

    /// Publishes what was queued and taken; returns whether the other side was notified.
    #[inline]
    pub fn publish(&mut self) -> bool {
        let sent = self.tx.publish(&self.memory);
        let wanted = self.rx.publish(&self.memory) | sent;
        if wanted {
            self.doorbell.ring();
        }
        wanted
    }
}
