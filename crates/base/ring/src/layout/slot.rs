//! A slot: one buffer of a frame.

/// Flag: the frame continues in the next slot (netmap's `NS_MOREFRAG`).
pub const MOREFRAG: u16 = 0x20;
/// Flag, not of a frame's first slot: the bytes begin within the buffer, at the offset in the first two bytes of the
/// offload metadata. Only on a pipe whose consumer has promised [`super::Consumer::fix_buffers`].
const WITHIN: u16 = 0x40;

/// One slot, 16 bytes in memory: `buf_idx`, `len`, `flags` (u16 each), then the first ten bytes of
/// `virtio_net_hdr` (virtio 1.3, 5.1.6) as offload metadata, valid in a frame's first slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Slot {
    /// Index of the buffer.
    pub buf_idx: u16,
    /// Bytes used in the buffer.
    pub len: u16,
    /// [`MOREFRAG`], and whether the bytes begin within the buffer; other bits are reserved and ignored.
    pub flags: u16,
    /// Offload metadata in its wire form.
    pub offload: [u8; 10],
}

impl Slot {
    /// Size of a slot in bytes.
    pub const SIZE: usize = 16;

    /// A slot behind the first one of a frame whose bytes begin at `offset` in the buffer.
    #[must_use]
    pub(super) fn at(self, offset: u16) -> Slot {
        if offset == 0 {
            return self;
        }
        let mut offload = [0; 10];
        offload[..2].copy_from_slice(&offset.to_le_bytes());
        Slot { flags: self.flags | WITHIN, offload, ..self }
    }

    /// Where in the buffer the bytes of a slot begin that is not a frame's first one.
    #[inline]
    pub fn offset(self) -> u16 {
        let [low, high, ..] = self.offload;
        if self.flags & WITHIN == 0 { 0 } else { u16::from_le_bytes([low, high]) }
    }

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
