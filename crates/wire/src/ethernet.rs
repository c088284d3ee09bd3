//! The Ethernet header (IEEE 802.3-2022, 3.1).

use crate::{Header, MacAddress, U16};
use core::fmt;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the header.
pub const HEADER_LEN: usize = Ethernet::LEN;

/// What a frame carries, or, below 0x600, how many bytes of LLC.
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
    /// Flow control, as PAUSE.
    pub const MAC_CONTROL: EtherType = EtherType::new(0x8808);
    /// PPPoE's session stage.
    pub const PPPOE_SESSION: EtherType = EtherType::new(0x8864);

    /// The type of this number.
    #[inline]
    pub const fn new(number: u16) -> EtherType {
        EtherType(U16::new(number))
    }

    /// Its number.
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

/// The header.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Ethernet {
    /// Where the frame goes.
    pub destination: MacAddress,
    /// Where it comes from.
    pub source: MacAddress,
    /// What it carries.
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
