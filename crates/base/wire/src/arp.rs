//! ARP for IPv4 on Ethernet (RFC 826).

use crate::{EtherType, Header, MacAddress, U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `ar$hrd`: Ethernet.
pub const ETHERNET: u16 = 1;
/// `ar$op`: request for the hardware address of a protocol address.
pub const REQUEST: u16 = 1;
/// `ar$op`: reply.
pub const REPLY: u16 = 2;
/// `ar$op`: request for the protocol address of a hardware address (RFC 903).
pub const REVERSE_REQUEST: u16 = 3;

/// An ARP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Arp {
    /// `ar$hrd`.
    pub hardware: U16,
    /// `ar$pro`.
    pub protocol: EtherType,
    /// `ar$hln`.
    pub hardware_len: u8,
    /// `ar$pln`.
    pub protocol_len: u8,
    /// `ar$op`.
    pub operation: U16,
    /// `ar$sha`.
    pub sender_hardware: MacAddress,
    /// `ar$spa`.
    pub sender_protocol: U32,
    /// `ar$tha`.
    pub target_hardware: MacAddress,
    /// `ar$tpa`.
    pub target_protocol: U32,
}

impl Arp {
    /// A packet for IPv4 on Ethernet; all addresses are 0.
    pub const fn new(operation: u16) -> Arp {
        Arp {
            hardware: U16::new(ETHERNET),
            protocol: EtherType::IPV4,
            hardware_len: 6,
            protocol_len: 4,
            operation: U16::new(operation),
            sender_hardware: MacAddress([0; 6]),
            sender_protocol: U32::new(0),
            target_hardware: MacAddress([0; 6]),
            target_protocol: U32::new(0),
        }
    }

    /// The packet at the start of `bytes`, if it is for IPv4 on Ethernet.
    pub fn parse(bytes: &[u8]) -> Option<&Arp> {
        let expected = Arp::new(REQUEST);
        Arp::of(bytes).filter(|arp| arp.bytes()[..6] == expected.bytes()[..6])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOLDEN: [u8; 28] = [
        0x00, 0x01, 0x08, 0x00, 0x06, 0x04, 0x00, 0x01, 0x52, 0x54, 0x00, 0x00, 0x00, 0x01, 10, 0, 0, 1, 0,
        0, 0, 0, 0, 0, 10, 0, 0, 2,
    ];

    #[test]
    fn golden() {
        let arp = Arp {
            sender_hardware: MacAddress([0x52, 0x54, 0, 0, 0, 1]),
            sender_protocol: U32::from_bytes([10, 0, 0, 1]),
            target_protocol: U32::from_bytes([10, 0, 0, 2]),
            ..Arp::new(REQUEST)
        };
        assert_eq!((arp.bytes(), Arp::parse(&GOLDEN)), (&GOLDEN[..], Some(&arp)));
    }

    #[test]
    fn other_hardware_and_protocols_are_refused() {
        for at in [1, 2, 4, 5] {
            let mut bytes = GOLDEN;
            bytes[at] ^= 0x10;
            assert!(Arp::parse(&bytes).is_none(), "byte {at}");
        }
        assert!(Arp::parse(&GOLDEN[..27]).is_none());
    }
}
