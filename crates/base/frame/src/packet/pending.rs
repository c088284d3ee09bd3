//! Offload metadata as packets store it.

use crate::Offload;

/// Pending offloads without the start of the checksummed bytes, which packets store as an offset in their buffer.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Pending {
    flags: u8,
    gso_type: u8,
    hdr_len: u16,
    pub(super) gso_size: u16,
    csum_offset: u16,
}

impl Pending {
    #[inline]
    pub(super) fn of(offload: Offload) -> Self {
        let Offload { flags, gso_type, hdr_len, gso_size, csum_start: _, csum_offset } = offload;
        Self { flags, gso_type, hdr_len, gso_size, csum_offset }
    }

    /// Whether there are any.
    #[inline]
    pub(super) fn any(self) -> bool {
        self.flags | self.gso_type != 0
    }

    /// With this offset of the first checksummed byte.
    #[inline]
    pub(super) fn at(self, csum_start: u16) -> Offload {
        let Self { flags, gso_type, hdr_len, gso_size, csum_offset } = self;
        Offload { flags, gso_type, hdr_len, gso_size, csum_start, csum_offset }
    }
}
