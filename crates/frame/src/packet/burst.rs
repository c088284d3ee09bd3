//! Packets handled at once.
use super::Packet;
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
        self.packets.clear();
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

    /// Hands each packet over, in order; what comes back takes its place, the rest moves up.
    #[inline]
    pub fn filter_map(&mut self, mut pass: impl FnMut(Packet) -> Option<Packet>) {
        let packets = core::mem::take(&mut self.packets);
        self.packets.extend(packets.into_iter().filter_map(&mut pass));
    }
}
