//! The TCP header (RFC 9293, 3.1).

use crate::{Header, Sum, U16, U32};
use core::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of a header without options.
pub const HEADER_LEN: usize = Tcp::LEN;
/// Offset of the checksum.
pub const CHECKSUM_AT: usize = offset_of!(Tcp, checksum);

/// A set of control bits.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(transparent)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Flags = Flags(0x01);
    /// Synchronize sequence numbers.
    pub const SYN: Flags = Flags(0x02);
    /// Reset the connection.
    pub const RST: Flags = Flags(0x04);
    /// Push.
    pub const PSH: Flags = Flags(0x08);
    /// The acknowledgment field is significant.
    pub const ACK: Flags = Flags(0x10);
    /// The urgent pointer is significant.
    pub const URG: Flags = Flags(0x20);
    /// ECN echo.
    pub const ECE: Flags = Flags(0x40);
    /// Congestion window reduced.
    pub const CWR: Flags = Flags(0x80);

    /// The union of both sets.
    #[inline]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// This set without the bits of `other`.
    #[inline]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// Whether any bit of `other` is set.
    #[inline]
    pub const fn has(self, other: Flags) -> bool {
        other.0 & self.0 != 0
    }
}

/// Kinds of options.
pub mod option {
    /// End of the list.
    pub const END: u8 = 0;
    /// No operation.
    pub const NOP: u8 = 1;
    /// Maximum segment size.
    pub const MAX_SEGMENT_SIZE: u8 = 2;
    /// Window scale (RFC 7323).
    pub const WINDOW_SCALE: u8 = 3;
    /// SACK permitted (RFC 2018).
    pub const SACK_PERMITTED: u8 = 4;
    /// SACK (RFC 2018).
    pub const SACK: u8 = 5;
    /// Timestamps (RFC 7323).
    pub const TIMESTAMPS: u8 = 8;
    /// Fast Open (RFC 7413).
    pub const FAST_OPEN: u8 = 34;
}

/// The header, without its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Tcp {
    /// Source port.
    pub source_port: U16,
    /// Destination port.
    pub destination_port: U16,
    /// Sequence number.
    pub sequence_number: U32,
    /// Acknowledgment number.
    pub acknowledgment_number: U32,
    /// Data offset in 32-bit words, in the upper half.
    pub data_offset: u8,
    /// Control bits.
    pub flags: Flags,
    /// Window, unscaled.
    pub window: U16,
    /// Checksum.
    pub checksum: U16,
    /// Urgent pointer.
    pub urgent_pointer: U16,
}

impl Tcp {
    /// A header without options; all other fields are 0.
    pub const EMPTY: Tcp = Tcp {
        source_port: U16::ZERO,
        destination_port: U16::ZERO,
        sequence_number: U32::ZERO,
        acknowledgment_number: U32::ZERO,
        data_offset: 5 << 4,
        flags: Flags(0),
        window: U16::ZERO,
        checksum: U16::ZERO,
        urgent_pointer: U16::ZERO,
    };

    /// Length of the header in bytes, options included; below 20 if the field is invalid.
    #[inline]
    pub fn header_len(&self) -> usize {
        usize::from(self.data_offset >> 4) * 4
    }

    /// Fills the checksum of a whole segment; `sum` is the sum of the pseudo header. `None` if the segment is
    /// too short.
    #[inline]
    pub fn fill_checksum(segment: &mut [u8], mut sum: Sum) -> Option<()> {
        Tcp::of_mut(segment)?.checksum.set(0);
        sum.add(segment);
        Tcp::of_mut(segment)?.checksum.set(sum.finish());
        Some(())
    }

    /// Length of the header of a possibly truncated segment.
    #[inline]
    pub fn header_len_of(segment: &[u8]) -> Option<usize> {
        segment.get(offset_of!(Tcp, data_offset)).map(|offset| usize::from(offset >> 4) * 4)
    }

    /// The header at the start of `bytes`, its options, and the bytes after them; `None` if the header is
    /// truncated.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Option<(&Tcp, &[u8], &[u8])> {
        let (tcp, rest) = Tcp::split(bytes)?;
        let (options, payload) = rest.split_at_checked(tcp.header_len().checked_sub(HEADER_LEN)?)?;
        Some((tcp, options, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let bytes = [
            0xc0, 0x00, 0x00, 0x50, 0x12, 0x34, 0x56, 0x78, 0x00, 0x00, 0x00, 0x01, 0x60, 0xd8, 0x02, 0x00,
            0x00, 0x09, 0x00, 0x00, 0x01, 0x01, 0x01, 0x00, b'x',
        ];
        let (tcp, options, payload) = Tcp::parse(&bytes).unwrap();
        let expected = Tcp {
            source_port: U16::new(49152),
            destination_port: U16::new(80),
            sequence_number: U32::new(0x12345678),
            acknowledgment_number: U32::new(1),
            data_offset: 0x60,
            flags: Flags::ACK.with(Flags::PSH).with(Flags::CWR).with(Flags::ECE),
            window: U16::new(512),
            checksum: U16::new(9),
            urgent_pointer: U16::new(0),
        };
        assert_eq!((tcp, options, payload), (&expected, &bytes[20..24], &b"x"[..]));
    }

    #[test]
    fn a_data_offset_outside_the_segment_is_refused() {
        let mut bytes = [0; 23];
        for (offset, good) in [(0x40, false), (0x60, false), (0x50, true)] {
            bytes[12] = offset;
            assert_eq!(Tcp::parse(&bytes).is_some(), good);
        }
        assert_eq!(Tcp::parse(&bytes[..19]), None);
    }
}
