//! The UDP header (RFC 768).

use crate::WireError;
use crate::bytes::u16_at;
use crate::checksum::Sum;

const NAME: &str = "UDP";
/// Bytes of the header.
pub const HEADER_LEN: usize = 8;
/// Where the checksum lies.
pub const CHECKSUM_AT: usize = 6;

/// A view of a datagram. Bytes past its length are left out.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> Datagram<'a> {
    /// Checks the length against `bytes`. Not the checksum.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Datagram<'a>, WireError> {
        let (header, rest) =
            bytes.split_first_chunk::<HEADER_LEN>().ok_or(WireError::Truncated { header: NAME })?;
        let len = usize::from(u16_at(header, 4))
            .checked_sub(HEADER_LEN)
            .ok_or(WireError::Illegal { header: NAME, field: "Length" })?;
        let payload = rest.get(..len).ok_or(WireError::Truncated { header: NAME })?;
        Ok(Datagram { header, payload })
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

    /// Bytes of the datagram, header included.
    pub fn length(&self) -> u16 {
        u16_at(self.header, 4)
    }

    /// Checksum; 0 means that there is none.
    pub fn checksum(&self) -> u16 {
        u16_at(self.header, CHECKSUM_AT)
    }

    /// Whether the checksum is right or, over IPv4, absent. `pseudo` is the pseudo header's sum.
    pub fn is_checksum_valid(&self, mut pseudo: Sum) -> bool {
        pseudo.add(self.header);
        pseudo.add(self.payload);
        self.checksum() == 0 || pseudo.is_valid()
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
    /// Bytes that follow the header.
    pub payload_len: u16,
}

impl Repr {
    /// Reads a view; its checksum is the caller's to check.
    pub fn parse(datagram: &Datagram<'_>) -> Repr {
        Repr {
            source_port: datagram.source_port(),
            destination_port: datagram.destination_port(),
            payload_len: datagram.payload.len() as u16,
        }
    }

    /// Bytes that `emit` writes.
    pub const fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header to the start of `out`, before the payload that is there already, with the checksum
    /// of both.
    pub fn emit(&self, out: &mut [u8], mut pseudo: Sum) -> Result<(), WireError> {
        let len = HEADER_LEN + usize::from(self.payload_len);
        let Ok(length) = u16::try_from(len) else {
            return Err(WireError::Illegal { header: NAME, field: "Length" });
        };
        let datagram = out.get_mut(..len).ok_or(WireError::NoRoom { header: NAME })?;
        datagram[..2].copy_from_slice(&self.source_port.to_be_bytes());
        datagram[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        datagram[4..6].copy_from_slice(&length.to_be_bytes());
        datagram[6..8].fill(0);
        pseudo.add(datagram);
        datagram[6..8].copy_from_slice(&pseudo.finish_nonzero().to_be_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;
    use proptest::prelude::*;

    fn pseudo(len: usize) -> Sum {
        Sum::pseudo_v4(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), 17, len as u16)
    }

    #[test]
    fn golden() {
        let mut bytes = *b"\xaa\xaa\xaa\xaa\xaa\xaa\xaa\xaahi";
        let repr = Repr { source_port: 1000, destination_port: 53, payload_len: 2 };
        repr.emit(&mut bytes, pseudo(10)).unwrap();
        assert_eq!(bytes, *b"\x03\xe8\x00\x35\x00\x0a\x7f\x51hi");
        let datagram = Datagram::new_checked(&bytes).unwrap();
        assert_eq!((Repr::parse(&datagram), datagram.payload()), (repr, &b"hi"[..]));
        assert!(datagram.is_checksum_valid(pseudo(10)));
        bytes[9] ^= 1;
        assert!(!Datagram::new_checked(&bytes).unwrap().is_checksum_valid(pseudo(10)));
    }

    #[test]
    fn lengths_that_contradict_each_other_are_refused() {
        assert!(Datagram::new_checked(&[0, 0, 0, 0, 0, 7, 0, 0]).is_err());
        assert!(Datagram::new_checked(&[0, 0, 0, 0, 0, 9, 0, 0]).is_err());
        assert!(Datagram::new_checked(&[0, 0, 0, 0, 0, 8, 0]).is_err());
        let longest = Repr { source_port: 0, destination_port: 0, payload_len: u16::MAX };
        assert!(longest.emit(&mut vec![0; 70_000], Sum::new()).is_err());
    }

    proptest! {
        #[test]
        fn round_trip(a: u16, b: u16, payload in prop::collection::vec(any::<u8>(), 0..100), flip: u8) {
            let repr = Repr { source_port: a, destination_port: b, payload_len: payload.len() as u16 };
            let mut bytes = [&[0; 8][..], &payload].concat();
            let pseudo = pseudo(bytes.len());
            repr.emit(&mut bytes, pseudo).unwrap();
            prop_assert_ne!(&bytes[6..8], &[0, 0]);
            let datagram = Datagram::new_checked(&bytes).unwrap();
            prop_assert_eq!(Repr::parse(&datagram), repr);
            prop_assert!(datagram.is_checksum_valid(pseudo));
            bytes[0] ^= flip;
            prop_assert_eq!(Datagram::new_checked(&bytes).unwrap().is_checksum_valid(pseudo), flip == 0);
        }
    }
}
