//! ICMP for IPv4 (RFC 792, RFC 1191), ICMPv6 (RFC 4443) and neighbor discovery (RFC 4861).

use crate::{Header, MacAddress, Sum, U16, U32, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Types of ICMP for IPv4.
pub mod v4 {
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 0;
    /// Destination unreachable.
    pub const UNREACHABLE: u8 = 3;
    /// Code of [`UNREACHABLE`]: fragmentation needed and DF set; `sequence_number` is the MTU (RFC 1191).
    pub const NEEDS_FRAGMENTATION: u8 = 4;
    /// Source quench.
    pub const SOURCE_QUENCH: u8 = 4;
    /// Redirect; `rest` is the gateway's address.
    pub const REDIRECT: u8 = 5;
    /// Echo request.
    pub const ECHO: u8 = 8;
    /// Router advertisement (RFC 1256).
    pub const ROUTER_ADVERTISEMENT: u8 = 9;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 11;
    /// Parameter problem; the first byte of `rest` is the pointer to it.
    pub const PARAMETER_PROBLEM: u8 = 12;
    /// Timestamp request.
    pub const TIMESTAMP: u8 = 13;
    /// Timestamp reply.
    pub const TIMESTAMP_REPLY: u8 = 14;
    /// Information request.
    pub const INFORMATION: u8 = 15;
    /// Information reply.
    pub const INFORMATION_REPLY: u8 = 16;
    /// Address mask request (RFC 950).
    pub const MASK: u8 = 17;
    /// Address mask reply.
    pub const MASK_REPLY: u8 = 18;

    /// Whether messages of this type quote the packet that caused them.
    pub const fn is_error(kind: u8) -> bool {
        matches!(kind, UNREACHABLE | SOURCE_QUENCH | REDIRECT | TIME_EXCEEDED | PARAMETER_PROBLEM)
    }
}

/// Types of ICMPv6. Those below 128 are errors.
pub mod v6 {
    /// Destination unreachable.
    pub const UNREACHABLE: u8 = 1;
    /// Packet too big; `rest` is the MTU.
    pub const PACKET_TOO_BIG: u8 = 2;
    /// Time exceeded.
    pub const TIME_EXCEEDED: u8 = 3;
    /// Parameter problem; `rest` is the pointer to it.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Code of a parameter problem: unrecognized option.
    pub const UNRECOGNIZED_OPTION: u8 = 2;
    /// Echo request.
    pub const ECHO: u8 = 128;
    /// Echo reply.
    pub const ECHO_REPLY: u8 = 129;
    /// Router solicitation.
    pub const ROUTER_SOLICITATION: u8 = 133;
    /// Router advertisement; `sequence_number` is its lifetime as a default router in seconds.
    pub const ROUTER_ADVERTISEMENT: u8 = 134;
    /// Neighbor solicitation.
    pub const NEIGHBOR_SOLICITATION: u8 = 135;
    /// Neighbor advertisement.
    pub const NEIGHBOR_ADVERTISEMENT: u8 = 136;
    /// Redirect (RFC 4861).
    pub const REDIRECT: u8 = 137;
}

/// Maximum number of neighbor discovery options that are read. Attack: a message of many small options.
const OPTIONS: usize = 16;

/// The ICMP header of both IP versions.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Icmp {
    /// Type.
    pub kind: u8,
    /// Code.
    pub code: u8,
    /// Checksum.
    pub checksum: U16,
    /// Identifier of an echo; other types use this and the next field differently, see [`Icmp::rest`].
    pub identifier: U16,
    /// Sequence number of an echo.
    pub sequence_number: U16,
}

impl Icmp {
    /// Fills the checksum of a whole message; `sum` is the sum of the ICMPv6 pseudo header, or empty. `None`
    /// if the message is too short.
    #[inline]
    pub fn fill_checksum(message: &mut [u8], mut sum: Sum) -> Option<()> {
        Icmp::of_mut(message)?.checksum.set(0);
        sum.add(message);
        Icmp::of_mut(message)?.checksum.set(sum.finish());
        Some(())
    }

    /// The four bytes after the checksum.
    #[inline]
    pub fn rest(&self) -> u32 {
        u32::from(self.identifier.get()) << 16 | u32::from(self.sequence_number.get())
    }

    /// Sets the four bytes after the checksum.
    #[inline]
    pub fn set_rest(&mut self, rest: u32) {
        self.identifier.set((rest >> 16) as u16);
        self.sequence_number.set(rest as u16);
    }
}

/// A neighbor solicitation or advertisement; options follow.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Neighbor {
    /// The header; `rest` is an advertisement's flags.
    pub icmp: Icmp,
    /// The solicited or advertised address.
    pub target: U128,
}

impl Neighbor {
    /// Flag: the sender is a router.
    pub const ROUTER: u32 = 1 << 31;
    /// Flag: the advertisement is a reply to a solicitation.
    pub const SOLICITED: u32 = 1 << 30;
    /// Flag: the advertised address replaces a known one.
    pub const OVERRIDE: u32 = 1 << 29;
}

/// A source or target link-layer address option (RFC 4861, 4.6.1).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct LinkOption {
    /// [`LinkOption::SOURCE`] or [`LinkOption::TARGET`].
    pub kind: u8,
    /// Length in units of eight bytes.
    pub length: u8,
    /// The address.
    pub address: MacAddress,
}

impl LinkOption {
    /// The address is the sender's.
    pub const SOURCE: u8 = 1;
    /// The address is the target's.
    pub const TARGET: u8 = 2;

    /// The address in the last option of this kind in `options`; `None` if there is none, or if the options
    /// are invalid.
    pub fn find(kind: u8, listed: &[u8]) -> Option<Option<MacAddress>> {
        let mut found = None;
        for option in options(listed) {
            let option = option?;
            if let (true, Ok(option)) = (option[0] == kind, LinkOption::ref_from_bytes(option)) {
                found = Some(option.address);
            }
        }
        Some(found)
    }
}

/// The options of a neighbor discovery message (RFC 4861, 4.6); `None` is an invalid one, and the last.
pub fn options(mut rest: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let next = move || {
        let &[_, units] = rest.first_chunk::<2>()?;
        // Attack: with a length of 0, the same option would be read again.
        let parts = rest.split_at_checked(usize::from(units) * 8).filter(|(option, _)| !option.is_empty());
        rest = parts.map_or(&[], |(_, behind)| behind);
        Some(parts.map(|(option, _)| option))
    };
    core::iter::from_fn(next).take(OPTIONS)
}

/// A prefix information option (RFC 4861, 4.6.2).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Prefix {
    /// [`Prefix::KIND`].
    pub kind: u8,
    /// Length in units of eight bytes: 4.
    pub length: u8,
    /// Length of the prefix in bits.
    pub prefix_length: u8,
    /// [`Prefix::ON_LINK`] and [`Prefix::AUTONOMOUS`].
    pub flags: u8,
    /// Seconds until addresses of the prefix are invalid.
    pub valid_lifetime: U32,
    /// Seconds until they are deprecated.
    pub preferred_lifetime: U32,
    /// Reserved.
    pub reserved: U32,
    /// The prefix.
    pub prefix: U128,
}

impl Prefix {
    /// The type of the option.
    pub const KIND: u8 = 3;
    /// Flag: the addresses are on the link.
    pub const ON_LINK: u8 = 0x80;
    /// Flag: for autoconfiguration.
    pub const AUTONOMOUS: u8 = 0x40;

    /// The option, if these are the bytes of one.
    pub fn parse(option: &[u8]) -> Option<&Prefix> {
        Prefix::ref_from_bytes(option).ok().filter(|prefix| (prefix.kind, prefix.length) == (Prefix::KIND, 4))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn golden_echo() {
        let bytes = *b"\x08\x00\x06\xfa\x12\x34\x00\x01ping";
        let (echo, data) = Icmp::split(&bytes).unwrap();
        assert_eq!((echo.kind, echo.checksum.get(), data), (v4::ECHO, 0x06fa, &b"ping"[..]));
        assert_eq!(
            (echo.identifier.get(), echo.sequence_number.get(), echo.rest()),
            (0x1234, 1, 0x1234_0001)
        );
        let mut copy = Icmp { checksum: U16::new(0), ..*echo };
        assert_eq!(crate::checksum::checksum(&[copy.bytes(), data].concat()), 0x06fa);
        copy.set_rest(0xdead_beef);
        assert_eq!(copy.bytes(), b"\x08\0\0\0\xde\xad\xbe\xef");
    }

    #[test]
    fn golden_solicitation() {
        let mut bytes =
            *b"\x87\0\0\0\0\0\0\0\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\x01\x01\x52\x54\0\0\0\x01";
        let (message, options) = Neighbor::split(&bytes).unwrap();
        assert_eq!((message.icmp.kind, message.target.get()), (v6::NEIGHBOR_SOLICITATION, 0xfe80 << 112 | 2));
        let link = Some(MacAddress([0x52, 0x54, 0, 0, 0, 1]));
        assert_eq!(LinkOption::find(LinkOption::SOURCE, options), Some(link));
        assert_eq!(LinkOption::find(LinkOption::TARGET, options), Some(None));
        bytes[25] = 0;
        assert_eq!(LinkOption::find(LinkOption::SOURCE, &bytes[24..]), None);
    }

    proptest! {
        #[test]
        fn any_options_end(bytes in prop::collection::vec(0u8..4, 0..300)) {
            let _ = LinkOption::find(1, &bytes);
        }
    }
}
