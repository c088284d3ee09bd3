//! The TCP header (RFC 9293, 3.1).

use crate::WireError;
use crate::bytes::{u16_at, u32_at};
use crate::checksum::Sum;
use crate::tcp_option;

const NAME: &str = "TCP";
/// Bytes of a header without options.
pub const HEADER_LEN: usize = 20;
/// Where the checksum lies.
pub const CHECKSUM_AT: usize = 16;

/// Control bits. A set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
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

    /// Both sets together.
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }

    /// This set without the bits of `other`.
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// Whether all bits of `other` are set.
    pub const fn has(self, other: Flags) -> bool {
        other.0 & !self.0 == 0
    }
}

/// A view of a segment.
#[derive(Clone, Copy, Debug)]
pub struct Segment<'a> {
    header: &'a [u8; HEADER_LEN],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Checks the data offset against `bytes`. Not the checksum.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Segment<'a>, WireError> {
        let header = bytes.first_chunk::<HEADER_LEN>().ok_or(WireError::Truncated { header: NAME })?;
        let len = usize::from(header[12] >> 4) * 4;
        if len < HEADER_LEN {
            return Err(WireError::Illegal { header: NAME, field: "Data Offset" });
        }
        let (front, payload) = bytes.split_at_checked(len).ok_or(WireError::Truncated { header: NAME })?;
        Ok(Segment { header, options: &front[HEADER_LEN..], payload })
    }

    /// Source port.
    #[inline]
    pub fn source_port(&self) -> u16 {
        u16_at(self.header, 0)
    }

    /// Destination port.
    #[inline]
    pub fn destination_port(&self) -> u16 {
        u16_at(self.header, 2)
    }

    /// Sequence number.
    #[inline]
    pub fn sequence_number(&self) -> u32 {
        u32_at(self.header, 4)
    }

    /// Acknowledgment number.
    pub fn acknowledgment_number(&self) -> u32 {
        u32_at(self.header, 8)
    }

    /// Bytes of the header, options included.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Control bits.
    #[inline]
    pub fn flags(&self) -> Flags {
        Flags(self.header[13])
    }

    /// Window, unscaled.
    pub fn window(&self) -> u16 {
        u16_at(self.header, 14)
    }

    /// Checksum.
    pub fn checksum(&self) -> u16 {
        u16_at(self.header, CHECKSUM_AT)
    }

    /// Whether the checksum is right; `pseudo` is the pseudo header's sum.
    pub fn is_checksum_valid(&self, mut pseudo: Sum) -> bool {
        pseudo.add(self.header);
        pseudo.add(self.options);
        pseudo.add(self.payload);
        pseudo.is_valid()
    }

    /// Urgent pointer.
    pub fn urgent_pointer(&self) -> u16 {
        u16_at(self.header, 18)
    }

    /// The options, raw.
    pub fn options(&self) -> &'a [u8] {
        self.options
    }

    /// What follows the header.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The header's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Sequence number.
    pub sequence_number: u32,
    /// Acknowledgment number.
    pub acknowledgment_number: u32,
    /// Control bits.
    pub flags: Flags,
    /// Window, unscaled.
    pub window: u16,
    /// Urgent pointer.
    pub urgent_pointer: u16,
    /// Options that TCP uses; others are left out.
    pub options: tcp_option::Repr,
}

impl Repr {
    /// Reads a view; its checksum is the caller's to check.
    pub fn parse(segment: &Segment<'_>) -> Result<Repr, WireError> {
        Ok(Repr {
            source_port: segment.source_port(),
            destination_port: segment.destination_port(),
            sequence_number: segment.sequence_number(),
            acknowledgment_number: segment.acknowledgment_number(),
            flags: segment.flags(),
            window: segment.window(),
            urgent_pointer: segment.urgent_pointer(),
            options: tcp_option::Repr::parse(segment.options)?,
        })
    }

    /// Bytes of the header that `emit` writes.
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.options.len()
    }

    /// Writes the header to the start of `segment`, before the payload that fills the rest, with the checksum
    /// of both.
    pub fn emit(&self, segment: &mut [u8], mut pseudo: Sum) -> Result<(), WireError> {
        let len = self.header_len();
        let (header, options) =
            segment.split_first_chunk_mut::<HEADER_LEN>().ok_or(WireError::NoRoom { header: NAME })?;
        self.options.emit(options)?;
        header[..2].copy_from_slice(&self.source_port.to_be_bytes());
        header[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        header[4..8].copy_from_slice(&self.sequence_number.to_be_bytes());
        header[8..12].copy_from_slice(&self.acknowledgment_number.to_be_bytes());
        header[12] = (len / 4) as u8 * 0x10;
        header[13] = self.flags.0;
        header[14..16].copy_from_slice(&self.window.to_be_bytes());
        header[16..18].fill(0);
        header[18..].copy_from_slice(&self.urgent_pointer.to_be_bytes());
        pseudo.add(segment);
        segment[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&pseudo.finish().to_be_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    fn pseudo(len: usize) -> Sum {
        Sum::pseudo_v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 6, len as u16)
    }

    #[test]
    fn golden() {
        let bytes = [
            0xc0, 0x00, 0x00, 0x50, 0x12, 0x34, 0x56, 0x78, 0x00, 0x00, 0x00, 0x01, 0x80, 0xd8, 0x02, 0x00,
            0x00, 0x00, 0x00, 0x00, 0x01, 0x01, 0x08, 0x0a, 0x00, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x04,
            b'x',
        ];
        let segment = Segment::new_checked(&bytes).unwrap();
        let repr = Repr::parse(&segment).unwrap();
        assert_eq!(segment.payload(), b"x");
        assert_eq!(
            repr,
            Repr {
                source_port: 49152,
                destination_port: 80,
                sequence_number: 0x12345678,
                acknowledgment_number: 1,
                flags: Flags::ACK.with(Flags::PSH).with(Flags::CWR).with(Flags::ECE),
                window: 512,
                urgent_pointer: 0,
                options: tcp_option::Repr { timestamps: Some((5, 4)), ..tcp_option::Repr::default() },
            }
        );
        let mut out = bytes;
        repr.emit(&mut out, pseudo(33)).unwrap();
        let mut zeroed = out;
        zeroed[16..18].fill(0);
        assert_eq!(zeroed, bytes);
        assert!(Segment::new_checked(&out).unwrap().is_checksum_valid(pseudo(33)));
    }

    #[test]
    fn a_data_offset_outside_the_segment_is_refused() {
        let mut bytes = [0; 23];
        bytes[12] = 0x40;
        assert!(Segment::new_checked(&bytes).is_err());
        bytes[12] = 0x60;
        assert!(Segment::new_checked(&bytes).is_err());
        bytes[12] = 0x50;
        assert_eq!(Segment::new_checked(&bytes).unwrap().payload().len(), 3);
        assert!(Segment::new_checked(&bytes[..19]).is_err());
    }

    proptest! {
        #[test]
        fn round_trip(
            fixed: [u8; 20], timestamps: Option<(u32, u32)>,
            payload in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let mut fixed = fixed;
            fixed[12] = 0x50;
            let mut repr = Repr::parse(&Segment::new_checked(&fixed).unwrap()).unwrap();
            repr.options.timestamps = timestamps;
            let mut bytes = vec![0; repr.header_len()];
            bytes.extend_from_slice(&payload);
            let pseudo = pseudo(bytes.len());
            repr.emit(&mut bytes, pseudo).unwrap();
            let segment = Segment::new_checked(&bytes).unwrap();
            prop_assert!(segment.is_checksum_valid(pseudo));
            prop_assert_eq!(Repr::parse(&segment), Ok(repr));
            prop_assert_eq!(segment.payload(), &payload[..]);
        }
    }
}
