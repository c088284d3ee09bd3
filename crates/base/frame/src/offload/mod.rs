//! Offload metadata: pending checksums and segmentation, the headers of segments, and segments that are joined.

mod coalesce;
mod headers;

pub use coalesce::{Coalesced, Segment};
pub use headers::{HEADERS, Headers, Part};

/// Size of the largest frame: an IP packet of 64 KB, an Ethernet header and two VLAN tags.
pub const LARGEST: u32 = 65_535 + 14 + 8;

/// `flags`: the checksum at `csum_start + csum_offset` must be filled in (virtio 1.3, 5.1.6).
const NEEDS_CSUM: u8 = 1;
/// `flags`: the checksum was validated.
const DATA_VALID: u8 = 2;
/// `gso_type`: the TCP connection uses explicit congestion notification.
const GSO_ECN: u8 = 0x80;

/// Offload metadata of one frame: the first ten bytes of `virtio_net_hdr` (virtio 1.3, 5.1.6), in host order.
// The field order makes the bytes equal to the wire form on a little-endian machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Offload {
    /// `VIRTIO_NET_HDR_F_*`.
    pub flags: u8,
    /// `VIRTIO_NET_HDR_GSO_*`, with the ECN bit.
    pub gso_type: u8,
    /// Length of the headers in bytes; only a hint.
    pub hdr_len: u16,
    /// Payload bytes per segment.
    pub gso_size: u16,
    /// Offset of the first checksummed byte.
    pub csum_start: u16,
    /// Offset of the checksum field from `csum_start`.
    pub csum_offset: u16,
}

/// Pending segmentation of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gso {
    /// TCP over IPv4.
    Tcp4,
    /// TCP over IPv6.
    Tcp6,
    /// UDP segmentation (USO), either IP version.
    UdpL4,
}

/// Why offload metadata is invalid for its frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OffloadError {
    /// The checksum field or its start is after the frame's end (CVE-2024-11614).
    ChecksumPastEnd,
    /// An unknown GSO type, or one that was not negotiated.
    UnknownGso,
    /// A pending segmentation with a segment size of zero, or without a pending checksum.
    BadGso,
}

/// A set of offloads: those that a frame requires of its destination, or that a destination supports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs(u8);

impl Needs {
    /// No offload.
    pub const NONE: Needs = Needs(0);
    /// Filling a checksum.
    pub const CSUM: Needs = Needs(1);
    /// TCP segmentation over IPv4.
    pub const TSO4: Needs = Needs(2);
    /// TCP segmentation over IPv6.
    pub const TSO6: Needs = Needs(4);
    /// TCP segmentation with ECN.
    pub const ECN: Needs = Needs(8);
    /// UDP segmentation.
    pub const USO: Needs = Needs(16);
    /// All offloads.
    pub const ALL: Needs = Needs(31);

    /// The union of both sets.
    pub const fn with(self, other: Needs) -> Needs {
        Needs(self.0 | other.0)
    }

    /// Whether this set contains `other`.
    #[inline]
    pub const fn covers(self, other: Needs) -> bool {
        other.0 & !self.0 == 0
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Offload {
    /// Length of the wire form: `virtio_net_hdr` up to `num_buffers`.
    pub const LEN: usize = 10;

    /// A pending checksum over the bytes from `start` on, at `start + offset`.
    pub fn checksum(start: u16, offset: u16) -> Offload {
        Offload { flags: NEEDS_CSUM, csum_start: start, csum_offset: offset, ..Offload::default() }
    }

    /// Parses the little-endian wire form.
    #[inline]
    pub fn from_bytes(bytes: &[u8; 10]) -> Offload {
        let [b0, b1, b2, b3, b4, b5, b6, b7, o0, o1] = *bytes;
        let front = u64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7]);
        Offload::from_words(front, u16::from_le_bytes([o0, o1]))
    }

    /// The reverse of [`Offload::to_words`].
    #[inline]
    pub fn from_words(word: u64, csum_offset: u16) -> Offload {
        Offload {
            flags: word as u8,
            gso_type: (word >> 8) as u8,
            hdr_len: (word >> 16) as u16,
            gso_size: (word >> 32) as u16,
            csum_start: (word >> 48) as u16,
            csum_offset,
        }
    }

    /// The wire form as two little-endian integers: its first eight bytes and its last two. Storing single
    /// bytes and loading them together afterwards would defeat the processor's store forwarding.
    #[inline]
    pub fn to_words(self) -> (u64, u16) {
        let [flags, gso_type] = [self.flags, self.gso_type].map(u64::from);
        let [hdr_len, gso_size, start] = [self.hdr_len, self.gso_size, self.csum_start].map(u64::from);
        (flags | gso_type << 8 | hdr_len << 16 | gso_size << 32 | start << 48, self.csum_offset)
    }

    /// The little-endian wire form.
    #[inline]
    pub fn to_bytes(self) -> [u8; 10] {
        let (front, [o0, o1]) = (self.to_words().0.to_le_bytes(), self.csum_offset.to_le_bytes());
        let [b0, b1, b2, b3, b4, b5, b6, b7] = front;
        [b0, b1, b2, b3, b4, b5, b6, b7, o0, o1]
    }

    /// Whether a checksum is pending.
    #[inline]
    pub fn needs_checksum(self) -> bool {
        self.flags & NEEDS_CSUM != 0
    }

    /// The metadata of the frame with so many bytes more, or fewer, before its network header.
    #[must_use]
    pub fn moved(self, by: i16) -> Offload {
        let moved = |at: u16| if at == 0 { 0 } else { at.saturating_add_signed(by) };
        Offload { hdr_len: moved(self.hdr_len), csum_start: moved(self.csum_start), ..self }
    }

    /// Whether the checksum is known to be valid.
    pub fn is_checked(self) -> bool {
        self.flags & DATA_VALID != 0
    }

    /// The pending segmentation; an error for an unknown type.
    #[inline]
    pub fn gso(self) -> Result<Option<Gso>, OffloadError> {
        match self.gso_type & !GSO_ECN {
            0 => Ok(None),
            1 => Ok(Some(Gso::Tcp4)),
            4 => Ok(Some(Gso::Tcp6)),
            5 => Ok(Some(Gso::UdpL4)),
            _ => Err(OffloadError::UnknownGso),
        }
    }

    /// Whether the TCP connection of the frame to segment uses ECN.
    pub fn has_ecn(self) -> bool {
        self.gso_type & GSO_ECN != 0
    }

    /// The offloads that a destination must support to receive the frame unchanged. Only for metadata that
    /// [`Offload::check`] accepted.
    #[inline]
    pub fn needs(self) -> Needs {
        if self.is_done() {
            return Needs::NONE;
        }
        let mut needs = if self.needs_checksum() { Needs::CSUM } else { Needs::NONE };
        needs = match self.gso() {
            Ok(Some(Gso::Tcp4)) => needs.with(Needs::TSO4),
            Ok(Some(Gso::Tcp6)) => needs.with(Needs::TSO6),
            Ok(Some(Gso::UdpL4)) => needs.with(Needs::USO),
            Ok(None) | Err(_) => needs,
        };
        if self.has_ecn() { needs.with(Needs::ECN) } else { needs }
    }

    /// Checks the metadata of a frame of `len` bytes from a sender that negotiated `granted`, and clears what
    /// a receiver must not see.
    #[inline]
    pub fn check(self, len: u32, granted: Needs) -> Result<Offload, OffloadError> {
        if self.is_done() {
            return Ok(self.done());
        }
        self.check_slow(len, granted)
    }

    /// Whether no offload is pending.
    #[inline]
    pub fn is_done(self) -> bool {
        self.flags & NEEDS_CSUM == 0 && self.gso_type == 0
    }

    /// The metadata for a receiver of this frame when no offload is pending any more.
    #[inline]
    pub fn done(self) -> Offload {
        Offload { flags: self.flags & DATA_VALID, ..Offload::default() }
    }

    fn check_slow(self, len: u32, granted: Needs) -> Result<Offload, OffloadError> {
        let gso = self.gso()?;
        if !granted.covers(self.needs()) {
            return Err(OffloadError::UnknownGso);
        }
        if self.needs_checksum() {
            // Attack: with a checksum field after the end, a receiver would write or sum outside the frame.
            let end = u32::from(self.csum_start) + u32::from(self.csum_offset) + 2;
            if end > len {
                return Err(OffloadError::ChecksumPastEnd);
            }
        }
        if gso.is_some() && (self.gso_size == 0 || !self.needs_checksum()) {
            return Err(OffloadError::BadGso);
        }
        let flags = self.flags & NEEDS_CSUM;
        // Attack: with a header length beyond the end, a receiver would read outside the frame.
        let hdr_len = u32::from(self.hdr_len).min(len) as u16;
        Ok(Offload { flags, hdr_len, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_form_round_trips() {
        let offload = Offload { gso_type: 1, gso_size: 1448, hdr_len: 66, ..Offload::checksum(34, 16) };
        assert_eq!(Offload::from_bytes(&offload.to_bytes()), offload);
    }

    #[test]
    fn a_checksum_past_the_end_is_refused() {
        assert!(Offload::checksum(34, 16).check(52, Needs::ALL).is_ok());
        assert_eq!(Offload::checksum(34, 16).check(51, Needs::ALL), Err(OffloadError::ChecksumPastEnd));
        let wrapping = Offload::checksum(u16::MAX, u16::MAX).check(100, Needs::ALL);
        assert_eq!(wrapping, Err(OffloadError::ChecksumPastEnd));
    }

    #[test]
    fn segmentation_requires_a_size_a_checksum_and_a_negotiated_feature() {
        let good = Offload { gso_type: 1, gso_size: 1448, ..Offload::checksum(34, 16) };
        assert_eq!(good.check(9000, Needs::ALL), Ok(good));
        assert_eq!(good.check(9000, Needs::CSUM), Err(OffloadError::UnknownGso));
        assert_eq!(Offload { gso_size: 0, ..good }.check(9000, Needs::ALL), Err(OffloadError::BadGso));
        assert_eq!(Offload { flags: 0, ..good }.check(9000, Needs::ALL), Err(OffloadError::BadGso));
        assert_eq!(Offload { gso_type: 3, ..good }.check(9000, Needs::ALL), Err(OffloadError::UnknownGso));
    }
}
