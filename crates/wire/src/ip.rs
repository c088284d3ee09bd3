//! What both IP versions share: protocol numbers.

use crate::{Icmp, Tcp, Udp};
use core::fmt;
use core::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// An upper-layer protocol or IPv6 extension header (the IANA registry of protocol numbers).
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
pub struct Protocol(pub u8);

impl Protocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: Protocol = Protocol(0);
    /// ICMP for IPv4.
    pub const ICMP: Protocol = Protocol(1);
    /// IGMP.
    pub const IGMP: Protocol = Protocol(2);
    /// IPv4 in IP.
    pub const IPIP: Protocol = Protocol(4);
    /// TCP.
    pub const TCP: Protocol = Protocol(6);
    /// UDP.
    pub const UDP: Protocol = Protocol(17);
    /// DCCP.
    pub const DCCP: Protocol = Protocol(33);
    /// IPv6 routing header.
    pub const ROUTING: Protocol = Protocol(43);
    /// IPv6 fragment header.
    pub const FRAGMENT: Protocol = Protocol(44);
    /// GRE.
    pub const GRE: Protocol = Protocol(47);
    /// IPsec authentication header.
    pub const AUTHENTICATION: Protocol = Protocol(51);
    /// ICMP for IPv6.
    pub const ICMPV6: Protocol = Protocol(58);
    /// Nothing follows.
    pub const NONE: Protocol = Protocol(59);
    /// IPv6 destination options.
    pub const DESTINATION: Protocol = Protocol(60);
    /// SCTP.
    pub const SCTP: Protocol = Protocol(132);

    /// Where its header has the checksum of the Internet, if it does.
    #[inline]
    pub fn checksum_at(self) -> Option<usize> {
        match self {
            Protocol::TCP => Some(offset_of!(Tcp, checksum)),
            Protocol::UDP => Some(offset_of!(Udp, checksum)),
            Protocol::ICMP | Protocol::ICMPV6 => Some(offset_of!(Icmp, checksum)),
            _ => None,
        }
    }

    /// Whether its header begins with two 16-bit ports.
    #[inline]
    pub fn has_ports(self) -> bool {
        matches!(self, Protocol::TCP | Protocol::UDP | Protocol::SCTP)
    }
}

impl fmt::Debug for Protocol {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.0)
    }
}
