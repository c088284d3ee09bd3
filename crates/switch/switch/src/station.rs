//! A station: an address in a VLAN.

use crate::{Mac, word};
use ringway_frame::HEAD;

/// An address in a VLAN. The same address in two VLANs is two stations (IEEE 802.1Q, 8.8: independent learning).
///
/// The address is in the low 48 bits, the number of the VLAN in the 12 bits above them; 0 for frames without a tag, and
/// for those with priority tags. The VLAN of a frame with several tags is that of the outer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Station(pub(crate) u64);

impl Station {
    /// Number of bits.
    pub(crate) const BITS: u32 = 60;
    #[cfg(test)]
    pub(crate) const MASK: u64 = (1 << Station::BITS) - 1;

    /// The station at `mac` in `vlan`, of which the low 12 bits count.
    #[inline]
    pub fn new(mac: Mac, vlan: u16) -> Station {
        Station(mac.0 | u64::from(vlan & 0xfff) << 48)
    }

    /// The station that a frame is for, by its first bytes.
    pub fn destination(head: &[u8; HEAD]) -> Station {
        let vlan = if Begin::of(head).is_tagged() { vlan_of(head) } else { 0 };
        Station::new(Mac::destination(head), vlan)
    }

    /// Its address.
    #[inline]
    pub fn mac(self) -> Mac {
        Mac(self.0 & Mac::MASK)
    }

    /// The number of its VLAN; 0: none.
    #[inline]
    pub fn vlan(self) -> u16 {
        (self.0 >> 48 & 0xfff) as u16
    }
}

impl From<Mac> for Station {
    fn from(mac: Mac) -> Station {
        Station(mac.0)
    }
}

/// Bytes 6 to 14 of a frame: its source address and the EtherType behind it. Two frames without tags in which they are
/// equal have the same source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begin(u64);

impl Begin {
    /// Begins with a group's address, so that its frames are invalid.
    pub const NONE: Begin = Begin(u64::MAX);

    #[inline]
    pub fn of(head: &[u8; HEAD]) -> Begin {
        Begin(word(head, 6))
    }

    /// Whether a VLAN tag follows the address: IEEE 802.1Q's, or that of outer tags.
    #[inline]
    pub fn is_tagged(self) -> bool {
        matches!(self.0 >> 48, 0x0081 | 0xa888)
    }

    /// The source address.
    #[inline]
    pub fn source(self) -> Mac {
        Mac(self.0 & Mac::MASK)
    }
}

/// The VLAN in the first tag of a frame.
#[inline]
pub(crate) fn vlan_of(head: &[u8; HEAD]) -> u16 {
    u16::from_be_bytes([head[14], head[15]]) & 0xfff
}
