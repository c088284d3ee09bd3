//! The Ethernet header (IEEE 802.3-2022, 3.1).

use crate::bytes::{six_at, u16_at};
use crate::{MacAddress, WireError};
use core::fmt;

const NAME: &str = "Ethernet";
/// Bytes of the header.
pub const HEADER_LEN: usize = 14;

/// What a frame carries, or, below 0x600, how many bytes of LLC.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: EtherType = EtherType(0x0800);
    /// ARP.
    pub const ARP: EtherType = EtherType(0x0806);
    /// A customer VLAN tag (802.1Q).
    pub const VLAN: EtherType = EtherType(0x8100);
    /// A service VLAN tag (802.1ad).
    pub const SERVICE_VLAN: EtherType = EtherType(0x88a8);
    /// IPv6.
    pub const IPV6: EtherType = EtherType(0x86dd);

    /// Whether a VLAN tag follows.
    #[inline]
    pub fn is_tag(self) -> bool {
        self == EtherType::VLAN || self == EtherType::SERVICE_VLAN
    }

    /// Whether it is a length (802.3 with LLC) and no type.
    #[inline]
    pub fn is_length(self) -> bool {
        self.0 < 0x600
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:#06x}", self.0)
    }
}

/// A view of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    header: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Checks that there is a whole header.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Frame<'a>, WireError> {
        let (header, payload) = bytes.split_first_chunk().ok_or(WireError::Truncated { header: NAME })?;
        Ok(Frame { header, payload })
    }

    /// Where it goes.
    #[inline]
    pub fn destination(&self) -> MacAddress {
        MacAddress(six_at(self.header, 0))
    }

    /// Where it comes from.
    #[inline]
    pub fn source(&self) -> MacAddress {
        MacAddress(six_at(self.header, 6))
    }

    /// What it carries.
    #[inline]
    pub fn ethertype(&self) -> EtherType {
        EtherType(u16_at(self.header, 12))
    }

    /// What follows the header, padding included.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The header's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// Where it goes.
    pub destination: MacAddress,
    /// Where it comes from.
    pub source: MacAddress,
    /// What it carries.
    pub ethertype: EtherType,
}

impl Repr {
    /// Reads a view. Every value is legal.
    pub fn parse(frame: &Frame<'_>) -> Repr {
        Repr { destination: frame.destination(), source: frame.source(), ethertype: frame.ethertype() }
    }

    /// Bytes that `emit` writes.
    pub const fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header to the start of `out`.
    pub fn emit(&self, out: &mut [u8]) -> Result<(), WireError> {
        let header = out.first_chunk_mut::<HEADER_LEN>().ok_or(WireError::NoRoom { header: NAME })?;
        header[..6].copy_from_slice(&self.destination.0);
        header[6..12].copy_from_slice(&self.source.0);
        header[12..].copy_from_slice(&self.ethertype.0.to_be_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden() {
        let bytes =
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x52, 0x54, 0x00, 0x12, 0x34, 0x56, 0x08, 0x06, 0x00, 0x01];
        let frame = Frame::new_checked(&bytes).unwrap();
        let repr = Repr::parse(&frame);
        let source = MacAddress([0x52, 0x54, 0, 0x12, 0x34, 0x56]);
        assert_eq!(repr, Repr { destination: MacAddress::BROADCAST, source, ethertype: EtherType::ARP });
        assert_eq!(frame.payload(), [0x00, 0x01]);
        let mut out = [0; 14];
        repr.emit(&mut out).unwrap();
        assert_eq!(out, bytes[..14]);
    }

    #[test]
    fn short() {
        assert_eq!(Frame::new_checked(&[0; 13]).unwrap_err(), WireError::Truncated { header: "Ethernet" });
        let repr = Repr::parse(&Frame::new_checked(&[0; 14]).unwrap());
        assert_eq!(repr.emit(&mut [0; 13]), Err(WireError::NoRoom { header: "Ethernet" }));
    }

    proptest! {
        #[test]
        fn round_trip(bytes: [u8; 14]) {
            let mut out = [0; 14];
            Repr::parse(&Frame::new_checked(&bytes).unwrap()).emit(&mut out).unwrap();
            prop_assert_eq!(out, bytes);
        }
    }
}
