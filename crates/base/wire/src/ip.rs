//! Protocol numbers of both IP versions, and options of IPv4 and TCP.

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
    /// IPsec ESP.
    pub const ESP: Protocol = Protocol(50);
    /// IPsec authentication header.
    pub const AUTHENTICATION: Protocol = Protocol(51);
    /// ICMP for IPv6.
    pub const ICMPV6: Protocol = Protocol(58);
    /// No next header.
    pub const NONE: Protocol = Protocol(59);
    /// IPv6 destination options.
    pub const DESTINATION: Protocol = Protocol(60);
    /// UDP-Lite (RFC 3828).
    pub const UDP_LITE: Protocol = Protocol(136);
    /// SCTP.
    pub const SCTP: Protocol = Protocol(132);

    /// Offset of the Internet checksum in the protocol's header, if there is one.
    #[inline]
    pub fn checksum_at(self) -> Option<usize> {
        match self {
            Protocol::TCP => Some(offset_of!(Tcp, checksum)),
            Protocol::UDP => Some(offset_of!(Udp, checksum)),
            Protocol::ICMP | Protocol::ICMPV6 => Some(offset_of!(Icmp, checksum)),
            _ => None,
        }
    }

    /// Whether the protocol's header begins with two 16-bit ports.
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

/// The options of an IPv4 or TCP header, including type and length, without padding. An invalid option is
/// returned as `None` and ends the iterator.
pub fn options(mut rest: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    use crate::ipv4::option::{END, NOP};
    core::iter::from_fn(move || {
        while let [NOP, after @ ..] = rest {
            rest = after;
        }
        if matches!(rest, [] | [END, ..]) {
            return None;
        }
        let length = rest.get(1).map_or(0, |length| usize::from(*length));
        // Attack: with a length below two, the loop would never advance past the option.
        let Some((option, after)) = rest.split_at_checked(length).filter(|_| length >= 2) else {
            rest = &[];
            return Some(None);
        };
        rest = after;
        Some(Some(option))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn options_end_at_the_end_option_or_the_first_invalid_one() {
        let list: Vec<_> = options(&[1, 148, 4, 0, 0, 1, 0, 148]).collect();
        assert_eq!(list, [Some(&[148, 4, 0, 0][..])]);
        for broken in [&[7, 0][..], &[7, 1], &[7], &[7, 9, 1]] {
            assert_eq!(options(broken).collect::<Vec<_>>(), [None], "{broken:?}");
        }
    }

    proptest! {
        #[test]
        fn any_options_end(bytes in prop::collection::vec(0u8..12, 0..60)) {
            prop_assert!(options(&bytes).count() <= 30);
        }
    }
}
