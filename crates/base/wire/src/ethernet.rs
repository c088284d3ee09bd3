//! The Ethernet header (IEEE 802.3-2022, 3.1).

use crate::{Header, MacAddress, U16};
use core::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Length of the header in bytes.
pub const HEADER_LEN: usize = Ethernet::LEN;

/// The type of a frame's payload, or, below 0x600, the length of an LLC payload.
#[derive(
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
    Unaligned,
)]
#[repr(transparent)]
pub struct EtherType(pub U16);

impl EtherType {
    /// IPv4.
    pub const IPV4: EtherType = EtherType::new(0x0800);
    /// ARP.
    pub const ARP: EtherType = EtherType::new(0x0806);
    /// Reverse ARP.
    pub const RARP: EtherType = EtherType::new(0x8035);
    /// A customer VLAN tag (802.1Q).
    pub const VLAN: EtherType = EtherType::new(0x8100);
    /// A service VLAN tag (802.1ad).
    pub const SERVICE_VLAN: EtherType = EtherType::new(0x88a8);
    /// IPv6.
    pub const IPV6: EtherType = EtherType::new(0x86dd);
    /// MAC control, such as PAUSE.
    pub const MAC_CONTROL: EtherType = EtherType::new(0x8808);
    /// PPPoE session stage.
    pub const PPPOE_SESSION: EtherType = EtherType::new(0x8864);

    /// The type with this number.
    #[inline]
    pub const fn new(number: u16) -> EtherType {
        EtherType(U16::new(number))
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0.get()
    }

    /// Whether a VLAN tag follows.
    #[inline]
    pub fn is_tag(self) -> bool {
        self == EtherType::VLAN || self == EtherType::SERVICE_VLAN
    }
}

impl fmt::Debug for EtherType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:#06x}", self.get())
    }
}

/// The Ethernet header.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Ethernet {
    /// Destination address.
    pub destination: MacAddress,
    /// Source address.
    pub source: MacAddress,
    /// Type of the payload.
    pub ethertype: EtherType,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden() {
        let bytes =
            [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x52, 0x54, 0x00, 0x12, 0x34, 0x56, 0x08, 0x06, 0x00, 0x01];
        let source = MacAddress([0x52, 0x54, 0, 0x12, 0x34, 0x56]);
        let header = Ethernet { destination: MacAddress::BROADCAST, source, ethertype: EtherType::ARP };
        assert_eq!(Ethernet::split(&bytes), Some((&header, &bytes[14..])));
        assert_eq!(Ethernet::of(&bytes[..13]), None);
    }
}
