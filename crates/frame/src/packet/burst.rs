//! A burst of packets.
use super::pool::Shelf;
use super::{Inner, Packet};
use alloc::boxed::Box;
use alloc::vec::Vec;
use arrayvec::ArrayVec;

/// Maximum number of packets of a burst.
pub const PACKETS: usize = 64;

/// Up to [`PACKETS`] packets, in order.
#[derive(Debug, Default)]
pub struct PacketBurst {
    packets: ArrayVec<Packet, PACKETS>,
}

impl PacketBurst {
    /// An empty burst.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of packets.
    #[inline]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether it has no packets.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Whether it is full.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.packets.is_full()
    }

    /// Appends a packet; drops it if the burst is full.
    #[inline]
    pub fn push(&mut self, packet: Packet) {
        let _ = self.packets.try_push(packet);
    }

    /// Drops all packets.
    #[inline]
    pub fn clear(&mut self) {
        Shelf::put_all(&mut self.packets);
    }

    /// Moves all nodes of a list from `at` on into the burst, as packets, as far as they fit.
    #[expect(clippy::vec_box, reason = "nodes do not move")]
    #[inline]
    pub(super) fn adopt(&mut self, nodes: &mut Vec<Box<Inner>>, at: usize) {
        let count = nodes.len().saturating_sub(at).min(PACKETS - self.len());
        let (own, kept) = (self.len(), nodes.len() - count);
        // SAFETY: a packet is a node's box and nothing else. They move from the one to the other, which has
        // room.
        unsafe {
            nodes.set_len(kept);
            let (from, to) = (nodes.as_ptr().add(kept).cast(), self.packets.as_mut_ptr().add(own));
            core::ptr::copy_nonoverlapping(from, to, count);
            self.packets.set_len(own + count);
        }
    }

    /// Appends all packets of another burst, in order; those that don't fit stay there.
    #[inline]
    pub fn append(&mut self, other: &mut PacketBurst) {
        let count = other.len().min(PACKETS - self.len());
        self.packets.extend(other.packets.drain(..count));
    }

    /// The packets.
    #[inline]
    pub fn iter(&self) -> core::slice::Iter<'_, Packet> {
        self.packets.iter()
    }

    /// The packets, mutable.
    #[inline]
    pub fn iter_mut(&mut self) -> core::slice::IterMut<'_, Packet> {
        self.packets.iter_mut()
    }

    /// Removes and returns all packets, in order.
    #[inline]
    pub fn drain(&mut self) -> arrayvec::Drain<'_, Packet, PACKETS> {
        self.packets.drain(..)
    }

    /// Calls `keep` with each packet, which may change it; drops the packets for which it returns false.
    #[inline]
    pub fn retain(&mut self, keep: impl FnMut(&mut Packet) -> bool) {
        self.packets.retain(keep);
    }

    /// Calls `fault` with each packet, in order; packets for which it returns a reason are moved to `take`.
    /// Both get `state`.
    #[inline]
    pub fn sift<S, R>(
        &mut self,
        state: &mut S,
        mut fault: impl FnMut(&mut S, &mut Packet) -> Option<R>,
        mut take: impl FnMut(&mut S, Packet, R),
    ) {
        let (count, mut kept) = (self.packets.len(), 0);
        // SAFETY: 0 is at most the capacity, and of none of the elements anything is claimed. Should a
        // closure panic, the packets are leaked.
        unsafe { self.packets.set_len(0) };
        let places = self.packets.as_mut_ptr();
        for at in 0..count {
            // SAFETY: `at` was within the length, so a packet is there, which nobody else refers to.
            let place = unsafe { places.add(at) };
            // SAFETY: the same.
            match fault(state, unsafe { &mut *place }) {
                None => {
                    if kept != at {
                        // SAFETY: `kept` is less than `at`: its packet was taken or moved on.
                        unsafe { places.add(kept).copy_from_nonoverlapping(place, 1) };
                    }
                    kept += 1;
                }
                // SAFETY: each place is read once, and its packet forgotten there.
                Some(reason) => take(state, unsafe { place.read() }, reason),
            }
        }
        // SAFETY: packets are in so many places, one behind the other.
        unsafe { self.packets.set_len(kept) };
    }

    /// Moves each packet to `pass`, in order, and keeps what it returns; the remaining packets move up.
    #[inline]
    pub fn filter_map(&mut self, mut pass: impl FnMut(Packet) -> Option<Packet>) {
        let (count, mut kept) = (self.packets.len(), 0);
        // SAFETY: 0 is at most the capacity, and of none of the elements anything is claimed. Should `pass`
        // panic, the packets not handed over yet are leaked.
        unsafe { self.packets.set_len(0) };
        for at in 0..count {
            // SAFETY: `at` was within the length, and each place is read once, before anything is written
            // to it.
            let packet = unsafe { self.packets.as_ptr().add(at).read() };
            if let Some(packet) = pass(packet) {
                // SAFETY: `kept` is at most `at`, whose packet was taken.
                unsafe { self.packets.as_mut_ptr().add(kept).write(packet) };
                kept += 1;
            }
        }
        // SAFETY: so many places were written, one behind the other.
        unsafe { self.packets.set_len(kept) };
    }

    /// Prefetches the parts of the packets' memory that elements read first, for packets that have been in a
    /// ring or queue for some time.
    #[inline]
    pub fn warm(&self) {
        self.packets.iter().for_each(Packet::prefetch_handle);
        self.packets.iter().for_each(Packet::prefetch_data);
    }
}
