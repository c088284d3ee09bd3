//! ARP for IPv4 on Ethernet (RFC 826).

use crate::bytes::{four_at, six_at, u16_at};
use crate::{MacAddress, WireError};
use core::net::Ipv4Addr;

const NAME: &str = "ARP";
/// Bytes of a packet.
pub const PACKET_LEN: usize = 28;

/// `ar$op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Who has this protocol address?
    Request,
    /// I have.
    Reply,
    /// Anything else.
    Other(u16),
}

impl From<u16> for Operation {
    fn from(number: u16) -> Operation {
        match number {
            1 => Operation::Request,
            2 => Operation::Reply,
            other => Operation::Other(other),
        }
    }
}

impl From<Operation> for u16 {
    fn from(operation: Operation) -> u16 {
        match operation {
            Operation::Request => 1,
            Operation::Reply => 2,
            Operation::Other(other) => other,
        }
    }
}

/// A view of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    bytes: &'a [u8; PACKET_LEN],
}

impl<'a> Packet<'a> {
    /// Checks that there is a whole packet, and that it is about IPv4 on Ethernet.
    pub fn new_checked(bytes: &'a [u8]) -> Result<Packet<'a>, WireError> {
        let bytes = bytes.first_chunk().ok_or(WireError::Truncated { header: NAME })?;
        if u16_at(bytes, 0) != 1 || bytes[4] != 6 {
            return Err(WireError::Illegal { header: NAME, field: "ar$hrd" });
        }
        if u16_at(bytes, 2) != 0x0800 || bytes[5] != 4 {
            return Err(WireError::Illegal { header: NAME, field: "ar$pro" });
        }
        Ok(Packet { bytes })
    }

    /// `ar$op`.
    pub fn operation(&self) -> Operation {
        u16_at(self.bytes, 6).into()
    }

    /// `ar$sha`.
    pub fn source_hardware(&self) -> MacAddress {
        MacAddress(six_at(self.bytes, 8))
    }

    /// `ar$spa`.
    pub fn source_protocol(&self) -> Ipv4Addr {
        four_at(self.bytes, 14).into()
    }

    /// `ar$tha`.
    pub fn target_hardware(&self) -> MacAddress {
        MacAddress(six_at(self.bytes, 18))
    }

    /// `ar$tpa`.
    pub fn target_protocol(&self) -> Ipv4Addr {
        four_at(self.bytes, 24).into()
    }
}

/// A packet's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repr {
    /// `ar$op`.
    pub operation: Operation,
    /// `ar$sha`.
    pub source_hardware: MacAddress,
    /// `ar$spa`.
    pub source_protocol: Ipv4Addr,
    /// `ar$tha`.
    pub target_hardware: MacAddress,
    /// `ar$tpa`.
    pub target_protocol: Ipv4Addr,
}

impl Repr {
    /// Reads a view.
    pub fn parse(packet: &Packet<'_>) -> Repr {
        Repr {
            operation: packet.operation(),
            source_hardware: packet.source_hardware(),
            source_protocol: packet.source_protocol(),
            target_hardware: packet.target_hardware(),
            target_protocol: packet.target_protocol(),
        }
    }

    /// Bytes that `emit` writes.
    pub const fn packet_len(&self) -> usize {
        PACKET_LEN
    }

    /// Writes the packet to the start of `out`.
    pub fn emit(&self, out: &mut [u8]) -> Result<(), WireError> {
        let bytes = out.first_chunk_mut::<PACKET_LEN>().ok_or(WireError::NoRoom { header: NAME })?;
        bytes[..6].copy_from_slice(&[0, 1, 8, 0, 6, 4]);
        bytes[6..8].copy_from_slice(&u16::from(self.operation).to_be_bytes());
        bytes[8..14].copy_from_slice(&self.source_hardware.0);
        bytes[14..18].copy_from_slice(&self.source_protocol.octets());
        bytes[18..24].copy_from_slice(&self.target_hardware.0);
        bytes[24..].copy_from_slice(&self.target_protocol.octets());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOLDEN: [u8; 28] = [
        0x00, 0x01, 0x08, 0x00, 0x06, 0x04, 0x00, 0x01, 0x52, 0x54, 0x00, 0x00, 0x00, 0x01, 10, 0, 0, 1, 0,
        0, 0, 0, 0, 0, 10, 0, 0, 2,
    ];

    #[test]
    fn golden() {
        let repr = Repr::parse(&Packet::new_checked(&GOLDEN).unwrap());
        assert_eq!(
            repr,
            Repr {
                operation: Operation::Request,
                source_hardware: MacAddress([0x52, 0x54, 0, 0, 0, 1]),
                source_protocol: Ipv4Addr::new(10, 0, 0, 1),
                target_hardware: MacAddress::default(),
                target_protocol: Ipv4Addr::new(10, 0, 0, 2),
            }
        );
        let mut out = [0xaa; 28];
        repr.emit(&mut out).unwrap();
        assert_eq!(out, GOLDEN);
    }

    #[test]
    fn other_hardware_and_protocols_are_refused() {
        for at in [1, 2, 4, 5] {
            let mut bytes = GOLDEN;
            bytes[at] ^= 0x10;
            assert!(Packet::new_checked(&bytes).is_err(), "byte {at}");
        }
        assert!(Packet::new_checked(&GOLDEN[..27]).is_err());
    }

    proptest! {
        #[test]
        fn round_trip(rest: [u8; 22]) {
            let mut bytes = GOLDEN;
            bytes[6..].copy_from_slice(&rest);
            let mut out = [0; 28];
            Repr::parse(&Packet::new_checked(&bytes).unwrap()).emit(&mut out).unwrap();
            prop_assert_eq!(out, bytes);
        }
    }
}
