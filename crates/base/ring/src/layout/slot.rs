//! A slot: one buffer of a frame.

/// Flag: the frame continues in the next slot (netmap's `NS_MOREFRAG`).
pub const MOREFRAG: u16 = 0x20;

/// One slot, 16 bytes in memory: `buf_idx`, `len`, `flags` (u16 each), then the first ten bytes of
/// `virtio_net_hdr` (virtio 1.3, 5.1.6) as offload metadata, valid in a frame's first slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Index of the buffer.
    pub buf_idx: u16,
    /// Bytes used in the buffer.
    pub len: u16,
    /// [`MOREFRAG`] or 0; other bits are reserved and ignored.
    pub flags: u16,
    /// Offload metadata in its wire form.
    pub offload: [u8; 10],
}

impl Slot {
    /// Size of a slot in bytes.
    pub const SIZE: usize = 16;

    /// Whether the frame continues in the next slot.
    #[inline]
    pub fn has_more(self) -> bool {
        self.flags & MOREFRAG != 0
    }

    /// Decodes the two words of a slot.
    #[inline]
    pub(super) fn from_words(low: u64, high: u64) -> Slot {
        let mut offload = [0; 10];
        offload[..2].copy_from_slice(&((low >> 48) as u16).to_le_bytes());
        offload[2..].copy_from_slice(&high.to_le_bytes());
        Slot { buf_idx: low as u16, len: (low >> 16) as u16, flags: (low >> 32) as u16, offload }
    }

    /// Encodes the slot as two words.
    #[inline]
    pub(super) fn to_words(self) -> (u64, u64) {
        let [o0, o1, high @ ..] = self.offload;
        let low = u64::from(self.buf_idx)
            | u64::from(self.len) << 16
            | u64::from(self.flags) << 32
            | u64::from(u16::from_le_bytes([o0, o1])) << 48;
        (low, u64::from_le_bytes(high))
    }
}
