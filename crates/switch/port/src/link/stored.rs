//! A frame on the link.

use ringway_frame::{Burst, Offload};
use ringway_link::{Frame, mark_ip};
use ringway_mem::SpanMut;
use ringway_wire::flow::Flow;
use ringway_wire::{EtherType, Ethernet, Header, vlan};

/// A frame in memory of its own. Its checksum may be pending, but it is not larger than a segment.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub bytes: Vec<u8>,
    pub offload: Offload,
    /// When the frame entered the link.
    pub arrived: u64,
}

impl Stored {
    /// A copy of a frame that entered the link at `arrived`, in `bytes`.
    pub fn new(burst: &Burst<'_>, index: usize, arrived: u64, mut bytes: Vec<u8>) -> Stored {
        let meta = burst.meta(index);
        // Attack: the memory has bytes of an earlier frame, possibly of another guest.
        bytes.clear();
        bytes.resize(meta.len as usize, 0);
        burst.copy_to(index, SpanMut::of(&mut bytes));
        Stored { bytes, offload: meta.offload, arrived }
    }

    /// EtherType behind the Ethernet header and its tags, and their length.
    fn link_layer(&self) -> Option<(EtherType, usize)> {
        let (frame, payload) = Ethernet::split(&self.bytes)?;
        let inner = vlan::untag(frame.ethertype, payload)?;
        Some((inner.ethertype, self.bytes.len() - inner.payload.len()))
    }
}

impl Frame for Stored {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn link_header(&self) -> usize {
        self.link_layer().map_or(Ethernet::LEN, |(_, len)| len)
    }

    fn duplicate(&mut self) -> Option<Stored> {
        Some(self.clone())
    }

    fn invert(&mut self, bit: usize) {
        if let Some(byte) = self.bytes.get_mut(bit / 8) {
            *byte ^= 1 << (bit % 8);
        }
        // The checksum was filled or verified before.
        self.offload = Offload::default();
    }

    fn mark(&mut self) -> bool {
        match self.link_layer() {
            Some((EtherType::IPV4 | EtherType::IPV6, at)) => mark_ip(&mut self.bytes[at..]),
            _ => false,
        }
    }

    fn flow(&self, key: u64) -> u64 {
        Flow::parse(&self.bytes).map_or(0, |flow| flow.symmetric_hash(key))
    }
}
