//! A burst of packets.

use super::pool::FreeList;
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

    /// Number of packets that fit in addition.
    #[inline]
    pub fn room(&self) -> usize {
        self.packets.remaining_capacity()
    }

    #[inline]
    pub(super) fn packets(&self) -> &[Packet] {
        &self.packets
    }

    /// Whether the burst is full.
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
        FreeList::put_all(&mut self.packets);
    }

    /// Moves the last nodes of a list, from index `at` on, into the burst as packets; at most as many as fit.
    #[expect(clippy::vec_box, reason = "nodes do not move")]
    #[inline]
    pub(super) fn adopt(&mut self, nodes: &mut Vec<Box<Inner>>, at: usize) {
        let count = nodes.len().saturating_sub(at).min(PACKETS - self.len());
        let (own, kept) = (self.len(), nodes.len() - count);
        // SAFETY: a `Packet` has the representation of a `Box<Inner>`. The boxes move from the list to the
        // burst, which has room for them.
        unsafe {
            nodes.set_len(kept);
            let (from, to) = (nodes.as_ptr().add(kept).cast(), self.packets.as_mut_ptr().add(own));
            core::ptr::copy_nonoverlapping(from, to, count);
            self.packets.set_len(own + count);
        }
    }

    /// Moves all packets to the end of a list of nodes.
    #[expect(clippy::vec_box, reason = "nodes do not move")]
    #[inline]
    pub(super) fn abandon(&mut self, nodes: &mut Vec<Box<Inner>>) {
        Self::abandon_to(&mut self.packets, nodes);
    }

    /// Moves all of `packets` to the end of a list of nodes.
    #[expect(clippy::vec_box, reason = "nodes do not move")]
    #[inline]
    pub(super) fn abandon_to(packets: &mut ArrayVec<Packet, PACKETS>, nodes: &mut Vec<Box<Inner>>) {
        let (count, there) = (packets.len(), nodes.len());
        nodes.reserve(count);
        // SAFETY: a `Packet` has the representation of a `Box<Inner>`. The boxes move from the burst to the list, which
        // has room for them.
        unsafe {
            packets.set_len(0);
            let (from, to) = (packets.as_ptr().cast(), nodes.as_mut_ptr().add(there));
            core::ptr::copy_nonoverlapping(from, to, count);
            nodes.set_len(there + count);
        }
    }

    /// Appends all packets of another burst, in order; those that don't fit stay there.
    #[inline]
    pub fn append(&mut self, other: &mut PacketBurst) {
        let (own, count) = (self.len(), other.len());
        if count > PACKETS - own {
            self.packets.extend(other.packets.drain(..PACKETS - own));
            return;
        }
        // SAFETY: all packets move to the end of this burst, which has room for them.
        unsafe {
            other.packets.set_len(0);
            self.packets.as_mut_ptr().add(own).copy_from_nonoverlapping(other.packets.as_ptr(), count);
            self.packets.set_len(own + count);
        }
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

    /// Calls `fault` with each packet, in order, and moves packets for which it returns a reason to `take`.
    /// Both get `state`.
    #[inline]
    pub fn sift<S, R>(
        &mut self,
        state: &mut S,
        mut fault: impl FnMut(&mut S, &mut Packet) -> Option<R>,
        mut take: impl FnMut(&mut S, Packet, R),
    ) {
        let (count, mut kept) = (self.packets.len(), 0);
        // SAFETY: a length of 0 needs no valid elements. If a closure panics, the packets are leaked.
        unsafe { self.packets.set_len(0) };
        let slots = self.packets.as_mut_ptr();
        for at in 0..count {
            // SAFETY: `at` is less than the former length.
            let slot = unsafe { slots.add(at) };
            // SAFETY: the slot has a packet, to which there is no other reference.
            match fault(state, unsafe { &mut *slot }) {
                None => {
                    if kept != at {
                        // SAFETY: `kept` is less than `at`, and its slot's packet was moved out.
                        unsafe { slots.add(kept).copy_from_nonoverlapping(slot, 1) };
                    }
                    kept += 1;
                }
                // SAFETY: each packet is moved out of its slot once.
                Some(reason) => take(state, unsafe { slot.read() }, reason),
            }
        }
        // SAFETY: the first `kept` slots have packets.
        unsafe { self.packets.set_len(kept) };
    }

    /// Moves all packets to the ends of two other bursts, in order: those for whose index `first` returns true
    /// to `one`, the others to `other`. No branch depends on the outcome, which is often random. Packets that
    /// don't fit are dropped.
    #[inline]
    pub fn divide(
        &mut self,
        mut first: impl FnMut(usize) -> bool,
        one: &mut PacketBurst,
        other: &mut PacketBurst,
    ) {
        let room = PACKETS - one.len().max(other.len());
        self.packets.truncate(room);
        let count = self.packets.len();
        let (mut ones, mut others) = (one.len(), other.len());
        // SAFETY: a length of 0 needs no valid elements. If `first` panics, the remaining packets are leaked.
        unsafe { self.packets.set_len(0) };
        for at in 0..count {
            let is_first = first(at);
            // SAFETY: `at` is less than the former length. Both bursts have room for `count` packets after
            // their own. The packet is written to both, but only one of the lengths will include it.
            unsafe {
                let packet = self.packets.as_ptr().add(at);
                one.packets.as_mut_ptr().add(ones).copy_from_nonoverlapping(packet, 1);
                other.packets.as_mut_ptr().add(others).copy_from_nonoverlapping(packet, 1);
            }
            ones += usize::from(is_first);
            others += usize::from(!is_first);
        }
        // SAFETY: each packet was written to one of the bursts, below its new length.
        unsafe {
            one.packets.set_len(ones);
            other.packets.set_len(others);
        }
    }

    /// Replaces each packet, in order, by the result of `pass`, or removes it.
    #[inline]
    pub fn filter_map(&mut self, mut pass: impl FnMut(Packet) -> Option<Packet>) {
        let (count, mut kept) = (self.packets.len(), 0);
        // SAFETY: a length of 0 needs no valid elements. If `pass` panics, the remaining packets are leaked.
        unsafe { self.packets.set_len(0) };
        for at in 0..count {
            // SAFETY: `at` is less than the former length, and each packet is moved out of its slot once,
            // before the slot is overwritten.
            let packet = unsafe { self.packets.as_ptr().add(at).read() };
            if let Some(packet) = pass(packet) {
                // SAFETY: `kept` is at most `at`, and the slot's packet was moved out.
                unsafe { self.packets.as_mut_ptr().add(kept).write(packet) };
                kept += 1;
            }
        }
        // SAFETY: the first `kept` slots have packets.
        unsafe { self.packets.set_len(kept) };
    }

    /// Prefetches the parts of the packets that elements read first, for packets that were queued for some
    /// time.
    #[inline]
    pub fn prefetch(&self) {
        self.packets.iter().for_each(Packet::prefetch_handle);
        self.packets.iter().for_each(Packet::prefetch_data);
    }
}
