//! Packets handled at once.
use super::pool::Shelf;
use super::{Inner, Packet};
use alloc::boxed::Box;
use alloc::vec::Vec;
use arrayvec::ArrayVec;

/// How many packets a burst holds at most.
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

    /// How many there are.
    #[inline]
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Whether no more fit.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.packets.is_full()
    }

    /// Adds a packet at the end; drops it if the burst is full.
    #[inline]
    pub fn push(&mut self, packet: Packet) {
        let _ = self.packets.try_push(packet);
    }

    /// Drops all.
    #[inline]
    pub fn clear(&mut self) {
        Shelf::put_all(&mut self.packets);
    }

    /// Takes over as packets all nodes of a list from `at` on, as far as they fit.
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

    /// Takes all packets of another burst over, in order, behind its own; those that don't fit stay there.
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

    /// The packets, to change.
    #[inline]
    pub fn iter_mut(&mut self) -> core::slice::IterMut<'_, Packet> {
        self.packets.iter_mut()
    }

    /// Takes all out, in order.
    #[inline]
    pub fn drain(&mut self) -> arrayvec::Drain<'_, Packet, PACKETS> {
        self.packets.drain(..)
    }

    /// Hands each packet to `keep`, which may change it; those it says false of are dropped.
    #[inline]
    pub fn retain(&mut self, keep: impl FnMut(&mut Packet) -> bool) {
        self.packets.retain(keep);
    }

    /// Asks what is wrong with each packet, in order; those with which something is are handed over to
    /// `take`. Both get `state`.
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

    /// Hands each packet over, in order; what comes back takes its place, the rest moves up.
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

    /// Asks for the packets' memory as far as elements look at it first, ahead of its use: for packets that
    /// have rested in a ring or queue.
    #[inline]
    pub fn warm(&self) {
        self.packets.iter().for_each(Packet::prefetch_handle);
        self.packets.iter().for_each(Packet::prefetch_data);
    }
}
